"""Windows that extend past a border: the condition under which an element counts, as bounds of the window's loops.

Pooling reads a padded copy whose outside is the identity of the reduction (the minimum value, or zero), so that it does
not change the result. Then neither the copy nor a condition is needed: the loops over the window start and end at the
border.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import TensorLoad

from ..lowering.samples import sampled
from .access import loads, variables
from .evaluate import assuming, conditional, evaluate, shortest
from .extreme import extreme, plain
from .stages import Stage

Operation: TypeAlias = Callable[[tirx.Expr, tirx.Expr], tirx.Expr]


@dataclass(frozen=True)
class Bound:
    """One condition: `variable`, a reduction axis, is at least `least` or below `end`; `condition` is the equivalent
    expression."""

    variable: tirx.Var
    least: tirx.Expr | None
    end: tirx.Expr | None
    condition: tirx.Expr


@dataclass(frozen=True)
class Window:
    """A reduction that is computed only where its `bounds` hold."""

    stage: Stage
    bounds: tuple[Bound, ...] = ()

    def depends_on(self, axis: tirx.Var) -> bool:
        """Return whether any bound depends on an axis."""
        return any(axis in variables(bound.condition) for bound in self.bounds)

    def inside(self, axis: tirx.Var, extent: int) -> tuple[int, int]:
        """[start, end) of an axis where every bound that depends on it holds for the whole window; may be empty."""
        if self.stage.is_open and self.depends_on(axis):
            return 0, 0
        whole = np.ones(extent, bool)
        extents = {v: sampled(size) for v, size in self.stage.reduced}
        for bound in self.bounds:
            if axis not in variables(bound.condition):
                continue
            place = {axis: np.arange(extent)[:, None], bound.variable: np.arange(extents[bound.variable])[None, :]}
            holds = evaluate(bound.condition, place)
            if holds is None:
                return 0, 0
            whole &= np.broadcast_to(holds, (extent, extents[bound.variable])).all(axis=1)
        places = np.flatnonzero(whole)
        if not len(places) or len(places) != places[-1] - places[0] + 1:
            return 0, 0
        return int(places[0]), int(places[-1]) + 1


def window_of(stage: Stage) -> Window:
    """The reduction with its conditions as bounds; unchanged if a condition cannot be a bound."""
    as_it_is = Window(stage)
    if len(stage.writes) != 1 or not stage.reduced:
        return as_it_is
    write = stage.writes[0]
    split = accumulated(stage)
    conditions = _choices(write.value)
    if split is None or len(conditions) != 1 or write.init is None or loads(conditions[0]):
        return as_it_is
    _, term = split
    outside = shortest(assuming(term, conditions[0], False))
    if not tvm_ffi.structural_equal(outside, write.init):
        return as_it_is
    bounds = []
    for part in _conjuncts(conditions[0]):
        bound = _bound(part, [v for v, _ in stage.reduced])
        if bound is None:
            return as_it_is
        bounds.append(bound)
    value = assuming(write.value, conditions[0], True)
    return Window(replace(stage, writes=(replace(write, value=value),)), tuple(bounds))


def accumulated(stage: Stage, number: int = 0) -> tuple[Operation, tirx.Expr] | None:
    """(operation, added term) if a write combines its current element with a term by an associative operation."""
    write = stage.writes[number]
    exact = plain(write.value)
    value = write.value if exact is None else exact
    if not isinstance(value, (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)):
        return None
    own = [isinstance(p, TensorLoad) and p.source.same_as(write.buffer) for p in (value.a, value.b)]
    if own.count(True) != 1:
        return None
    term = value.b if own[0] else value.a
    if any(load.source.same_as(w.buffer) for load in loads(term) for w in stage.writes):
        return None
    return (type(value) if exact is None else partial(extreme, type(value))), term


def _choices(value: tirx.Expr) -> list[tirx.Expr]:
    found: list[tirx.Expr] = []

    def note(node: tirx.Expr) -> None:
        branches = conditional(node)
        if branches is None or isinstance(node, tirx.Select):
            return
        if not any(tvm_ffi.structural_equal(branches[0], c) for c in found):
            found.append(branches[0])

    tvm_ffi.structural_walk(value, (tirx.Expr, note))
    return found


def _conjuncts(condition: tirx.Expr) -> list[tirx.Expr]:
    if isinstance(condition, tirx.And):
        return _conjuncts(condition.a) + _conjuncts(condition.b)
    return [condition]


def _bound(part: tirx.Expr, reduced: Sequence[tirx.Var]) -> Bound | None:
    """One comparison as a bound of the only reduction axis in it."""
    if isinstance(part, (tirx.LT, tirx.LE)):
        low, high = part.a, part.b
    elif isinstance(part, (tirx.GT, tirx.GE)):
        low, high = part.b, part.a
    else:
        return None
    strict = isinstance(part, (tirx.LT, tirx.GT))
    room = high - low - 1 if strict else high - low  # nonnegative where it holds
    parts = sym.detect_linear_equation(sym.Analyzer().simplify(room), list(reduced))
    if len(parts) != len(reduced) + 1 or not all(isinstance(p, tirx.IntImm) for p in parts[:-1]):
        return None
    moving = [(v, int(p)) for v, p in zip(reduced, parts, strict=False) if int(p)]
    if len(moving) != 1:
        return None
    variable, step = moving[0]
    rest = parts[-1]
    kind = str(variable.ty)
    if step > 0:
        return Bound(variable, tirx.floordiv(tirx.const(step - 1, kind) - rest, tirx.const(step, kind)), None, part)
    return Bound(variable, None, tirx.floordiv(rest, tirx.const(-step, kind)) + tirx.const(1, kind), part)
