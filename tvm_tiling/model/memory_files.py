"""In-memory files with names in a directory: for LLVM, which ends the process if the disk is full when it writes.

Each name is a link to an anonymous file that this process holds open. Linkers and readers follow it like any other
link. On systems other than Linux, which have no such files, the names are plain files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ..temporary import temporary_folder


class MemoryFiles:
    """The files are removed at the end of the context; their names disappear with the directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: list[int] = []

    def path(self, name: str) -> str:
        """The path to which a file of this name is to be written."""
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
    """The bytes that `write` writes to the file at the path that it is given."""
    if not hasattr(os, "memfd_create"):
        with temporary_folder() as folder:
            path = folder / "written.o"
            write(str(path))
            return path.read_bytes()
    with os.fdopen(os.memfd_create("written"), "rb") as file:
        write(f"/proc/self/fd/{file.fileno()}")
        return file.read()
