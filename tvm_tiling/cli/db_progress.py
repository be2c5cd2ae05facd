"""The progress bar of `tvm-tiling db generate`."""

from __future__ import annotations

import sys
from types import TracebackType

from ..tuning.shapes.generate import GenerationProgress


class GenerationBar:
    """Shapes done, measurements, boundary shapes and the shape under way; on standard error where it is a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(file=sys.stderr)
        self._rich = Progress(
            TextColumn("generating"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} shapes"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._rich.add_task("generating", total=None, note="")

    def __call__(self, progress: GenerationProgress) -> None:
        """Show how far it is."""
        note = f"{progress.measured} measured, {progress.boundary} boundary shapes; {progress.shape}"
        self._rich.update(self._task, total=progress.of, completed=progress.done, note=note)

    def __enter__(self) -> GenerationBar:
        self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rich.stop()
