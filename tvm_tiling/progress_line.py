"""Progress of long-running work as one line of a terminal."""

from __future__ import annotations

import sys
from typing import TextIO, TypeVar

Shown = TypeVar("Shown", bound="ProgressLine")


class ProgressLine:
    """The progress of long-running work, with a note, on standard error or another file; nothing if that is not a
    terminal. `counted` is the unit, a word after the numbers."""

    def __init__(self, title: str, counted: str = "", file: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        console = Console(file=file or sys.stderr)
        self._rich = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn(f"{{task.completed}}/{{task.total}} {counted}".rstrip()),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._rich.add_task(title, total=None, note="")

    def __enter__(self: Shown) -> Shown:
        self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rich.stop()
