"""Stages of dynamic extents, split wherever a condition on one axis changes, as for a concatenation or padding.

The position of a change is an expression of sizes. Several changes along an axis are used if their order is proved;
they are clamped to the axis, and a piece may be empty at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import tvm_ffi
from tvm import tirx

from ..lowering.open_index import OpenIndices, Polynomial
from ..lowering.samples import is_open
from .access import loads, variables
from .evaluate import conditional
from .loop_axes import are_few, comparisons, conditions, most_changes, pieces, truth
from .stages import Axis, Stage, mapped, simplify, without_unit_axes

_ORDERS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


@dataclass(frozen=True)
class _Change:
    """A comparison that is true from `place` on, or below it."""

    comparison: tirx.Expr
    place: Polynomial
    from_there: bool


def pieces_of(stage: Stage) -> list[Stage]:
    """The stage in pieces without conditions on a single axis; unchanged if that is impossible."""
    if not stage.is_open:
        return pieces(stage)
    places = OpenIndices((*stage.axes, *stage.reduced))
    found = [part for condition in conditions(stage) for part in comparisons(condition)]
    along = [
        _ordered(places, _changes(places, stage, axis, found), most_changes(stage, axis[0])) for axis in stage.axes
    ]
    if not are_few([len({_key(c.place) for c in changes}) + 1 for changes in along]):
        return [stage]
    parts = [_ranges(places, axis, changes) for axis, changes in zip(stage.axes, along, strict=True)]
    found_pieces = [_piece(stage, ranges) for ranges in product(*parts)]
    return [piece for piece in found_pieces if not _is_nothing(piece)] or [stage]


def _is_nothing(piece: Stage) -> bool:
    """Return whether a piece is known to be empty: a change at an end of an axis of known size results in such a
    piece."""
    return any(not is_open(extent) and int(extent) == 0 for _, extent in piece.axes)


@dataclass(frozen=True)
class _Range:
    """[start, end) of an axis, and the comparisons known there."""

    start: tirx.Expr
    end: tirx.Expr
    holds: tuple[tuple[tirx.Expr, bool], ...]


def _changes(places: OpenIndices, stage: Stage, axis: Axis, found: Sequence[Any]) -> list[_Change]:
    among = {v for v, _ in (*stage.axes, *stage.reduced)}
    changes = []
    for part in found:
        if not isinstance(part, _ORDERS) or loads(part) or variables(part, among) != {axis[0]}:
            continue
        low, high = (part.a, part.b) if isinstance(part, (tirx.LT, tirx.LE)) else (part.b, part.a)
        if str(low.ty) != "int64" or str(high.ty) != "int64":
            continue
        least = 1 if isinstance(part, (tirx.LT, tirx.GT)) else 0
        steps = places.steps(high - low - tirx.const(least, "int64"), [axis[0]])
        if steps is None or steps[0][0] not in ({(): 1}, {(): -1}):
            continue
        # True where step * v + rest is at least 0.
        rest, rising = steps[1], steps[0][0] == {(): 1}
        place = {m: -f for m, f in rest.items()} if rising else places.sum(rest, {(): 1})
        changes.append(_Change(part, place, rising))
    return changes


def _key(place: Polynomial) -> tuple[Any, ...]:
    return tuple(sorted(place.items()))


def _ordered(places: OpenIndices, changes: list[_Change], most: int) -> list[_Change]:
    """Changes in the order of their positions; empty if the order is unknown or there are more than `most`."""
    if len({_key(change.place) for change in changes}) > most:
        return []
    ordered: list[_Change] = []
    for change in changes:
        below = [other for other in ordered if places.is_ordered(other.place, change.place)]
        above = ordered[len(below) :]
        if ordered[: len(below)] != below or not all(places.is_ordered(change.place, o.place) for o in above):
            return []
        ordered.insert(len(below), change)
    return ordered


def _ranges(places: OpenIndices, axis: Axis, changes: list[_Change]) -> list[_Range]:
    extent = places.polynomial(axis[1] if isinstance(axis[1], tirx.Expr) else tirx.const(axis[1], "int64"))
    cuts = list({_key(c.place): c.place for c in changes}.values())
    bounds = [places.expression({}), *(_within(places, cut, extent) for cut in cuts), places.expression(extent)]
    parts = []
    for number, (start, end) in enumerate(pairwise(bounds)):
        passed = [_key(cut) for cut in cuts[:number]]
        holds = tuple((c.comparison, (_key(c.place) in passed) == c.from_there) for c in changes)
        parts.append(_Range(start, end, holds))
    return parts


def _within(places: OpenIndices, place: Polynomial, extent: Polynomial) -> tirx.Expr:
    """A position clamped to its axis."""
    expr = places.expression(place)
    if not places.is_ordered({}, place):
        expr = tirx.max(expr, tirx.const(0, "int64"))
    return expr if places.is_ordered(place, extent) else tirx.min(expr, places.expression(extent))


def _piece(stage: Stage, ranges: Sequence[_Range]) -> Stage:
    known = [pair for part in ranges for pair in part.holds]

    def decided(comparison: tirx.Expr) -> tirx.Expr:
        for other, holds in known:
            if tvm_ffi.structural_equal(comparison, other):
                return tirx.const(holds, "bool")
        return comparison

    def chosen(node: tirx.Expr) -> tirx.Expr:
        branches = conditional(node)
        holds = truth(branches[0], {}) if branches is not None else None
        return node if branches is None or holds is None else branches[1 if holds else 2]

    def settled(value: tirx.Expr) -> tirx.Expr:
        return tvm_ffi.structural_map(tvm_ffi.structural_map(value, (_ORDERS, decided)), (tirx.Expr, chosen))

    change: dict[tirx.Var, tirx.Expr] = {}
    axes: list[Axis] = []
    places = OpenIndices(())
    for (variable, extent), part in zip(stage.axes, ranges, strict=True):
        moved = tirx.Var(variable.name, str(variable.ty))
        if not part.holds:
            axes.append((moved, extent))
            change[variable] = moved
            continue
        size = places.shortest(part.end - part.start)
        axes.append((moved, int(size) if isinstance(size, tirx.IntImm) else size))
        change[variable] = moved + part.start
    writes = tuple(replace(w, value=settled(w.value)) for w in stage.writes)
    settled_stage = replace(stage, writes=writes)
    piece = replace(settled_stage, axes=tuple(axes), writes=mapped(settled_stage, change))
    return piece if _is_nothing(piece) else without_unit_axes(simplify(piece))
