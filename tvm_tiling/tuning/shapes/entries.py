"""Entries as data, and their conversion to and from table rows."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ...decide.configs.config import Config
from ...errors import DatabaseError
from ...hardware.cpu import Cpu
from ...hardware.description import Hardware
from ...measure import DOUBTFUL
from ...plain_text import plain_json
from ...sizes import Range
from ..least_cost import possible_anywhere, possible_seconds, work_of
from .fingerprint import Fingerprint, fingerprint_of
from .key import DEEP_CONV_AXES, GEMM_AXES, MOST_AXES, MOST_EXTENT, ShapeKey, Workload, extents_of, key_of
from .padding import Padding, padding_of
from .row_range import RowsMeasured
from .schema import ENTRIES, FINGERPRINTS, KEYS, KINDS, RANGE

ROWS_AT_ONCE = 1000
ROWS = "m"  # the axis of a matrix multiplication along which an entry may have a range
AXES = tuple(ENTRIES.c[f"a{axis}"] for axis in range(MOST_AXES))
EXTENTS = tuple(ENTRIES.c[f"e{axis}"] for axis in range(MOST_AXES))


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A measured shape or range of shapes: the workload, its configuration and its cost.

    `kind` is "initial", "boundary" or "range". A range entry is for a matrix multiplication with any number of rows
    within `rows`, which has the measurements; its workload has the smallest number, and its costs are geometric means
    over the measured sizes. `cost` is in seconds, or in cycles on an accelerator; `decided_cost` is the cost of the
    analytical decision for that shape in the same session, or None if not measured; `disturbed`, if both were timed in
    one session, is the fraction of it in which other work kept threads off their cores; `energy_pj` comes from a
    simulator.

    `epilogue` and `prepacked` complete the key of the workload. `proportional` are the axes along which its cost was
    observed to be proportional to the size: for an initial shape, those along which it could be reduced and doubled;
    for a boundary shape, those of them along which it was reduced.
    """

    workload: Workload
    config: Config
    cost: float
    kind: str = "initial"
    energy_pj: float | None = None
    epilogue: str = ""
    prepacked: bool = False
    proportional: tuple[str, ...] = ()
    decided_cost: float | None = None
    disturbed: float | None = None
    rows: RowsMeasured | None = None

    @property
    def doubtful(self) -> bool:
        """Whether the machine was too busy when it was timed against the decision."""
        return self.disturbed is not None and self.disturbed > DOUBTFUL

    @property
    def cut(self) -> Config:
        """`config`, under its original name."""
        return self.config

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DatabaseError(f"kind = {self.kind!r}; expected {', '.join(map(repr, KINDS))}")
        if (self.kind == RANGE) != (self.rows is not None):
            raise DatabaseError(
                f"kind = {self.kind!r} with rows = {self.rows!r}; expected rows only with kind {RANGE!r}"
            )
        if self.rows is not None and getattr(self.workload, "m", None) != self.rows.rows.first:
            raise DatabaseError(
                f"rows = {self.rows.rows}; expected a range whose first number is the m of the workload"
            )
        if not _is_cost(self.cost):
            raise DatabaseError(f"cost = {self.cost!r}; expected a measured cost, a number above 0")
        if self.decided_cost is not None and not _is_cost(self.decided_cost):
            raise DatabaseError(f"decided_cost = {self.decided_cost!r}; expected None or a measured cost above 0")
        share = self.disturbed
        if share is not None and not (isinstance(share, int | float) and 0 <= share <= 1):
            raise DatabaseError(f"disturbed = {share!r}; expected None or a fraction, 0 to 1")
        energy = self.energy_pj
        if energy is not None and not (isinstance(energy, int | float) and 0 <= energy < math.inf):
            raise DatabaseError(f"energy_pj = {energy!r}; expected None or a number of at least 0")
        if not isinstance(self.config, Config):
            raise DatabaseError(f"config = {self.config!r}; expected a Config or a decision")
        op = "gemm" if hasattr(self.workload, "m") else "conv"
        if self.config.op != op:
            raise DatabaseError(f"config of a {self.config.op} for a {op}; expected a config of the same operator")
        if not isinstance(self.proportional, tuple) or any(
            axis not in DEEP_CONV_AXES + GEMM_AXES for axis in self.proportional
        ):
            raise DatabaseError(f"proportional = {self.proportional!r}; expected names of axes")


