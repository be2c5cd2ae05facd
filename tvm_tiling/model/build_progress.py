"""Progress of a compilation: its notification, and its display on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ..progress_line import ProgressLine


@dataclass(frozen=True)
class BuildProgress:
    """Kernels of a compilation: the number built `of` those known so far."""

    done: int
    of: int


Told: TypeAlias = Callable[[BuildProgress], None]


@contextlib.contextmanager
def shown(progress: Told | bool) -> Iterator[Told | None]:
    """The function to call with the progress: `progress`, or for True a line on standard error, if that is a terminal.
    None for False."""
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        yield None
        return
    with BuildLine() as line:
        yield line


class BuildLine(ProgressLine):
    """The progress line of a compilation."""

    def __init__(self) -> None:
        super().__init__("compiling", "kernels")

    def __call__(self, progress: BuildProgress) -> None:
        """Display it."""
        self._show(progress.done, progress.of)
