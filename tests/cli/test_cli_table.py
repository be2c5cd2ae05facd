"""Tables fit the terminal at any width, and truncate nothing."""

from __future__ import annotations

import re
import sys

import pytest

from tvm_tiling.cli.table import print_table

HEADINGS = ("engine", "instructions", "busy", "waits: data", "waits: dispatch", "idle", "why")
WHY = "rows 1019 elements apart do not share more cache sets than there are ways"
ROWS = [("load_a", 10, 102400, 0, 12, 1600, ""), ("matrix", 8, 1056, 637, 678, 3, WHY)]


@pytest.fixture
def printed(capsys, monkeypatch):
    def at(width, headings=HEADINGS, rows=ROWS):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(width))
        print_table(headings, rows)
        return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)

    return at


@pytest.mark.parametrize("width", [160, 100, 80, 72, 60, 40, 24])
def test_nothing_is_wider_than_the_terminal_and_nothing_is_config(printed, width):
    out = printed(width)
    assert max(map(len, out.splitlines())) <= width
    figures = [str(cell) for row in ROWS for cell in row if isinstance(cell, int)]
    words = [word for text in (*HEADINGS[1:], "load_a", "matrix", WHY) for word in text.split()]
    assert [cell for cell in (*figures, *words) if cell not in out] == []


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [160, 80, 40])
def test_columns_is_honoured_in_pipes_and_no_line_ends_in_spaces(capsys, monkeypatch, terminal, width):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(HEADINGS, ROWS)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= width and not any(line != line.rstrip() for line in lines)


def test_columns_give_way_to_records(printed):
    assert printed(80).splitlines()[0].split() != ["load_a"]
    first, *rest = printed(40).splitlines()
    assert first == "load_a" and rest[:2] == ["  instructions: 10", "  busy: 102400"]


def test_a_record_is_named_by_its_kind_and_what_it_is(printed):
    out = printed(30, ("", "check", "found"), [("ok", "apache-tvm-ffi", "0.1.14.post1 beside others")])
    assert out.splitlines()[0] == "ok  apache-tvm-ffi"
