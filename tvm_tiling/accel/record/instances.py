"""The instances of a block that become one instruction each: where they stand, and how far their inner loops go.

The innermost loops of a block, as many as its annotation "vsim.loops" says, are those of the instruction; the others
are walked here. A ragged edge is a shorter extent. Where a condition couples two loops of an instruction, so that what
is left is no box, the outer one is walked as well.
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
    """An expression is no affine one of the instruction's loops, or bounds several of them together."""


@dataclass(eq=False)
class Instances:
    """All instances of a leaf that do anything: arrays of one element each, in the order they run."""

    nest: Nest
    leaf: Leaf
    inner: tuple[Loop, ...]
    values: dict[tirx.Var, np.ndarray]  # of the loops walked
    keys: np.ndarray  # order numbers
    extents: np.ndarray  # int64[instances, inner loops]
    analyzer: sym.Analyzer

    def __len__(self) -> int:
        return len(self.keys)

    def affine(self, expr: tirx.Expr) -> tuple[np.ndarray, tuple[int, ...]]:
        """An expression of the block's axes as its value where all inner loops stand at 0, and its step along each."""
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
            where = f"block {self.leaf.name!r}: the index {expr} is not made of whole numbers and loops"
            raise self.nest.refuse(f"{where}; accepted: indices that loops and constants give")
        steps = dict(zip(used, (int(part) for part in parts[:-1]), strict=True))
        return np.broadcast_to(start, len(self)).astype(np.int64), tuple(steps.get(variable, 0) for variable in own)

    def only(self, kept: Any) -> None:
        """Drop the instances that `kept` does not mark."""
        if not kept.all():
            self.values = {variable: column[kept] for variable, column in self.values.items()}
            self.keys, self.extents = self.keys[kept], self.extents[kept]

    def restrict(self, condition: tirx.Expr) -> None:
        """Keep what a condition of the loops allows: instances dropped, extents cut."""
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
        start, steps = self._affine(space)  # the condition says that this is above 0
        bounded = [number for number, step in enumerate(steps) if step]
        if not bounded:  # the instruction's loops in it go round once
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
    """The instances of a leaf with as many inner loops as its annotation asks for, then with fewer and fewer: for who
    finds that a loop cannot be part of an instruction."""
    asked = leaf.annotation("vsim.loops")
    if not isinstance(asked, int) or not 0 <= asked <= len(leaf.loops):
        raise nest.refuse(
            f"block {leaf.name!r} has the annotation vsim.loops = {asked!r}; accepted: how many of its "
            f"{len(leaf.loops)} loops, the innermost, one instruction takes"
        )
    for count in range(asked, -1, -1):
        split = len(leaf.loops) - count
        inner = leaf.loops[split:]
        shared = next((loop for loop in inner if len(loop.leaves) > 1), None)
        if shared is not None:
            others = ", ".join(repr(other.name) for other in shared.leaves if other is not leaf)
            raise nest.refuse(
                f"block {leaf.name!r}: loop {shared.variable.name} of its instruction also holds {others}; accepted: "
                "loops that hold the block alone, or fewer of them in vsim.loops"
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
    """The conditions that have to hold together, those that always hold left out."""
    if isinstance(condition, tirx.And):
        yield from conjuncts(condition.a)
        yield from conjuncts(condition.b)
    elif not (isinstance(condition, tirx.IntImm) and int(condition)):
        yield condition


def margin_of(condition: tirx.Expr) -> tirx.Expr | None:
    """What has to be above 0 for a comparison to hold; None where it is another condition."""
    if isinstance(condition, tirx.LT):
        return condition.b - condition.a
    if isinstance(condition, tirx.LE):
        return condition.b - condition.a + 1
    if isinstance(condition, tirx.GT):
        return condition.a - condition.b
    if isinstance(condition, tirx.GE):
        return condition.a - condition.b + 1
    return None
