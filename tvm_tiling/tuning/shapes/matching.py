"""Matching of database entries to shapes in four steps, and the search for near entries (design page 02).

The steps are: 1. initial entries of the same shape, 2. boundary entries of the same shape, 3. initial entries of which
every axis of the shape is a whole multiple, 4. boundary entries likewise. Shapes are compared in the units that the
machine pads to; an axis is a multiple if it is one in these units or in elements. Entries store their cost per unit, so
the lowest estimate of a step is the row with the lowest rate. Rows are found through an index, entered by the divisors
of the first two axes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import sqlalchemy as sa

from ...decide.gemm.open_rows import at_rows
from ...errors import DatabaseError
from ...hardware.description import Hardware
from ...sizes import Range
from ...workload import GemmWorkload
from .choice import Choice, choice_of
from .entries import AXES, EXTENTS, ROWS, Entry, entry_of
from .estimate import Estimate
from .key import ShapeKey, Workload
from .schema import ENTRIES, RANGE

ORDERS = ("steps", "estimate")
STEPS = {1: ("initial", True), 2: ("boundary", True), 3: ("initial", False), 4: ("boundary", False)}
LAST_OF_SAME = 2  # the last step with entries of the same shape
_INDEXED = 2  # number of axes that the index is entered by
# largest extent whose divisors are enumerated; for larger ones, the remainder is queried instead
_MOST_FACTORED = 10**10


@dataclass(frozen=True, kw_only=True)
class Hit:
    """An entry that serves a shape, and the step that found it (1 to 4). `scaled` is the entry's cost times the ratio
    of sizes. `longer` are the axes of which the shape is a multiple by more than one. `choice` says whether the entry's
    configuration or the analytical decision is taken, and why; None before that is determined. `told` computes the
    estimated cost of the shape with the entry's configuration."""

    step: int
    entry: Entry
    scaled: float
    longer: tuple[str, ...] = ()
    choice: Choice | None = None
    told: Callable[[Hit], Estimate | None] | None = field(default=None, repr=False, compare=False)

    @property
    def chosen(self) -> Literal["entry", "formulas"] | None:
        """Whose configuration is taken; None before that is determined."""
        if self.choice is None:
            return None
        return "entry" if self.choice.taken else "formulas"

    @functools.cached_property
    def estimated(self) -> Estimate | None:
        """The estimated cost of the shape with the entry's configuration, based on measurements; None for a hit of
        `matches`, and if the machine does not support the configuration."""
        return None if self.told is None else self.told(self)

    @property
    def estimate(self) -> float:
        """That cost, in the unit of the entry's: `scaled` if it is proportional or nothing better is known."""
        return self.scaled if self.estimated is None else self.estimated.cost

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval that contains the cost in nine cases out of ten; None if `estimated` is None."""
        return None if self.estimated is None else self.estimated.interval

    @property
    def proportional(self) -> bool:
        """Whether the shape is in the proportional range of the entry: longer only along axes along which the entry's
        cost was observed to be proportional. Outside it, the estimate is less certain."""
        return set(self.longer) <= set(self.entry.proportional)


@dataclass(frozen=True)
class Wanted:
    """A shape to be matched: its key and the id of that, its axes in elements and in units, which of them are padded,
    and the size that costs are proportional to."""

    key: ShapeKey
    key_id: int
    extents: tuple[int, ...]
    counts: tuple[int, ...]
    padded: tuple[bool, ...]
    size: int


def hits(connection: sa.Connection, wanted: Wanted, order: str, most: int) -> list[Hit]:
    """Return up to `most` hits, best first. `order` "steps": the lowest estimates of the first step that has any;
    "estimate": the lowest estimates of all steps, and the earlier step on a tie."""
    if order not in ORDERS:
        raise DatabaseError(f"order = {order!r}; expected {', '.join(map(repr, ORDERS))}")
    found: dict[int, Hit] = {}
    for step in STEPS:
        for row in connection.execute(_of_step(wanted, step, most)):
            if row.id not in found:
                found[row.id] = _hit(wanted, step, row)
        if found and order == "steps":
            break
    return sorted(found.values(), key=lambda hit: (hit.scaled, hit.step))[:most]


def choose(found: Sequence[Hit], workload: Workload, hardware: Hardware, *, prepacked: bool = False) -> Hit | None:
    """Return the first hit whose configuration the machine supports for `workload`, with the choice between it and the
    analytical decision; if none is supported, the first hit."""
    for hit in found:
        choice = choice_of(hit.entry, workload, hardware, prepacked=prepacked)
        if choice.config is not None:
            return replace(hit, choice=choice)
    return found[0] if found else None


def _hit(wanted: Wanted, step: int, row: Any) -> Hit:
    longer = tuple(
        axis
        for axis, count, column in zip(wanted.key.axes, wanted.counts, AXES, strict=False)
        if count != getattr(row, column.name)
    )
    return Hit(step=step, entry=entry_of(row, wanted.key), scaled=row.rate * wanted.size, longer=longer)


def _of_step(wanted: Wanted, step: int, most: int) -> sa.Select[Any]:
    kind, same = STEPS[step]
    query = sa.select(ENTRIES).where(ENTRIES.c.key_id == wanted.key_id, ENTRIES.c.kind == kind)
    axes = zip(AXES, wanted.counts, EXTENTS, wanted.extents, wanted.padded, strict=False)
    for number, (column, count, in_elements, extent, padded) in enumerate(axes):
        if same:
            query = query.where(column == count)
            continue
        served = _divides(column, count, number)
        query = query.where(sa.or_(served, _divides(in_elements, extent, number)) if padded else served)
    # On equal estimates, prefer the largest shape: the fewest loops are extended.
    return query.order_by(ENTRIES.c.rate, ENTRIES.c.cost.desc(), ENTRIES.c.id).limit(most)


def _divides(column: sa.Column[int], extent: int, number: int) -> sa.ColumnElement[bool]:
    """Return whether the axis of the given index divides an extent."""
    if number < _INDEXED and extent <= _MOST_FACTORED:
        return column.in_(divisors(extent))
    return sa.literal(extent, sa.BigInteger) % column == 0


def nearest(connection: sa.Connection, wanted: Wanted, most: int) -> list[Entry]:
    """Return up to `most` entries of the same key, nearest first by the ratios of their axes."""
    terms: Iterable[Any] = (
        sa.func.abs(column - count) * 1.0 / (column + count) for column, count in zip(AXES, wanted.counts, strict=False)
    )
    away = sa.literal(0.0)
    for term in terms:
        away = away + term
    query = sa.select(ENTRIES).where(ENTRIES.c.key_id == wanted.key_id, ENTRIES.c.kind != RANGE)
    rows = connection.execute(query.order_by(away, ENTRIES.c.rate, ENTRIES.c.id).limit(most))
    return [entry_of(row, wanted.key) for row in rows]


def of_ranges(connection: sa.Connection, wanted: Wanted, most: int) -> list[Entry]:
    """Return up to `most` entries for ranges of rows with the same key, nearest first by the ratios of the other axes,
    and the newest first on a tie."""
    away: sa.ColumnElement[float] = sa.literal(0.0)
    for axis, column, extent in zip(wanted.key.axes, EXTENTS, wanted.extents, strict=False):
        if axis != ROWS:
            away = away + sa.func.abs(column - extent) * 1.0 / (column + extent)
    query = sa.select(ENTRIES).where(ENTRIES.c.key_id == wanted.key_id, ENTRIES.c.kind == RANGE)
    rows = connection.execute(query.order_by(away, ENTRIES.c.id.desc()).limit(most))
    return [entry_of(row, wanted.key) for row in rows]


def serving(found: Sequence[Entry], workload: GemmWorkload, rows: Range) -> Entry | None:
    """Return the entry of the smallest range that covers `rows` and was measured within them, or None."""
    kept = [
        entry
        for entry in found
        if entry.rows is not None
        and entry.workload == at_rows(workload, entry.rows.rows.first)
        and entry.rows.rows.covers(rows)
        and entry.rows.within(rows) is not None
    ]
    return min(kept, key=_length, default=None)


def _length(entry: Entry) -> float:
    assert entry.rows is not None
    rows = entry.rows.rows
    return math.inf if rows.last is None else rows.last / rows.first


def divisors(number: int) -> Sequence[int]:
    """Return all divisors of a number in ascending order."""
    found, rest, prime = [1], number, 2
    while prime * prime <= rest:
        powers = 0
        while rest % prime == 0:
            rest //= prime
            powers += 1
        if powers:
            found = [own * prime**power for own in found for power in range(powers + 1)]
        prime += 1
    if rest > 1:
        found += [own * rest for own in found]
    return sorted(found)
