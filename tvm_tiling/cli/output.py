"""What commands print for machines, and what they say of what they do meanwhile."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.progress import Progress


JSON = typer.Option(False, "--json", help="Print JSON.")


def print_json(value: Any) -> None:
    """`value` as indented JSON with its keys in the given order."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Says on standard error what is done and for how long, while it is done; nothing where that is not a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with _bar() as bar:
        bar.add_task(what, total=None)
        yield


@contextlib.contextmanager
def stepping(steps: int) -> Iterator[Callable[[str], None]]:
    """What is called at the start of each step with what it does, which a bar on standard error shows, or, where that
    is no terminal, a line."""
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
    """The end of a command's help: command lines, each on a line of its own."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
