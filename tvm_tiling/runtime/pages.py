"""Memory for constants: pages of its own, or those of a file.

Constants are the largest part of a model, and most are garbage as soon as they are packed. In the heap of the C library
they would leave holes that no later constant fits in: it raises the size from which it maps memory for each allocation
to 32 MiB once such an allocation was freed. So constants from LARGE bytes on have pages of their own, which go back to
the system with the last array on them.

Pages of a file are read by the system when they are used, it drops them when memory is short, and all processes that
map the file share them. They are mapped privately: what a process writes to them it alone sees. A process that reads a
page which the file lost ends by SIGBUS. So files are mapped where only this user and root can cut them short
(native_file.py), on file systems of this computer; others are read.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .arrays import ALIGNMENT
from .native_file import foreign

LARGE = 1 << 18  # bytes
# Linux's numbers of file systems whose files another computer can remove or cut short: NFS, SMB, CIFS, SMB 2, FUSE, 9P,
# Ceph, AFS, Coda, Lustre, GFS 2, OCFS 2.
_REMOTE = frozenset(
    [
        *(0x6969, 0x517B, 0xFF534D42, 0xFE534D42, 0x65735546, 0x01021997),
        *(0x00C36400, 0x5346414F, 0x73757245, 0x0BD00BD0, 0x01161970, 0x7461636F),
    ]
)
_STATFS_BYTES = 256  # more than any system's struct statfs


def zeros(size: int) -> np.ndarray:
    """`size` bytes that start at a multiple of ALIGNMENT. LARGE ones take no memory before they are written.
    MemoryError where they are not to be had."""
    if size >= LARGE:
        return np.frombuffer(_anonymous(size), np.uint8)
    space = np.zeros(size + ALIGNMENT, np.uint8)
    start = -space.ctypes.data % ALIGNMENT
    return space[start : start + size]


def _anonymous(size: int) -> mmap.mmap:
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes of memory: {error.strerror}") from None
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is not None:
        with contextlib.suppress(OSError):  # a kernel without them
            pages.madvise(advice)  # as NumPy has it for large arrays
    return pages


def trim() -> None:
    """Give the system back what the heap of the C library has free: LLVM leaves tens of MiB there, in pieces that
    nothing else needs. It takes some milliseconds. Nothing where the library has no such function."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def may_be_mapped(file: BinaryIO) -> bool:
    """Whether nobody but this user, root and programs of theirs can take pages from an open file."""
    try:
        handle = file.fileno()
    except OSError:  # a file in memory, io.UnsupportedOperation
        return False
    return not foreign(os.fstat(handle)) and sys.platform.startswith("linux") and _file_system(handle) not in _REMOTE


def _file_system(handle: int) -> int | None:
    """Linux's number of the file system that a file is on; one of a remote one where it cannot be told."""
    told = (ctypes.c_long * (_STATFS_BYTES // ctypes.sizeof(ctypes.c_long)))()
    if ctypes.CDLL(None).fstatfs(handle, ctypes.byref(told)) != 0:
        return min(_REMOTE)
    return int(told[0]) & 0xFFFFFFFF


def mapped(file: BinaryIO, start: int, size: int) -> np.ndarray:
    """`size` bytes of a file from byte `start` on, which it has, as its pages. OSError where they cannot be mapped."""
    if not size:
        return zeros(0)
    first = start - start % mmap.ALLOCATIONGRANULARITY
    pages = mmap.mmap(file.fileno(), start - first + size, access=mmap.ACCESS_COPY, offset=first)
    return np.frombuffer(pages, np.uint8, size, start - first)


class Contents:
    """The bytes of a file, of which parts are taken as arrays."""

    def __init__(self, content: bytes | bytearray | memoryview) -> None:
        self._content: memoryview | None = memoryview(content).cast("B")
        self.size = self._content.nbytes

    @property
    def content(self) -> memoryview:
        """All of it. OSError where it cannot be read."""
        assert self._content is not None
        return self._content

    def part(self, start: int, size: int) -> np.ndarray:
        """`size` bytes from `start` on, which the file has. OSError where they cannot be read."""
        return np.frombuffer(self.content, np.uint8, size, start)


class FileContents(Contents):
    """Those of a file of the system, mapped where that may be: then the pages of a part are dropped with the last array
    on it, and read again where another part needs them."""

    def __init__(self, path: Path) -> None:
        """OSError where it cannot be opened."""
        self._path, self._content = path, None
        self._pages: mmap.mmap | None = None
        with path.open("rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            if self.size and may_be_mapped(file):
                with contextlib.suppress(OSError, ValueError):  # a file system without mappings, or no room for one
                    self._pages = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_COPY)
                    self._content = memoryview(self._pages).toreadonly()

    @property
    def content(self) -> memoryview:
        if self._content is None:
            self._content = self._read(0, self.size).data.toreadonly()
        return self._content

    def part(self, start: int, size: int) -> np.ndarray:
        if self._pages is None or not size:
            return self._read(start, size)
        return np.asarray(_Part(np.frombuffer(self._pages, np.uint8, size, start), self._pages, start))

    def _read(self, start: int, size: int) -> np.ndarray:
        held = zeros(size)
        with self._path.open("rb") as file:
            file.seek(start)
            if file.readinto(held.data) != size:
                raise OSError(f"{self._path} became shorter while it was read")
        return held


class _Part:
    """What arrays on a part of a file keep alive, however they are viewed."""

    def __init__(self, held: np.ndarray, pages: mmap.mmap, start: int) -> None:
        self._held, self._pages, self._start = held, pages, start

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._held.__array_interface__

    def __del__(self) -> None:
        first = self._start - self._start % mmap.PAGESIZE
        # Nobody wrote to them: what is read again is the same.
        self._pages.madvise(mmap.MADV_DONTNEED, first, self._start - first + self._held.nbytes)
