"""Output shared by the commands: JSON, checks of output files, progress, the terminal's width, examples in help."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import typer

from ..atomic_file import refuse_unwritable
from ..errors import WorkloadError

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


def check_outputs(outputs: Iterable[str | os.PathLike[str] | None], inputs: Iterable[str]) -> None:
    """Check the files that a command writes before it does any work; empty names are skipped.

    Raises OSError for a file that cannot be written, WorkloadError for one that the command also reads or that is given
    for two outputs: writing it would replace an input. `inputs` may contain words that are not files.
    """
    read = {os.path.realpath(name) for name in inputs if name and "\0" not in name}
    written: set[str] = set()
    for path in [output for output in outputs if output]:
        refuse_unwritable(path)
        place = os.path.realpath(path)
        if place in read:
            raise WorkloadError(f"{path} is an input of this command; expected another path for the output")
        if place in written:
            raise WorkloadError(f"{path} is given for two outputs; expected a path for each")
        written.add(place)


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
