"""Output shared by the commands: JSON, progress on standard error, the width of the terminal, examples in help."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.progress import Progress


JSON = typer.Option(False, "--json", help="Print JSON.")
PIPE_WIDTH = 200  # columns where standard output is not a terminal and COLUMNS is not set
LEAST_WIDTH = 20


def width() -> int:
    """Columns to print in: COLUMNS if it is set, else the terminal's width, else PIPE_WIDTH for pipes and files."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdigit() and int(stated):
        return max(LEAST_WIDTH, int(stated))
    return max(LEAST_WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else PIPE_WIDTH


def print_json(value: Any) -> None:
    """Print `value` as indented JSON, keys in the given order."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Show a task and its elapsed time on standard error while it runs; nothing if that is not a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with _bar() as bar:
        bar.add_task(what, total=None)
        yield


@contextlib.contextmanager
def stepping(steps: int) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with a description at the start of each step. A terminal shows a progress bar on
    standard error; otherwise each step prints a line there."""
    if not sys.stderr.isatty():
        yield lambda text: print(text, file=sys.stderr)
        return
    with _bar() as bar:
        task = bar.add_task("", total=steps, completed=-1)
        yield lambda text: bar.update(task, description=text, advance=1)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def examples(*lines: str) -> str:
    """The epilog of a command's help: one example per line."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
