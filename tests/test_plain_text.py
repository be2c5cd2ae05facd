"""Untrusted JSON and TOML: infinite nesting, oversized numbers, wrong types, non-text bytes."""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib

import pytest

import tvm_tiling as tt
from tvm_tiling.errors import DatabaseError, HardwareError, ProgramError, TilingError
from tvm_tiling.hardware.checks import is_finite
from tvm_tiling.plain_text import TextError, plain_json, plain_toml

DEEP = 100_000
HARDWARE = tt.Hardware.load("vta").to_toml()


def said(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert text and "\n" not in text and len(text) < 1000
    return text


@pytest.mark.parametrize(
    "text",
    [
        "[" * DEEP,
        "[" * DEEP + "]" * DEEP,
        '{"a":' * DEEP + "1" + "}" * DEEP,
        "1" + "0" * 30,
        "-" + "9" * 5000,
        "1e400",
        "-1e400",
        "NaN",
        "[Infinity]",
        "[-Infinity]",
        "",
        "{",
        "nul",
        b"\xff\xfe\xfd",
        b'"\xff"',
        None,
        5,
    ],
    ids=lambda text: repr(text)[:20],
)
def test_what_is_not_json_is_one_sentence(text):
    with pytest.raises(TextError) as refused:
        plain_json(text)
    said(refused)
    assert isinstance(refused.value, TilingError) and isinstance(refused.value, ValueError)


def test_json_is_read_as_python_reads_it():
    plain = {"a": [1, -2, 1.5, 1e-320, True, None, "é\n", 2**63 - 1, -(2**63), 2**64 - 1], "b": {"c": []}}
    assert plain_json(json.dumps(plain)) == plain == plain_json(json.dumps(plain).encode())


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * DEEP + "]" * DEEP,
        "a = " + "{b = " * DEEP + "1" + "}" * DEEP,
        "a = " + "1" * 5000,
        "a = 0x" + "f" * 5000,
        "a = [[1, {b = 9223372036854775808}]]",
        "a",
    ],
    ids=lambda text: text[:20],
)
def test_what_is_not_toml_is_one_sentence(text, tmp_path):
    with pytest.raises(TextError) as refused:
        plain_toml(text)
    said(refused)
    path = tmp_path / "machine.toml"
    path.write_text(text)
    with pytest.raises(HardwareError) as refused:
        tt.Hardware.load(path)
    assert said(refused).startswith(f"{path}:")


@pytest.mark.parametrize("value", ["1" + "0" * 30, "1e400", "inf", "nan", "-1", "true", '"1"', "[]", "1979-05-27"])
def test_numbers_of_machines_that_are_none(value, tmp_path):
    lines = [f"clock_mhz = {value}" if line.startswith("clock_mhz") else line for line in HARDWARE.splitlines()]
    assert f"clock_mhz = {value}" in lines
    path = tmp_path / "machine.toml"
    path.write_text("\n".join(lines))
    with pytest.raises(HardwareError) as refused:
        tt.Hardware.load(path)
    said(refused)


def test_numbers_that_floating_point_does_not_hold():
    assert is_finite(10**300) and is_finite(1.5) and not is_finite(10**400) and not is_finite(True)
    assert not any(map(is_finite, (float("inf"), float("nan"), "1", None)))


# ---- files that hold it ----------------------------------------------------------------------------------------------


def test_headers_of_programs(tmp_path):
    path = tmp_path / "p.vsim"
    for text in (b"[" * DEEP, b"1" * 5000, b'{"instructions": Infinity}'):
        length = struct.pack("<Q", len(text))
        path.write_bytes(b"VSIMPROG" + struct.pack("<II", 1, zlib.crc32(text, zlib.crc32(length))) + length + text)
        with pytest.raises(ProgramError) as refused:
            tt.load(path)
        assert said(refused).startswith(str(path))


@pytest.fixture
def shapes(tmp_path):
    """Return (a database with one entry, its export)."""
    path, lines = tmp_path / "s.db", tmp_path / "s.jsonl"
    workload = tt.GemmWorkload(m=64, n=64, k=64)
    with tt.ShapeDatabase(path) as database:
        database.add(workload, tt.decide(workload, tt.Hardware.detect()), 1e-4, target="llvm")
        database.export(lines)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    return path, lines


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("shape_keys", "record", "[" * DEEP),
        ("shape_keys", "padding", "1" * 5000),
        ("fingerprints", "record", '{"a":' * DEEP),
        ("fingerprints", "record", "NaN"),
        ("entries", "cut", "[" * DEEP),
        ("entries", "rate", "no number"),
        ("entries", "rate", "x" * 100_000),
        ("entries", "cost", "no number"),
        ("entries", "shape", "9" * 30 + "x1x1x1"),
    ],
)
def test_columns_of_databases(shapes, table, column, value):
    path, _ = shapes
    with sqlite3.connect(path) as connection:
        connection.execute(f'UPDATE "{table}" SET "{column}" = ?', (value,))
    connection.close()
    with tt.ShapeDatabase(path, create=False) as database:
        uses = (
            lambda: list(database.entries()),
            database.holdings,
            lambda: database.matches(tt.GemmWorkload(m=64, n=64, k=64), target="llvm"),
        )
        assert any([_refused(use) for use in uses])
        try:
            assert database.check().problems
        except DatabaseError as error:
            assert "\n" not in str(error)


def _refused(use) -> bool:
    try:
        use()
    except TilingError as error:
        assert "\n" not in str(error)
        return True
    return False


def test_text_of_databases_that_is_not_utf8(shapes):
    path, _ = shapes
    content = path.read_bytes()
    assert content.count(b"tvm_tiling_about") > 0
    path.write_bytes(content.replace(b"CREATE TABLE entries", b"CREATE TABLE entrie\xff"))
    with pytest.raises(DatabaseError) as refused, tt.ShapeDatabase(path, create=False) as database:
        list(database.entries())
    assert str(path) in said(refused)


@pytest.mark.parametrize(
    "value", ["[" * DEEP, "1" + "0" * 30, "1e400", "NaN", "-1", "true", '"1"', "{}"], ids=lambda v: v[:8]
)
def test_lines_of_exported_shapes(shapes, value, tmp_path):
    _, lines = shapes
    text = lines.read_text()
    assert '"cost":0.0001' in text
    lines.write_text(text.replace('"cost":0.0001', f'"cost":{value}'))
    with tt.ShapeDatabase(tmp_path / "other.db") as database, pytest.raises(DatabaseError) as refused:
        database.import_(lines)
    assert f"{lines}, line 3" in said(refused)
