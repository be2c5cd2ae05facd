"""Files that lie in memory, under names in a folder: for LLVM, which ends the process if a disk is full when it writes.

Each name is a link to a file that this process holds open and that no disk has. Linkers and readers follow it as any
other. Where the system makes no such files (they are Linux's), names are those of plain ones.
"""

from __future__ import annotations

import os
from pathlib import Path


class MemoryFiles:
    """The files are gone when the context is left; their names go with the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: list[int] = []

    def path(self, name: str) -> str:
        """Where a file of that name is to be written."""
        path = self._folder / name
        if hasattr(os, "memfd_create"):
            self._open.append(os.memfd_create(name))
            path.symlink_to(f"/proc/{os.getpid()}/fd/{self._open[-1]}")
        return str(path)

    def __enter__(self) -> MemoryFiles:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            os.close(self._open.pop())
