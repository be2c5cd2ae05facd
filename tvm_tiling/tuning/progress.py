"""Long work as one line of a terminal; of a search: trials, the best cost so far and its share of the roofline."""

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
        self._show(progress.done, progress.of, note)
