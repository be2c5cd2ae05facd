"""Integrity check of a database: the file, the references between tables, and the figures of each entry and trial."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ...errors import DatabaseError, TilingError
from ...plain_text import plain_json
from .entries import ENTRIES, config_from_text, entry_of, refuse_impossible, row_of
from .fingerprint import Fingerprint
from .key import ShapeKey
from .padding import Padding
from .schema import FINGERPRINTS, KEYS, SCHEMA, TRIALS

MOST_PROBLEMS = 50
_CHUNK = 1000


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What was checked, and what is wrong: one sentence per problem, at most 50 `problems`."""

    schema: int
    fingerprints: int
    keys: int
    entries: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        counted = {name: getattr(self, name) for name in ("schema", "fingerprints", "keys", "entries")}
        return {"ok": self.ok, **counted, "problems": list(self.problems)}


def check(connection: sa.Connection) -> CheckReport:
    """Check everything in one transaction."""
    problems: list[str] = []
    for problem in (
        *_file(connection),
        *_fingerprints(connection),
        *_entries(connection),
        *_trials(connection),
    ):
        if len(problems) < MOST_PROBLEMS:
            problems.append(problem)
    counted = {
        name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
        for name, table in (("fingerprints", FINGERPRINTS), ("keys", KEYS), ("entries", ENTRIES))
    }
    return CheckReport(schema=SCHEMA, problems=tuple(problems), **counted)


def _file(connection: sa.Connection) -> Iterator[str]:
    """Yield the problems that SQLite finds in its file."""
    if connection.dialect.name != "sqlite":
        return
    for (finding,) in connection.exec_driver_sql("PRAGMA integrity_check(20)"):
        if finding != "ok":
            yield f"file: {finding}"
    for table, row, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield f"{table} {row}: references a row of {parent} that does not exist"


def _fingerprints(connection: sa.Connection) -> Iterator[str]:
    for row in connection.execute(sa.select(FINGERPRINTS)):
        try:
            fingerprint = Fingerprint.from_dict(plain_json(row.record))
        except (ValueError, DatabaseError) as error:
            yield f"fingerprint {row.id}: {error}"
            continue
        if fingerprint.digest != row.digest:
            yield f"fingerprint {row.id}: digest {row.digest} is not that of its record"


def _entries(connection: sa.Connection) -> Iterator[str]:
    keys: dict[int, tuple[ShapeKey, Padding]] = {}
    cores = _cores(connection)
    machines: dict[int, int] = {}
    for row in connection.execute(sa.select(KEYS)):
        machines[row.id] = row.fingerprint_id
        try:
            key = ShapeKey.from_dict(plain_json(row.record))
            keys[row.id] = key, Padding.from_list(plain_json(row.padding), key)
            if key.digest != row.digest:
                yield f"key {row.id}: digest {row.digest} is not that of its record"
        except (ValueError, TypeError, DatabaseError) as error:
            yield f"key {row.id}: {error}"
    found = connection.execution_options(yield_per=_CHUNK).execute(sa.select(ENTRIES).order_by(ENTRIES.c.id))
    for row in found:
        if row.key_id not in keys:
            continue  # reported above
        key, padding = keys[row.key_id]
        try:
            entry = entry_of(row, key)
            expected = row_of(entry, row.key_id, key, padding)
            if machines[row.key_id] in cores:
                refuse_impossible(entry, cores[machines[row.key_id]])
        except (TilingError, TypeError) as error:
            yield f"entry {row.id}: {error}"
            continue
        for name, value in expected.items():
            own = getattr(row, name)
            is_rate = name == "rate" and isinstance(own, int | float)
            same = math.isclose(own, value, rel_tol=1e-9) if is_rate else own == value
            if not same and name != "cut":
                yield f"entry {row.id}: {name} = {own!r}, its shape and cost say {value!r}"


def _cores(connection: sa.Connection) -> dict[int, int]:
    """Return the cores of the machines that are CPUs, by fingerprint id; invalid fingerprints are omitted."""
    found: dict[int, int] = {}
    for row in connection.execute(sa.select(FINGERPRINTS)):
        with contextlib.suppress(ValueError, DatabaseError):
            machine = Fingerprint.from_dict(plain_json(row.record))
            if machine.kind == "cpu":
                found[row.id] = machine.cores
    return found


def _trials(connection: sa.Connection) -> Iterator[str]:
    for row in connection.execution_options(yield_per=_CHUNK).execute(sa.select(TRIALS).order_by(TRIALS.c.id)):
        try:
            config_from_text(row.cut)
        except TilingError as error:
            yield f"trial {row.id}: {error}"
        if row.cost is not None and not (isinstance(row.cost, int | float) and 0 < row.cost < math.inf):
            yield f"trial {row.id}: cost = {row.cost!r}; expected none, or a number above 0"
