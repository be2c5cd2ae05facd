"""The instances of a block that become one instruction each: the values of their outer loops and the extents of their
inner loops.

The annotation "vsim.loops" gives the number of innermost loops of a block that belong to one instruction; the other
loops are enumerated here. A ragged edge has a shorter extent. If a condition couples two loops of an instruction, so
that the remaining region is not a box, the outer one is enumerated as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import sym, tirx

from ...match.access import variables
from ...match.evaluate import evaluate
from .nest import Leaf, Loop, Nest, instances


class Coupled(Exception):
    """Raised when an expression is not affine in the loops of an instruction, or bounds several of them together."""


@dataclass(eq=False)
class Instances:
    """All instances of a leaf that do any work, in execution order: arrays with one element per instance."""

    nest: Nest
    leaf: Leaf
    inner: tuple[Loop, ...]
    values: dict[tirx.Var, np.ndarray]  # of the enumerated loops
    keys: np.ndarray  # order numbers
    extents: np.ndarray  # int64[instances, inner loops]
    analyzer: sym.Analyzer

    def __len__(self) -> int:
        return len(self.keys)

    def affine(self, expr: tirx.Expr) -> tuple[np.ndarray, tuple[int, ...]]:
        """Return the value of an expression over the block's axes with all inner loops at 0, and its step along each
        inner loop."""
        return self._affine(self.leaf.bound(expr))

    def _affine(self, expr: tirx.Expr) -> tuple[np.ndarray, tuple[int, ...]]:
        expr = self.analyzer.simplify(expr)
        own = [loop.variable for loop in self.inner]
        of = variables(expr)
        used = [variable for variable in own if variable in of]
        parts = sym.detect_linear_equation(expr, used) if used else [expr]
        if len(parts) != len(used) + 1 or not all(isinstance(part, tirx.IntImm) for part in parts[:-1]):
            raise Coupled
        start = evaluate(parts[-1], self.values)
        if start is None:
            where = f"block {self.leaf.name!r}: the index {expr} does not consist of integers and loop variables"
            raise self.nest.refuse(f"{where}; expected indices made of loop variables and constants")
        steps = dict(zip(used, (int(part) for part in parts[:-1]), strict=True))
        return np.broadcast_to(start, len(self)).astype(np.int64), tuple(steps.get(variable, 0) for variable in own)

    def only(self, kept: Any) -> None:
        """Drop the instances that `kept` does not mark."""
        if not kept.all():
            self.values = {variable: column[kept] for variable, column in self.values.items()}
            self.keys, self.extents = self.keys[kept], self.extents[kept]

    def restrict(self, condition: tirx.Expr) -> None:
        """Apply a condition on the loops: drop instances and reduce extents."""
        for part in conjuncts(condition):
            self._restrict(part)

    def _restrict(self, condition: tirx.Expr) -> None:
        space = margin_of(condition)
        own = {loop.variable for loop in self.inner}
        if space is None or not variables(condition) & own:
            holds = evaluate(condition, self.values) if not variables(condition) & own else None
            if holds is None:
                raise Coupled
            self.only(np.broadcast_to(holds, len(self)).astype(bool))
            return
        start, steps = self._affine(space)  # the condition requires this to be positive
        bounded = [number for number, step in enumerate(steps) if step]
        if not bounded:  # the instruction's loops in it have a single iteration
            self.only(start > 0)
            return
        most = start + sum(min(steps[i], 0) * (self.extents[:, i] - 1) for i in bounded)
        if (most > 0).all():
            return
        if len(bounded) != 1 or steps[bounded[0]] > 0:
            raise Coupled
        loop = bounded[0]
        self.extents[:, loop] = np.minimum(self.extents[:, loop], -(-start // -steps[loop]))
        self.only(self.extents[:, loop] > 0)


def instances_of(nest: Nest, leaf: Leaf) -> Iterator[Instances]:
    """Yield the instances of a leaf with the number of inner loops that its annotation requests, then with fewer and
    fewer, for callers that find that a loop cannot be part of an instruction."""
    asked = leaf.annotation("vsim.loops")
    if not isinstance(asked, int) or not 0 <= asked <= len(leaf.loops):
        raise nest.refuse(
            f"block {leaf.name!r} has the annotation vsim.loops = {asked!r}; expected how many of its "
            f"{len(leaf.loops)} loops, counted from the innermost, belong to one instruction"
        )
    for count in range(asked, -1, -1):
        split = len(leaf.loops) - count
        inner = leaf.loops[split:]
        shared = next((loop for loop in inner if len(loop.leaves) > 1), None)
        if shared is not None:
            others = ", ".join(repr(other.name) for other in shared.leaves if other is not leaf)
            raise nest.refuse(
                f"block {leaf.name!r}: loop {shared.variable.name} of its instruction also contains {others}; "
                "expected loops that contain only this block, or a smaller vsim.loops"
            )
        try:
            yield _instances(nest, leaf, leaf.loops[:split], inner)
        except Coupled:
            continue


def _instances(nest: Nest, leaf: Leaf, walked: tuple[Loop, ...], inner: tuple[Loop, ...]) -> Instances:
    values, columns = instances(walked, nest)
    count = len(next(iter(values.values()))) if values else 1
    keys = np.full(count, leaf.start, dtype=np.int64)
    for loop, column in columns.items():
        keys += column * loop.size
    analyzer = sym.Analyzer()
    for loop in leaf.loops:
        analyzer.bind(loop.variable, tvm.ir.Range.from_min_extent(0, max(1, loop.most)))
    extents = np.empty((count, len(inner)), dtype=np.int64)
    for number, loop in enumerate(inner):
        extent = evaluate(loop.extent, values)
        if extent is None:
            raise Coupled
        extents[:, number] = extent
    found = Instances(nest, leaf, inner, values, keys, extents, analyzer)
    found.only((extents > 0).all(axis=1))
    found.restrict(leaf.realize.predicate)
    return found


def conjuncts(condition: tirx.Expr) -> Iterator[tirx.Expr]:
    """Yield the terms of a conjunction, omitting those that always hold."""
    if isinstance(condition, tirx.And):
        yield from conjuncts(condition.a)
        yield from conjuncts(condition.b)
    elif not (isinstance(condition, tirx.IntImm) and int(condition)):
        yield condition


def margin_of(condition: tirx.Expr) -> tirx.Expr | None:
    """Return the expression that must be positive for a comparison to hold; None for other conditions."""
    if isinstance(condition, tirx.LT):
        return condition.b - condition.a
    if isinstance(condition, tirx.LE):
        return condition.b - condition.a + 1
    if isinstance(condition, tirx.GT):
        return condition.a - condition.b
    if isinstance(condition, tirx.GE):
        return condition.a - condition.b + 1
    return None
