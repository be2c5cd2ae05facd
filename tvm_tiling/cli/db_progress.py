"""The progress bar of `tvm-tiling db generate`."""

from __future__ import annotations

from ..tuning.progress import ProgressLine
from ..tuning.shapes.generate import GenerationProgress


class GenerationBar(ProgressLine):
    """Shapes done, measurements, boundary shapes and the shape under way; on standard error where it is a terminal."""

    def __init__(self) -> None:
        super().__init__("generating", "shapes")

    def __call__(self, progress: GenerationProgress) -> None:
        """Show how far it is."""
        note = f"{progress.measured} measured, {progress.boundary} boundary shapes; {progress.shape}"
        self._rich.update(self._task, total=progress.of, completed=progress.done, note=note)
