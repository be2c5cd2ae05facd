"""What commands print on standard output: JSON for machines, tables for people; and what they do meanwhile."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

PIPE_WIDTH = 200  # columns where standard output is no terminal


def print_json(value: Any) -> None:
    """`value` as indented JSON with its keys in the given order."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table of plain text cells; long cells are folded, never cut. Columns of figures stand to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[str(cell) for cell in row] for row in rows]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for place, heading in enumerate(headings):
        figures = bool(cells) and all(_is_figure(row[place]) for row in cells)
        longest = max((len(row[place]) for row in cells), default=0)
        table.add_column(
            heading, overflow="fold", justify="right" if figures else "left", no_wrap=figures and longest < FIGURE_WIDTH
        )
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


FIGURE_WIDTH = 16  # columns of the longest figure that is kept on one line


def _is_figure(cell: str) -> bool:
    return not cell or cell == "-" or (cell.strip("+-").replace(",", "")[:1].isdigit() and " " not in cell.strip())


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Says on standard error what is done and for how long, while it is done; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield
