"""Transformations of stage axes: fusing neighbours, and splitting an axis by a factor or where a condition changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import prod

import numpy as np
import tvm_ffi
from tvm import sym, tirx

from ..lowering.extents import as_index, quotient, times
from ..lowering.samples import Extent, sampled
from .access import loads, variables
from .evaluate import conditional, evaluate
from .stages import Axis, Stage, Write, mapped, simplify, without_unit_axes

_MOST_PIECES = 32
_FEW_CHANGES = 8  # along one axis, whatever the pieces' size
_MANY_CHANGES = 256  # along one axis if its pieces are long, as for the concatenation of all features of a dense block
_LONG = 16  # elements
_MOST_EVALUATED = 1 << 16


def stride(address: tirx.Expr, variable: tirx.Var) -> int | None:
    """The stride of `variable` in elements; None if it is not constant."""
    parts = sym.detect_linear_equation(address, [variable])
    return int(parts[0]) if len(parts) == 2 and isinstance(parts[0], tirx.IntImm) else None


def fused(stages: Sequence[Stage]) -> list[Stage]:
    """Fuse neighbouring axes of the stages where all addresses remain as simple.

    Axes of the same variable in several stages are the same loop: they are fused in all of them or in none.
    """
    stages = list(stages)
    done = False
    while not done:
        done = True
        pairs = [
            (outer, inner)
            for stage in stages
            for axes in (stage.axes, stage.reduced)
            for outer, inner in reversed(list(pairwise(axes)))
        ]
        for outer, inner in pairs:
            one = tirx.Var(f"{outer[0].name}_{inner[0].name}", str(inner[0].ty))
            attempt = [_with_pair(stage, outer, inner, one) for stage in stages]
            if all(a is not None for a in attempt):
                stages = [a for a in attempt if a is not None]
                done = False
                break
    return stages


def _with_pair(stage: Stage, outer: Axis, inner: Axis, one: tirx.Var) -> Stage | None:
    """The stage with two axes fused to `one`, or unchanged if it has neither; None if that is impossible or not
    simpler."""
    every = [*stage.axes, *stage.reduced]
    names = [v for v, _ in every]
    if outer[0] not in names and inner[0] not in names:
        return stage
    whole = (one, times(outer[1], inner[1]))
    places = []
    for axes in (stage.axes, stage.reduced):
        at = [i for i, (a, b) in enumerate(pairwise(axes)) if a[0].same_as(outer[0]) and b[0].same_as(inner[0])]
        places.append((axes, at))
    if not any(at for _, at in places):
        return None
    changed = tuple(axes if not at else (*axes[: at[0]], whole, *axes[at[0] + 2 :]) for axes, at in places)
    size = as_index(inner[1], inner[0])
    change = {outer[0]: tirx.floordiv(one, size), inner[0]: tirx.floormod(one, size)}
    result = simplify(replace(stage, axes=changed[0], reduced=changed[1], writes=mapped(stage, change)))
    before, after = _divisions(stage), _divisions(result)
    return result if after <= before else None


def _divisions(stage: Stage) -> int:
    found: list[object] = []
    for expr in stage.expressions:
        tvm_ffi.structural_walk(expr, [((tirx.FloorDiv, tirx.FloorMod), found.append)])
    return len(found)


def pieces(stage: Stage) -> list[Stage]:
    """The stage, split wherever a condition on one axis changes, so that no condition remains; unchanged if there are
    too many pieces.
    """
    found = conditions(stage)
    splits: list[list[int]] = []
    for variable, extent in _numbers(stage.axes):
        changes: set[int] = set()
        for condition in found:
            for part in comparisons(condition):
                if variables(part) == {variable} and not loads(part):
                    changes |= _changes(part, variable, extent)
        splits.append([0, *sorted(changes), extent] if len(changes) <= most_changes(stage, variable) else [0, extent])
    if not are_few([len(bounds) - 1 for bounds in splits]):
        return [stage]
    return [_piece(stage, ranges) for ranges in product(*(list(pairwise(bounds)) for bounds in splits))]


def most_changes(stage: Stage, variable: tirx.Var) -> int:
    """The number of changes along an axis up to which it is split: each piece is a loop nest of its own."""
    inner = list(_numbers(stage.axes))
    while not inner[0][0].same_as(variable):
        inner.pop(0)
    return min(_MANY_CHANGES, max(_FEW_CHANGES, prod(size for _, size in inner) // _LONG))


def are_few(counts: Sequence[int]) -> bool:
    """Whether a stage is split, given the number of pieces per axis: several, but not too many along several axes."""
    count = prod(counts)
    return 1 < count <= (_MANY_CHANGES + 1 if count in counts else _MOST_PIECES)


def _numbers(axes: Sequence[Axis]) -> list[tuple[tirx.Var, int]]:
    return [(v, sampled(extent)) for v, extent in axes]


def _changes(condition: tirx.Expr, variable: tirx.Var, extent: int) -> set[int]:
    """Indices along an axis at which a condition differs from the previous index."""
    if extent > _MOST_EVALUATED:
        return set()
    holds = evaluate(condition, {variable: np.arange(extent)})
    if holds is None or holds.ndim == 0:
        return set()
    return {int(i) + 1 for i in np.flatnonzero(np.diff(holds.astype(np.int8)))}


def _piece(stage: Stage, ranges: Sequence[tuple[int, int]]) -> Stage:
    change, axes = {}, []
    for (variable, _), (start, end) in zip(stage.axes, ranges, strict=True):
        moved = tirx.Var(variable.name, str(variable.ty))
        axes.append((moved, end - start))
        change[variable] = moved + tirx.const(start, str(variable.ty))
    part = simplify(replace(stage, axes=tuple(axes), writes=mapped(stage, change)))
    return without_unit_axes(replace(part, writes=tuple(_decided(part, w) for w in part.writes)))


def _decided(stage: Stage, write: Write) -> Write:
    extents = dict(_numbers(stage.axes))

    def choose(node: tirx.Expr) -> tirx.Expr:
        branches = conditional(node)
        if branches is None:
            return node
        holds = truth(branches[0], extents)
        return node if holds is None else branches[1 if holds else 2]

    return replace(write, value=tvm_ffi.structural_map(write.value, (tirx.Expr, choose)))


def truth(condition: tirx.Expr, extents: dict[tirx.Var, int]) -> bool | None:
    """Whether a condition is true everywhere (True) or nowhere (False); None if neither, or unknown."""
    if isinstance(condition, tirx.IntImm):
        return bool(int(condition))
    if isinstance(condition, tirx.Not):
        inner = truth(condition.a, extents)
        return None if inner is None else not inner
    if isinstance(condition, (tirx.And, tirx.Or)):
        settles = isinstance(condition, tirx.Or)
        both = [truth(condition.a, extents), truth(condition.b, extents)]
        if settles in both:
            return settles
        return None if None in both else not settles
    of = variables(condition)
    if len(of) != 1 or loads(condition) or next(iter(of)) not in extents:
        return None
    variable = next(iter(of))
    if extents[variable] > _MOST_EVALUATED:
        return None
    holds = evaluate(condition, {variable: np.arange(extents[variable])})
    if holds is None or holds.min() != holds.max():
        return None
    return bool(holds.min())


def conditions(stage: Stage) -> list[tirx.Expr]:
    """The conditions of selections in the values of a stage."""
    found: list[tirx.Expr] = []

    def note(node: tirx.Expr) -> None:
        branches = conditional(node)
        if branches is not None:
            found.append(branches[0])

    for write in stage.writes:
        tvm_ffi.structural_walk(write.value, (tirx.Expr, note))
    return found


def comparisons(condition: tirx.Expr) -> Iterator[tirx.Expr]:
    """The comparisons that a condition consists of."""
    if isinstance(condition, tirx.Not):
        yield from comparisons(condition.a)
    elif isinstance(condition, (tirx.And, tirx.Or)):
        yield from comparisons(condition.a)
        yield from comparisons(condition.b)
    else:
        yield condition


def split(stage: Stage, variable: tirx.Var, inner: Extent) -> Stage:
    """The stage with one axis split in two, with an inner extent of `inner`, which divides it."""
    kind = str(variable.ty)
    first, second = tirx.Var(f"{variable.name}_o", kind), tirx.Var(f"{variable.name}_i", kind)

    def of(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        parts: list[Axis] = []
        for v, extent in axes:
            outer = quotient(extent, inner)
            parts += [(first, outer), (second, inner)] if v.same_as(variable) and outer is not None else [(v, extent)]
        return tuple(parts)

    writes = mapped(stage, {variable: first * as_index(inner, variable) + second})
    return simplify(replace(stage, axes=of(stage.axes), reduced=of(stage.reduced), writes=writes))


def renamed(stage: Stage, names: dict[tirx.Var, tirx.Var]) -> Stage:
    """The stage with other variables for some of its axes."""

    def of(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple((names.get(v, v), extent) for v, extent in axes)

    writes = mapped(stage, {old: new for old, new in names.items()})
    return replace(stage, axes=of(stage.axes), reduced=of(stage.reduced), writes=writes)
