"""Tables that fit the terminal: columns side by side, closer together, or else a record for each row; and those of
a model's operators."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod

    from ..model.report import OperatorRecord, Report

PIPE_WIDTH = 200  # columns where standard output is no terminal
NARROW = 110  # columns of a terminal that has no room for a table's spare ones
WORDS = 16  # columns that a column of words has at least, if its words are as long
FIGURE = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?[%a-z]{0,2}")
WIDE_GAP, SMALL_GAP = 3, 1  # columns between two of a table


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], spare: Collection[str] = ()) -> None:
    """A table of plain text cells. Long cells are folded, never cut; columns of figures stand to the right and are not
    folded. `spare`: headings of columns that narrow terminals are not shown."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    places = [p for p, heading in enumerate(headings) if console.width >= NARROW or heading not in spare]
    shown = [headings[place] for place in places]
    cells = [[str(row[place]) for place in places] for row in rows]
    columns = [_column(heading, [row[number] for row in cells]) for number, heading in enumerate(shown)]
    for gap in (WIDE_GAP, SMALL_GAP):
        if sum(column.least for column in columns) + gap * (len(columns) - 1) <= console.width:
            _print_columns(console, columns, cells, gap)
            return
    _print_records(console, shown, cells)


@dataclass(frozen=True)
class _Column:
    """`least`: below so many characters it would cut a figure or a word of its heading, or fold words too often;
    `most`: as many as it can use."""

    heading: str
    figures: bool
    least: int
    most: int


def _column(heading: str, cells: Sequence[str]) -> _Column:
    figures = any(cells) and all(not cell or FIGURE.fullmatch(cell) for cell in cells)
    longest = max(map(len, cells), default=0)
    word = max(map(len, heading.split()), default=0)
    least = max(word, longest if figures else min(longest, WORDS))
    return _Column(heading, figures, least, max(len(heading), longest))


def _print_columns(console: Console, columns: Sequence[_Column], rows: Iterable[Sequence[str]], gap: int) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, (gap - 1) // 2))
    tight = sum(column.most for column in columns) + gap * (len(columns) - 1) > console.width
    for column in columns:
        exact = column.least if column.figures and tight else None  # words alone give way
        justify: JustifyMethod = "right" if column.figures else "left"
        table.add_column(column.heading, overflow="fold", justify=justify, min_width=column.least, width=exact)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _print_records(console: Console, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """What names a row on a line, below it the rest with their headings."""
    named = 1 if headings[0] else 2  # a first column without a heading says of what kind the second is
    fold = textwrap.TextWrapper(console.width, subsequent_indent="    ", break_on_hyphens=False)
    for row in rows:
        print(fold.fill("  ".join(filter(None, row[:named]))))
        for heading, cell in zip(headings[named:], row[named:], strict=True):
            if cell:
                print(fold.fill(f"  {heading}: {cell}"))


def without_zeros(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[list[str], list[list[object]]]:
    """A table without the columns that are 0 or empty in every row, for terminals."""
    kept = [place for place in range(len(headings)) if not rows or any(row[place] not in (0, "") for row in rows)]
    return [headings[place] for place in kept], [[row[place] for place in kept] for row in rows]


def print_report(report: Report) -> None:
    """Every operator with its times and its share, the slowest first; then what concerns the whole model."""
    print_slowest(report, len(report.operators))
    print()
    for line in report.lines():
        print(line)


def print_slowest(report: Report, most: int) -> None:
    """The operators that take longest."""
    shown = report.operators[:most]
    _print(shown, ("measured us", "share"), lambda o: (_us(o.measured_seconds), _percent(report.share(o))))
    if len(report.operators) > most:
        print(f"and {len(report.operators) - most} more")


def print_decided(operators: Iterable[OperatorRecord]) -> None:
    """Every operator in the order of the model, its work and its predicted time."""
    _print(operators, ("Gop",), lambda o: (f"{o.flops / 1e9:.3g}" if o.flops else "",))


def _print(
    operators: Iterable[OperatorRecord], headings: tuple[str, ...], cells: Callable[[OperatorRecord], tuple[str, ...]]
) -> None:
    from ..model.report import nodes_text

    shown = list(operators)
    named = any(o.nodes for o in shown)
    rows = [
        (
            o.name,
            *([nodes_text(o.nodes)] if named else []),
            o.form or o.kind,
            o.calls,
            _us(o.predicted_seconds),
            *cells(o),
            o.why,
        )
        for o in shown
    ]
    first = ("operator", "nodes") if named else ("operator",)
    print_table((*first, "form", "calls", "predicted us", *headings, "why"), rows, spare=("why",))


def _us(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.0f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
