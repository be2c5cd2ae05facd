"""Files that lie in memory, under names in a folder: for LLVM, which ends the process if a disk is full when it writes.

Each name is a link to a file that this process holds open and that no disk has. Linkers and readers follow it as any
other. Where the system makes no such files (they are Linux's), names are those of plain ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ..temporary import temporary_folder


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


def written(write: Callable[[str], None]) -> bytes:
    """What `write` puts into the file whose path it is given."""
    if not hasattr(os, "memfd_create"):
        with temporary_folder() as folder:
            path = folder / "written.o"
            write(str(path))
            return path.read_bytes()
    with os.fdopen(os.memfd_create("written"), "rb") as file:
        write(f"/proc/self/fd/{file.fileno()}")
        return file.read()
