"""Progress of a long operation, on one line of a terminal."""

from __future__ import annotations

import sys
from typing import TextIO, TypeVar

Shown = TypeVar("Shown", bound="ProgressLine")


class ProgressLine:
    """A progress bar with a counter and a note, on standard error or another file; disabled if that is not a terminal.
    `counted` is the unit of the counter, as in "3/10 shapes"."""

    def __init__(self, title: str, counted: str = "", file: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        console = Console(file=file or sys.stderr)
        self._rich = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._counted = counted
        self._task = self._rich.add_task(title, total=None, count="", note="")

    def _show(self, completed: int, total: int | None, note: str = "") -> None:
        """Redraw. The counter stays empty until the total is known."""
        count = "" if total is None else f"{completed}/{total} {self._counted}".rstrip()
        self._rich.update(self._task, total=total, completed=completed, count=count, note=note)

    def __enter__(self: Shown) -> Shown:
        self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rich.stop()
