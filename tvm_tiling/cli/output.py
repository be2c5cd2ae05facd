"""What commands print on standard output: JSON for machines, tables for people; and what they do meanwhile."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

PIPE_WIDTH = 200  # columns where standard output is no terminal
NARROW = 110  # columns of a terminal that has no room for a table's spare ones
WORDS = 16  # columns that a column of words has at least, if its words are as long
FIGURES = "+-0123456789."


def print_json(value: Any) -> None:
    """`value` as indented JSON with its keys in the given order."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], spare: Collection[str] = ()) -> None:
    """A table of plain text cells. Long cells are folded, never cut; columns of figures stand to the right and are not
    folded. `spare`: headings of columns that narrow terminals are not shown."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    places = [p for p, heading in enumerate(headings) if console.width >= NARROW or heading not in spare]
    cells = [[str(row[place]) for place in places] for row in rows]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column, place in enumerate(places):
        own = [row[column] for row in cells]
        longest = max(map(len, own), default=0)
        figures = bool(own) and all(not cell or (cell[0] in FIGURES and " " not in cell) for cell in own)
        table.add_column(
            headings[place],
            overflow="fold",
            justify="right" if figures else "left",
            min_width=longest if figures else min(longest, WORDS),
        )
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def without_zeros(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[list[str], list[list[object]]]:
    """A table without the columns that are 0 or empty in every row, for terminals."""
    kept = [place for place in range(len(headings)) if not rows or any(row[place] not in (0, "") for row in rows)]
    return [headings[place] for place in kept], [[row[place] for place in kept] for row in rows]


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Says on standard error what is done and for how long, while it is done; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield


def examples(*lines: str) -> str:
    """The end of a command's help: command lines, each on a line of its own."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
