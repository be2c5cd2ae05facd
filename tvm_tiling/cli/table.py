"""Tables that fit the terminal: wide columns, narrow columns or one record per row; and tables of a model's operators.

Lines never end in spaces, and COLUMNS sets the width in pipes as well as on terminals.
"""

from __future__ import annotations

import io
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..figures import microseconds
from .output import width

if TYPE_CHECKING:
    from rich.console import JustifyMethod

    from ..model.report import OperatorRecord, Report

NARROW = 110  # below this width, a table's spare columns are left out
WORDS = 16  # least width of a text column whose cells are at least as long
FIGURE = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?[%a-z]{0,2}")
WIDE_GAP, SMALL_GAP = 3, 1  # columns between two of a table
TRAILING = re.compile(r"(?: |\x1b\[[0-9;]*m)+$")  # spaces at the end of a line, among escape codes


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], spare: Collection[str] = ()) -> None:
    """Print a table of plain text cells. Long text is folded, never truncated; numeric columns are right-aligned and
    never folded. `spare`: headings of columns that are left out on narrow terminals."""
    columns = width()
    places = [p for p, heading in enumerate(headings) if columns >= NARROW or heading not in spare]
    shown = [headings[place] for place in places]
    cells = [[str(row[place]) for place in places] for row in rows]
    measured = [_column(heading, [row[number] for row in cells]) for number, heading in enumerate(shown)]
    for gap in (WIDE_GAP, SMALL_GAP):
        if sum(column.least for column in measured) + gap * (len(measured) - 1) <= columns:
            _print_columns(columns, measured, cells, gap)
            return
    _print_records(columns, shown, cells)


@dataclass(frozen=True)
class _Column:
    """A column's least width, below which it would split a number or a word of its heading, and the most it uses."""

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


def _print_columns(width: int, columns: Sequence[_Column], rows: Iterable[Sequence[str]], gap: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, (gap - 1) // 2))
    tight = sum(column.most for column in columns) + gap * (len(columns) - 1) > width
    for column in columns:
        exact = column.least if column.figures and tight else None  # only text columns shrink
        justify: JustifyMethod = "right" if column.figures else "left"
        table.add_column(column.heading, overflow="fold", justify=justify, min_width=column.least, width=exact)
    for row in rows:
        table.add_row(*map(Text, row))
    drawn = Console(file=io.StringIO(), width=width, force_terminal=sys.stdout.isatty())
    with drawn.capture() as captured:
        drawn.print(table)
    for line in captured.get().splitlines():
        print(TRAILING.sub(lambda end: end[0].replace(" ", ""), line))


def _print_records(width: int, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """One line that names the row, then one line per further cell with its heading."""
    named = 1 if headings[0] else 2  # a first column without a heading has the status of the name in the second one
    fold = textwrap.TextWrapper(width, subsequent_indent="    ", break_on_hyphens=False)
    for row in rows:
        print(fold.fill("  ".join(filter(None, row[:named]))))
        for heading, cell in zip(headings[named:], row[named:], strict=True):
            if cell:
                print(fold.fill(f"  {heading}: {cell}"))


def without_zeros(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[list[str], list[list[object]]]:
    """Drop the columns that are 0 or empty in every row."""
    kept = [place for place in range(len(headings)) if not rows or any(row[place] not in (0, "") for row in rows)]
    return [headings[place] for place in kept], [[row[place] for place in kept] for row in rows]


def print_report(report: Report) -> None:
    """Print every operator with its times and share, slowest first, then the totals of the model."""
    print_slowest(report, len(report.operators))
    print()
    for line in report.lines():
        print(line)


def print_slowest(report: Report, most: int) -> None:
    """Print the `most` slowest operators."""
    shown = report.operators[:most]
    _print(shown, ("measured µs", "share"), lambda o: (_us(o.measured_seconds), _percent(report.share(o))))
    if len(report.operators) > most:
        print(f"and {len(report.operators) - most} more")


def print_decided(operators: Iterable[OperatorRecord]) -> None:
    """Print every operator in execution order with its work and predicted time."""
    _print(operators, ("Gop",), lambda o: (f"{o.flops / 1e9:.3g}" if o.flops else "",))


def _print(
    operators: Iterable[OperatorRecord], headings: tuple[str, ...], cells: Callable[[OperatorRecord], tuple[str, ...]]
) -> None:
    """Print a row for each operator: the model's nodes that it computes, and as a detail the kernel that fuses them."""
    from ..model.report import nodes_text

    shown = list(operators)
    named = any(o.nodes for o in shown)
    rows = [
        (
            nodes_text(o.nodes) or o.name,
            o.form or o.kind,
            o.calls,
            _us(o.predicted_seconds),
            *cells(o),
            *([o.name if o.nodes else ""] if named else []),
            o.why,
        )
        for o in shown
    ]
    first, last = ("nodes", ("kernel",)) if named else ("operator", ())
    print_table((first, "algorithm", "calls", "predicted µs", *headings, *last, "why"), rows, spare=("kernel", "why"))


def _us(seconds: float | None) -> str:
    return "" if seconds is None else microseconds(seconds)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