def _is_cost(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def refuse_impossible(entry: Entry, machine: Cpu | int) -> None:
    """Raise DatabaseError if an entry costs less than its configuration can on `machine`: a CPU, or the number of cores
    of a CPU without a description. Simulated cycles are not checked."""
    workload, config = entry.workload, entry.config
    if isinstance(machine, int):
        cores, least = machine, possible_anywhere(workload, config, machine)
    else:
        cores, least = machine.cores, possible_seconds(workload, config, machine)
    if entry.cost < least:
        raise DatabaseError(
            f"cost = {entry.cost:.4g} s is impossible; expected at least {least:.4g} s, which "
            f"{work_of(workload, config).macs} multiply-accumulates of algorithm {config.form!r} take on any "
            f"such CPU with {cores} cores: measure it again"
        )


def text(extents: Sequence[int]) -> str:
    """Return extents as stored."""
    return "x".join(map(str, extents))


def shape_of(workload: Workload, rows: Range | None) -> str:
    """Return the extents of an operator as stored, with the rows as a range if they are one."""
    key, extents = key_of(workload), extents_of(workload)
    return "x".join(
        str(rows) if rows is not None and axis == ROWS else str(extent)
        for axis, extent in zip(key.axes, extents, strict=True)
    )


def compact(value: Any) -> str:
    """Return JSON in which equal values have equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _columns(columns: Sequence[sa.Column[int]], counts: Sequence[int]) -> dict[str, int]:
    """Return the values of columns, one for each axis; 1 for axes that an operator lacks."""
    return {column.name: count for column, count in zip(columns, (*counts, *(1,) * MOST_AXES), strict=False)}


def row_of(entry: Entry, key_id: int, key: ShapeKey, padding: Padding) -> dict[str, Any]:
    """Return the row of an entry. DatabaseError for shapes that cannot be counted exactly."""
    extents = extents_of(entry.workload)
    size = padding.size(key, entry.workload, extents)
    if size > MOST_EXTENT:
        raise DatabaseError(f"a shape has {size} multiply-accumulates; expected at most {MOST_EXTENT}")
    return {
        "key_id": key_id,
        "kind": entry.kind,
        "shape": shape_of(entry.workload, None if entry.rows is None else entry.rows.rows),
        **_columns(AXES, padding.counts(key, extents)),
        **_columns(EXTENTS, extents),
        "rate": entry.cost / size,
        "cost": float(entry.cost),
        "energy_pj": entry.energy_pj,
        "cut": compact(entry.config.to_dict()),
        "proportional": " ".join(entry.proportional),
        "decided_cost": None if entry.decided_cost is None else float(entry.decided_cost),
        "disturbed": None if entry.disturbed is None else float(entry.disturbed),
        "measured_rows": None if entry.rows is None else compact(entry.rows.to_dict()),
    }


def put_fingerprint(connection: sa.Connection, fingerprint: Fingerprint) -> int:
    """Return the id of a fingerprint, inserting it if necessary."""
    wanted = FINGERPRINTS.c.digest == fingerprint.digest
    record = {"digest": fingerprint.digest, "record": compact(fingerprint.to_dict())}
    return _put(connection, FINGERPRINTS, wanted, record, ["digest"])


def put_key(connection: sa.Connection, fingerprint_id: int, key: ShapeKey, padding: Padding) -> int:
    """Return the id of a key, inserting it if necessary."""
    wanted = sa.and_(KEYS.c.fingerprint_id == fingerprint_id, KEYS.c.digest == key.digest)
    record = {
        "fingerprint_id": fingerprint_id,
        "digest": key.digest,
        "record": key.text,
        "padding": compact(padding.to_list()),
    }
    return _put(connection, KEYS, wanted, record, ["fingerprint_id", "digest"])


def _put(
    connection: sa.Connection,
    table: sa.Table,
    wanted: sa.ColumnElement[bool],
    record: dict[str, Any],
    unique: list[str],
) -> int:
    query = sa.select(table.c.id).where(wanted)
    found = connection.execute(query).scalar_one_or_none()
    if found is None:
        connection.execute(_insert(connection, table).on_conflict_do_nothing(index_elements=unique), [record])
        found = connection.execute(query).scalar_one()
    return int(found)


def put_rows(connection: sa.Connection, rows: Iterable[dict[str, Any]]) -> None:
    """Write entries. For an existing shape, the cheaper configuration is kept; a newer cost of the same configuration
    replaces the older one, and so does a newer range entry, whose costs are for other sizes."""
    found = list(rows)
    if not found:
        return
    insert = _insert(connection, ENTRIES)
    new = insert.excluded
    better = sa.or_(new.cut == ENTRIES.c.cut, new.cost < ENTRIES.c.cost, new.kind == RANGE)
    names = ("rate", "cost", "energy_pj", "cut", "proportional", "decided_cost", "disturbed", "measured_rows")
    changed = {name: new[name] for name in names}
    statement = insert.on_conflict_do_update(index_elements=["key_id", "kind", "shape"], set_=changed, where=better)
    connection.execute(statement, found)


def put_entries(connection: sa.Connection, entries: Iterable[Entry], hardware: Hardware) -> None:
    """Write entries measured on `hardware` in the transaction of `connection`."""
    machine = put_fingerprint(connection, fingerprint_of(hardware))
    keys: dict[str, tuple[int, Padding]] = {}
    rows: list[dict[str, Any]] = []
    for entry in entries:
        key = key_of(entry.workload, epilogue=entry.epilogue, prepacked=entry.prepacked)
        if key.digest not in keys:
            padding = padding_of(entry.workload, hardware)
            keys[key.digest] = put_key(connection, machine, key, padding), padding
        number, padding = keys[key.digest]
        rows.append(row_of(entry, number, key, padding))
    for first in range(0, len(rows), ROWS_AT_ONCE):
        put_rows(connection, rows[first : first + ROWS_AT_ONCE])


def _insert(connection: sa.Connection, table: sa.Table) -> Any:
    return (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)


@functools.lru_cache(maxsize=4096)
def config_from_text(kept: str) -> Config:
    """Return the configuration of a row. DatabaseError if it is invalid."""
    try:
        return Config.from_dict(plain_json(kept))
    except ValueError:
        raise DatabaseError("config: invalid JSON; expected the output of Config.to_dict") from None


def entry_of(row: Any, key: ShapeKey) -> Entry:
    """Return an entry from its row. DatabaseError if the row is corrupted."""
    rows = None if row.measured_rows is None else RowsMeasured.from_dict(plain_json(row.measured_rows))
    extents = str(row.shape).split("x")
    if rows is not None and ROWS in key.axes and len(extents) == len(key.axes):
        place = key.axes.index(ROWS)
        if extents[place] != str(rows.rows):
            raise DatabaseError(
                f"entry {row.id}: shape {row.shape!r} does not match the measured range of {rows.rows} rows"
            )
        extents[place] = str(rows.rows.first)
    if len(extents) != len(key.axes) or not all(map(_is_extent, extents)):
        raise DatabaseError(f"entry {row.id}: shape {row.shape!r}; expected {len(key.axes)} extents separated by x")
    if not isinstance(row.rate, int | float):  # text times a size would be a text of that length
        raise DatabaseError(f"entry {row.id}: rate {str(row.rate)[:40]!r}; expected a number")
    return Entry(
        workload=key.workload([int(extent) for extent in extents]),
        config=config_from_text(row.cut),
        cost=row.cost,
        kind=row.kind,
        energy_pj=row.energy_pj,
        epilogue=key.epilogue,
        prepacked=key.prepacked,
        proportional=tuple(row.proportional.split()),
        decided_cost=row.decided_cost,
        disturbed=row.disturbed,
        rows=rows,
    )


def _is_extent(text: str) -> bool:
    return text.isdecimal() and len(text) <= len(str(MOST_EXTENT)) and int(text) <= MOST_EXTENT
