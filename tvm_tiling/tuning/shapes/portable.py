"""Databases as text: JSON lines, for another machine, another kind of database, or people.

The first line identifies the file and gives the number of entries. A line {"fingerprint": ...} names the machine on
which the following entries were measured; each entry is one line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import sqlalchemy as sa

from ...decide.configs.config import Config
from ...errors import DatabaseError, TilingError, other_version
from ...hardware.cpu import Cpu
from ...plain_text import plain_json
from .entries import ENTRIES, Entry, compact, entry_of, put_fingerprint, put_key, put_rows, refuse_impossible, row_of
from .fingerprint import Fingerprint
from .key import ShapeKey, key_of, workload_from_dict
from .padding import Padding
from .row_range import RowsMeasured
from .schema import FINGERPRINTS, KEYS

FORMAT = "tvm-tiling shapes"
VERSION = 4
_OLDER = {"kind", "workload", "epilogue", "ahead", "padding", "cut", "cost", "energy_pj", "proportional"}
_FIELDS = {
    1: _OLDER,
    2: _OLDER | {"decided_cost"},
    3: _OLDER | {"decided_cost", "disturbed"},
    4: _OLDER | {"decided_cost", "disturbed", "rows"},
}
_CHUNK = 1000


def write_lines(connection: sa.Connection, file: BinaryIO) -> int:
    """Write all entries as lines. Return their number."""
    count = connection.execute(sa.select(sa.func.count()).select_from(ENTRIES)).scalar_one()
    _put(file, {"format": FORMAT, "version": VERSION, "entries": count})
    for fingerprint in connection.execute(sa.select(FINGERPRINTS).order_by(FINGERPRINTS.c.id)).all():
        _put(file, {"fingerprint": plain_json(fingerprint.record)})
        keys = connection.execute(sa.select(KEYS).where(KEYS.c.fingerprint_id == fingerprint.id).order_by(KEYS.c.id))
        for kept in keys.all():
            key = ShapeKey.from_dict(plain_json(kept.record))
            rows = connection.execution_options(yield_per=_CHUNK).execute(
                sa.select(ENTRIES).where(ENTRIES.c.key_id == kept.id).order_by(ENTRIES.c.id)
            )
            for row in rows:
                _put(file, entry_record(entry_of(row, key), plain_json(kept.padding)))
    return int(count)


def entry_record(entry: Entry, padding: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an entry as plain values."""
    return {
        "kind": entry.kind,
        "workload": entry.workload.to_dict(),
        "epilogue": entry.epilogue,
        "ahead": entry.prepacked,
        "padding": padding,
        "cut": entry.config.to_dict(),
        "cost": entry.cost,
        "energy_pj": entry.energy_pj,
        "proportional": list(entry.proportional),
        "decided_cost": entry.decided_cost,
        "disturbed": entry.disturbed,
        "rows": None if entry.rows is None else entry.rows.to_dict(),
    }


