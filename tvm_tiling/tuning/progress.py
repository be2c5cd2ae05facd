"""A search under way, as one line of a terminal: trials, the best cost so far and its share of the roofline."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TextIO

from .outcome import cost_text
from .session import Progress


class Bar:
    """A progress bar on standard error, or on another file; none where that is no terminal."""

    def __init__(self, title: str, file: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        console = Console(file=file or sys.stderr)
        self._rich = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._rich.add_task(title, total=None, note="")

    def __call__(self, progress: Progress) -> None:
        """Show the state of the search."""
        self._rich.update(self._task, total=progress.of, completed=progress.done, note=note(progress))

    def title(self, title: str) -> None:
        """Say what is searched now."""
        self._rich.update(self._task, description=title)

    def __enter__(self) -> Bar:
        self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rich.stop()


def note(progress: Progress) -> str:
    """The best so far, its share of the roofline, and how many failed."""
    parts = []
    if progress.best is not None:
        parts.append(f"best {cost_text(progress.best, progress.unit)}")
        if progress.least:
            parts.append(f"{progress.least / progress.best:.0%} of the roofline")
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    return ", ".join(parts)
