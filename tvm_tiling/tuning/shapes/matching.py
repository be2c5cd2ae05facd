"""Entries that serve a shape, in page 02's four steps, and those that are near it.

1. initial entries of the same shape, 2. boundary entries of the same shape, 3. initial entries of which every axis of
the shape is a whole multiple, 4. boundary entries likewise. Shapes are the same where they are it in the units that the
machine pads to; an axis is a multiple where it is one in these units or in elements. The cost of an entry per unit is
kept, so the lowest estimate of a step is the row of the lowest rate. Rows are found by an index, which is entered by
the divisors of the first two axes.
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
LAST_OF_SAME = 2  # the last step of entries of the same shape
_INDEXED = 2  # axes that the index is entered by
_MOST_FACTORED = 10**10  # an extent whose divisors are looked for; of larger ones the remainder is asked for instead


@dataclass(frozen=True, kw_only=True)
class Hit:
    """An entry that serves a shape: the step that found it (1 to 4). `scaled` is the entry's cost times how much larger
    the shape is. `longer` are the axes of which the shape is a multiple by more than one. `choice` says whether the
    entry's configuration is taken or the formulas' own decision, and why; None before that was asked, and `told` what
    the shape is estimated to cost with it."""

    step: int
    entry: Entry
    scaled: float
    longer: tuple[str, ...] = ()
    choice: Choice | None = None
    told: Callable[[Hit], Estimate | None] | None = field(default=None, repr=False, compare=False)

    @property
    def chosen(self) -> Literal["entry", "formulas"] | None:
        """Whose configuration is taken; None before that was asked."""
        if self.choice is None:
            return None
        return "entry" if self.choice.taken else "formulas"

    @functools.cached_property
    def estimated(self) -> Estimate | None:
        """The estimate of the shape's cost with the entry's configuration, made from what was measured; None of a hit
        of `matches`, and where the machine cannot do the configuration."""
        return None if self.told is None else self.told(self)

    @property
    def estimate(self) -> float:
        """That cost, in the unit of the entry's: `scaled` where it is in proportion, or nothing better is known."""
        return self.scaled if self.estimated is None else self.estimated.cost

    @property
    def interval(self) -> tuple[float, float] | None:
        """From where to where the cost lies in nine cases of ten; None where `estimated` is."""
        return None if self.estimated is None else self.estimated.interval

    @property
    def proportional(self) -> bool:
        """Whether the shape is in the entry's proportional range: longer along axes alone along which the entry's cost
        was seen to be in proportion. Elsewhere the estimate is less certain."""
        return set(self.longer) <= set(self.entry.proportional)


@dataclass(frozen=True)
class Wanted:
    """A shape to be matched: its key and that one's number, its axes in elements and in units, which of them are
    padded, and what costs are proportional to."""

    key: ShapeKey
    key_id: int
    extents: tuple[int, ...]
    counts: tuple[int, ...]
    padded: tuple[bool, ...]
    size: int


def hits(connection: sa.Connection, wanted: Wanted, order: str, most: int) -> list[Hit]:
    """Up to `most` hits, the best first. `order` "steps": of the first step that has any, the lowest estimate first;
    "estimate": of all steps, the lowest estimate first, and of equal ones the earlier step."""
    if order not in ORDERS:
        raise DatabaseError(f"order = {order!r}, accepted: {', '.join(map(repr, ORDERS))}")
    found: dict[int, Hit] = {}
    for step in STEPS:
        for row in connection.execute(_of_step(wanted, step, most)):
            if row.id not in found:
                found[row.id] = _hit(wanted, step, row)
        if found and order == "steps":
            break
    return sorted(found.values(), key=lambda hit: (hit.scaled, hit.step))[:most]


def choose(found: Sequence[Hit], workload: Workload, hardware: Hardware, *, prepacked: bool = False) -> Hit | None:
    """The first of the hits whose configuration the machine can do for `workload`, with the choice between it and the
    formulas' own decision; where it can do none, the first."""
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
    # Of equal estimates the largest shape: the fewest loops are made longer.
    return query.order_by(ENTRIES.c.rate, ENTRIES.c.cost.desc(), ENTRIES.c.id).limit(most)


def _divides(column: sa.Column[int], extent: int, number: int) -> sa.ColumnElement[bool]:
    """Whether an axis, the one of that number, is a divisor of an extent."""
    if number < _INDEXED and extent <= _MOST_FACTORED:
        return column.in_(divisors(extent))
    return sa.literal(extent, sa.BigInteger) % column == 0


def nearest(connection: sa.Connection, wanted: Wanted, most: int) -> list[Entry]:
    """Up to `most` entries of the same key, those first whose axes are the fewest times longer or shorter."""
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
    """Up to `most` entries of ranges of rows of the same key, those first whose other axes are the fewest times longer
    or shorter, and of these the newest."""
    away: sa.ColumnElement[float] = sa.literal(0.0)
    for axis, column, extent in zip(wanted.key.axes, EXTENTS, wanted.extents, strict=False):
        if axis != ROWS:
            away = away + sa.func.abs(column - extent) * 1.0 / (column + extent)
    query = sa.select(ENTRIES).where(ENTRIES.c.key_id == wanted.key_id, ENTRIES.c.kind == RANGE)
    rows = connection.execute(query.order_by(away, ENTRIES.c.id.desc()).limit(most))
    return [entry_of(row, wanted.key) for row in rows]


def serving(found: Sequence[Entry], workload: GemmWorkload, rows: Range) -> Entry | None:
    """The entry of the smallest range that covers `rows` of a product, and was measured within them; None where there
    is none."""
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
    """All divisors of a number, rising."""
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
