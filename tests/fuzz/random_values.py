"""Well-formed files with one invalid value: numbers that no type holds, other types, deep nesting.

Each is read as before, or refused with one sentence. Formats with a checksum get the matching one, so that the code
behind it is reached; databases get their values by SQL.
"""

from __future__ import annotations

import functools
import io
import json
import random
import re
import sqlite3
import struct
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from case import Case
from random_damage import check, files

import tvm_tiling as tt
from tvm_tiling.accel.program.assembler import assemble
from tvm_tiling.accel.program.disassembler import disassemble
from tvm_tiling.tuning.shapes.schema import METADATA

DEEP = 100_000
# Values that a JSON file may contain anywhere, as they are written there.
JSON = (
    *("10" + "0" * 29, "-1", "0", "1", "1" * 5000, "1e400", "-1e400", "1.5", "1e-320", "NaN", "Infinity", "-Infinity"),
    *("9223372036854775808", "true", "false", "null", '""', '"x"', '"\\ud800"', '"\\u0000"', '"' + "x" * 3000 + '"'),
    *("[]", "{}", "[[]]", '{"a": 1}', "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, "[1, 2, 3]", ""),
)
TOML = (
    *("10" + "0" * 29, "-1", "0", "1" * 5000, "1e400", "inf", "-inf", "nan", "1.5", "true", '""', '"x"', "[]", "{}"),
    *(
        "[[1]]",
        "[" * DEEP + "]" * DEEP,
        "{a = " * DEEP + "1" + "}" * DEEP,
        "1979-05-27",
        "0x" + "f" * 5000,
        "",
        '"\\ud800"',
    ),
    *('["float32", 1]', '"\\ud800"', "9223372036854775808", "1_000_000_000_000"),
)
SQL: tuple[Any, ...] = (
    *(-1, 0, 2**63 - 1, -(2**63), 1.5, 1e400, float("nan"), "", "x", "[", "{}", "[]", "null", "NaN", b"\xff\xfe", b""),
    *("[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, "1" * 5000, "\ud7ff", "1x2x3", "9" * 30, None),
)
_MARK = "the value that is replaced"


def replaced(plain: Any, rng: random.Random, value: str) -> str:
    """Return JSON text in which one value is replaced."""
    copy = json.loads(json.dumps(plain))
    holders: list[tuple[Any, Any]] = []
    left = [copy]
    while left:
        held = left.pop()
        keys = held if isinstance(held, dict) else range(len(held)) if isinstance(held, list) else ()
        holders += [(held, key) for key in keys]
        left += [held[key] for key in keys]
    holder, key = rng.choice(holders)
    holder[key] = _MARK
    return json.dumps(copy).replace(json.dumps(_MARK), value)


def program(rng: random.Random) -> bytes:
    """Return a program file with a changed header and a valid checksum."""
    content, _ = files()["program"]
    end = 24 + struct.unpack_from("<Q", content, 16)[0]
    header = json.loads(content[24:end])
    text = replaced(header, rng, rng.choice(JSON)).encode()
    rest = content[end:]
    length = struct.pack("<Q", len(text))
    checksum = zlib.crc32(rest, zlib.crc32(text, zlib.crc32(length)))
    return content[:12] + struct.pack("<I", checksum) + length + text + rest


def executable(rng: random.Random) -> bytes:
    """Return a saved executable with a changed description."""
    content, _ = files()["executable"]
    changed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive, tarfile.open(fileobj=changed, mode="w") as copy:
        for member in archive:
            held = archive.extractfile(member).read()
            if member.name == "model.json":
                held = replaced(json.loads(held), rng, rng.choice(JSON)).encode()
                member.size = len(held)
            copy.addfile(member, io.BytesIO(held))
    return changed.getvalue()


def shapes(rng: random.Random) -> bytes:
    """Return exported shapes with one changed line."""
    lines = files()["shapes"][0].decode().splitlines()
    at = rng.randrange(len(lines))
    lines[at] = replaced(json.loads(lines[at]), rng, rng.choice(JSON))
    return "\n".join(lines).encode() + b"\n"


def machine(rng: random.Random) -> bytes:
    """Return a machine description with one changed field."""
    text = files()["machine"][0].decode()
    places = list(re.finditer(r"(?m)^(\w+) = (.*)$", text))
    place = rng.choice(places)
    return (text[: place.start(2)] + rng.choice(TOML) + text[place.end(2) :]).encode()


@functools.cache
def program_text() -> str:
    """Return a program as disassembled text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.vsim"
        path.write_bytes(files()["program"][0])
        return disassemble(tt.Program.load(path))


def words(rng: random.Random) -> bytes:
    """Return the text of a program with one changed number or word."""
    text = program_text()
    place = rng.choice(list(re.finditer(r"[\w.]+", text)))
    value = rng.choice([value for value in (*JSON, *TOML) if "\n" not in value])
    return (text[: place.start()] + value + text[place.end() :]).encode()


def _assembled(path: Path) -> None:
    assemble(path.read_text(encoding="utf-8", errors="surrogateescape"))


@functools.cache
def database_file() -> bytes:
    """Return a closed database with one entry."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.db"
        source = Path(folder) / "s.jsonl"
        source.write_bytes(files()["shapes"][0])
        with tt.ShapeDatabase(path) as database:
            database.import_(source)
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
        connection.close()
        return path.read_bytes()


def database(rng: random.Random) -> bytes:
    """Return a database with a changed column of its rows, table or byte."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.db"
        path.write_bytes(database_file())
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA ignore_check_constraints = ON")
        table = rng.choice([table for table in METADATA.sorted_tables if table.name in FILLED])
        column = rng.choice(list(table.columns)).name
        change = rng.choice(("value",) * 8 + ("drop", "rename", "byte", "byte", "byte"))
        try:
            if change == "value":
                connection.execute(f'UPDATE "{table.name}" SET "{column}" = ?', (rng.choice(SQL),))
            elif change == "drop":
                connection.execute(f'DROP TABLE "{table.name}"')
            elif change == "rename":
                connection.execute(f'ALTER TABLE "{table.name}" RENAME COLUMN "{column}" TO other')
            connection.commit()
        except sqlite3.Error:
            connection.rollback()
        connection.close()
        content = bytearray(path.read_bytes())
    if change == "byte":
        for _ in range(rng.randint(1, 30)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        if rng.random() < 0.2:
            del content[rng.randrange(len(content)) :]
    return bytes(content)


FILLED = ("tvm_tiling_about", "fingerprints", "shape_keys", "entries")


def _used(path: Path) -> None:
    """Call everything that reads a database."""
    workload, hardware = tt.GemmWorkload(m=64, n=64, k=64), tt.Hardware.detect()
    refusals = []
    for use in (
        lambda held: list(held.entries()),
        lambda held: held.matches(workload, target=hardware),
        lambda held: held.nearest(workload, target=hardware),
        lambda held: held.config_for(workload, hardware),
        lambda held: held.holdings(),
        lambda held: held.check(),
        lambda held: held.export(path.with_suffix(".jsonl")),
        lambda held: held.add(workload, tt.decide(workload, hardware), 1e-5, target=hardware),
    ):
        try:
            with tt.ShapeDatabase(path, create=False) as held:
                use(held)
        except tt.TilingError as error:
            assert str(error) and "\n" not in str(error), error
            refusals.append(error)
    if refusals:
        raise refusals[0]


KINDS: dict[str, tuple[Callable[[random.Random], bytes], Callable[[Path], object]]] = {
    "program": (program, tt.load),
    "executable": (executable, tt.load),
    "shapes": (shapes, lambda path: files()["shapes"][1](path)),
    "machine": (machine, tt.Hardware.load),
    "text": (words, _assembled),
    "database": (database, _used),
}


def random_value(rng: random.Random) -> Case:
    """A file with an invalid value."""
    kind = rng.choice(sorted(KINDS))
    make, read = KINDS[kind]
    changed = make(rng)
    return Case(f"{kind} {zlib.crc32(changed):08x} {len(changed)}", lambda: check(kind, changed, read))
