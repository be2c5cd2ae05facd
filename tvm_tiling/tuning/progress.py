"""Progress of long operations as one line of a terminal; for a search: trials, the best cost so far and its fraction of
the roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from ..progress_line import ProgressLine
from .outcome import cost_text
from .session import Progress

if TYPE_CHECKING:
    from .shapes.generate import GenerationProgress


class Bar(ProgressLine):
    """The progress of a search."""

    def __init__(self, title: str, file: TextIO | None = None) -> None:
        super().__init__(title, file=file)

    def __call__(self, progress: Progress) -> None:
        """Show the state of the search."""
        self._show(progress.done, progress.of, note(progress))

    def title(self, title: str) -> None:
        """Show what is being searched."""
        self._rich.update(self._task, description=title)


def note(progress: Progress) -> str:
    """Return the best cost so far, its fraction of the roofline, and the number of failures."""
    parts = []
    if progress.best is not None:
        parts.append(f"best {cost_text(progress.best, progress.unit)}")
        if progress.least:
            parts.append(f"{progress.least / progress.best:.0%} of the roofline")
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    return ", ".join(parts)


class GenerationBar(ProgressLine):
    """Shapes done, measurements, boundary shapes and the current shape, on standard error if it is a terminal."""

    def __init__(self) -> None:
        super().__init__("generating", "shapes")

    def __call__(self, progress: GenerationProgress) -> None:
        """Show the progress."""
        note = f"{progress.measured} measured, {progress.boundary} boundary shapes; {progress.shape}"
        self._show(progress.done, progress.of, note)