class Lines:
    """A file of lines, read and checked completely before anything is written.

    name: of the file, for errors. DatabaseError names the line and what is wrong with it. `known`: CPUs whose
    descriptions are available, by the digests of their fingerprints.
    """

    def __init__(self, file: BinaryIO, name: str, known: Mapping[str, Cpu] | None = None) -> None:
        self.name, self._known = name, known or {}
        self.found: list[tuple[Fingerprint, ShapeKey, Padding, Entry]] = []
        self._read(file)

    def put(self, connection: sa.Connection) -> int:
        """Write the entries in the transaction of `connection`. Return their number. For an existing shape, the cheaper
        configuration is kept."""
        fingerprints: dict[str, int] = {}
        keys: dict[tuple[int, str], int] = {}
        rows: list[dict[str, Any]] = []
        for fingerprint, key, padding, entry in self.found:
            if fingerprint.digest not in fingerprints:
                fingerprints[fingerprint.digest] = put_fingerprint(connection, fingerprint)
            machine = fingerprints[fingerprint.digest]
            if (machine, key.digest) not in keys:
                keys[machine, key.digest] = self._key(connection, machine, key, padding)
            rows.append(row_of(entry, keys[machine, key.digest], key, padding))
            if len(rows) == _CHUNK:
                put_rows(connection, rows)
                rows = []
        put_rows(connection, rows)
        return len(self.found)

    def _key(self, connection: sa.Connection, machine: int, key: ShapeKey, padding: Padding) -> int:
        number = put_key(connection, machine, key, padding)
        kept = connection.execute(sa.select(KEYS.c.padding).where(KEYS.c.id == number)).scalar_one()
        if plain_json(kept) != padding.to_list():
            raise DatabaseError(f"{self.name}: padding {padding.to_list()} differs from the database; expected {kept}")
        return number

    def _read(self, file: BinaryIO) -> None:
        expected: int | None = None
        fields = _FIELDS[VERSION]
        fingerprint: Fingerprint | None = None
        padded: dict[tuple[str, str], Padding] = {}
        for number, line in self._lines(file):
            if expected is None:
                expected, fields = self._header(number, line)
            elif "fingerprint" in line:
                with _at(self.name, number):
                    if set(line) != {"fingerprint"}:
                        raise DatabaseError("extra fields beside the fingerprint; expected the fingerprint alone")
                    fingerprint = Fingerprint.from_dict(line["fingerprint"])
            else:
                with _at(self.name, number):
                    if fingerprint is None:
                        raise DatabaseError(
                            "an entry precedes the first fingerprint; expected a fingerprint line first"
                        )
                    key, padding, entry = _entry(line, fields)
                    if fingerprint.kind == "cpu":
                        refuse_impossible(entry, self._known.get(fingerprint.digest) or fingerprint.cores)
                    if padded.setdefault((fingerprint.digest, key.digest), padding) != padding:
                        raise DatabaseError(
                            "padding differs from that of earlier entries; expected one padding per key"
                        )
                    self.found.append((fingerprint, key, padding, entry))
        if expected is None:
            raise DatabaseError(f"{self.name} is empty; expected a file written by `db export`")
        if len(self.found) != expected:
            raise DatabaseError(
                f"{self.name} contains {len(self.found)} entries but declares {expected}: it is truncated or "
                "edited; expected a complete file written by `db export`"
            )

    def _header(self, number: int, line: dict[str, Any]) -> tuple[int, set[str]]:
        """Return the number of entries that follow, and their fields."""
        with _at(self.name, number):
            if line.get("format") != FORMAT or type(line.get("entries")) is not int:
                raise DatabaseError(f"missing header; expected a file written by `db export`, with format {FORMAT!r}")
            version = line.get("version")
            if type(version) is not int or version not in _FIELDS:
                again = "export the database again with `tvm-tiling db export`"
                raise DatabaseError(f"the file has {other_version(version, tuple(_FIELDS), again)}")
            return int(line["entries"]), _FIELDS[version]

    def _lines(self, file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, raw in enumerate(file, start=1):
            with _at(self.name, number):
                try:
                    line = plain_json(raw)
                except ValueError:
                    raise DatabaseError("invalid JSON; expected a table") from None
                if not isinstance(line, dict):
                    raise DatabaseError(f"a {type(line).__name__}; expected a table")
            yield number, line


@contextlib.contextmanager
def _at(name: str, number: int) -> Iterator[None]:
    """Add the location in the file to an error."""
    try:
        yield
    except TilingError as error:
        raise DatabaseError(f"{name}, line {number}: {error}") from None


def _entry(line: dict[str, Any], fields: set[str]) -> tuple[ShapeKey, Padding, Entry]:
    if set(line) != fields:
        wrong, accepted = min(set(line) ^ fields), ", ".join(sorted(fields))
        raise DatabaseError(f"field {wrong!r} is {'unknown' if wrong in line else 'missing'}; expected {accepted}")
    if not isinstance(line["ahead"], bool):
        raise DatabaseError(f"ahead = {line['ahead']!r}; expected true or false")
    workload = workload_from_dict(line["workload"])
    key = key_of(workload, epilogue=line["epilogue"], prepacked=line["ahead"])
    padding = Padding.from_list(line["padding"], key)
    entry = Entry(
        workload=workload,
        config=Config.from_dict(line["cut"]),
        cost=line["cost"],
        kind=line["kind"],
        energy_pj=line["energy_pj"],
        epilogue=line["epilogue"],
        prepacked=line["ahead"],
        proportional=tuple(line["proportional"]) if isinstance(line["proportional"], list) else line["proportional"],
        decided_cost=line.get("decided_cost"),
        disturbed=line.get("disturbed"),
        rows=None if line.get("rows") is None else RowsMeasured.from_dict(line["rows"]),
    )
    row_of(entry, 0, key, padding)  # raises for shapes that cannot be counted exactly
    return key, padding, entry


def _put(file: BinaryIO, record: dict[str, Any]) -> None:
    file.write(compact(record).encode() + b"\n")
