"""Long work as one line of a terminal; of a search: trials, the best cost so far and its share of the roofline."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO, TypeVar

from .outcome import cost_text
from .session import Progress

if TYPE_CHECKING:
    from .shapes.generate import GenerationProgress

Shown = TypeVar("Shown", bound="ProgressLine")


class ProgressLine:
    """How much of a long piece of work is done, with a note, on standard error or another file; none where that is no
    terminal. `counted` is what is counted, as a word behind the numbers."""

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


class Bar(ProgressLine):
    """The progress of a search."""

    def __init__(self, title: str, file: TextIO | None = None) -> None:
        super().__init__(title, file=file)

    def __call__(self, progress: Progress) -> None:
        """Show the state of the search."""
        self._rich.update(self._task, total=progress.of, completed=progress.done, note=note(progress))

    def title(self, title: str) -> None:
        """Say what is searched now."""
        self._rich.update(self._task, description=title)


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


class GenerationBar(ProgressLine):
    """Shapes done, measurements, boundary shapes and the shape under way; on standard error where it is a terminal."""

    def __init__(self) -> None:
        super().__init__("generating", "shapes")

    def __call__(self, progress: GenerationProgress) -> None:
        """Show how far it is."""
        note = f"{progress.measured} measured, {progress.boundary} boundary shapes; {progress.shape}"
        self._rich.update(self._task, total=progress.of, completed=progress.done, note=note)
