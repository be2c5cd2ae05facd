"""Memory for constants: separate pages, or pages of a file.

Constants are the largest part of a model, and most are garbage as soon as they are packed. In the C library's heap they
would leave holes that no later constant fits into: once an mmap-ed allocation is freed, the library raises its mmap
threshold, up to 32 MiB. So constants of at least LARGE bytes have separate pages, which are returned to the system with
the last array that uses them.

File pages are read on demand, dropped when memory is short, and shared by all processes that map the file. They are
mapped privately: only the process itself sees its writes. A process that accesses a page removed from the file gets
SIGBUS. So files are mapped only if no one but this user and root can truncate them (native_file.py), on local file
systems; others are read.
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
# Linux's magic numbers of file systems whose files another computer can remove or truncate: NFS, SMB, CIFS, SMB 2,
# FUSE, 9P, Ceph, AFS, Coda, Lustre, GFS 2, OCFS 2.
_REMOTE = frozenset(
    [
        *(0x6969, 0x517B, 0xFF534D42, 0xFE534D42, 0x65735546, 0x01021997),
        *(0x00C36400, 0x5346414F, 0x73757245, 0x0BD00BD0, 0x01161970, 0x7461636F),
    ]
)
_STATFS_BYTES = 256  # larger than struct statfs on any system


def zeros(size: int) -> np.ndarray:
    """`size` zero bytes, aligned to ALIGNMENT. LARGE ones use no memory until written. Raises MemoryError if they are
    not available."""
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
        with contextlib.suppress(OSError):  # a kernel without huge pages
            pages.madvise(advice)  # as NumPy does for large arrays
    return pages


def trim() -> None:
    """Return free memory of the C library's heap to the system: LLVM leaves tens of MiB there, in fragments. Takes some
    milliseconds. Does nothing if the library has no such function."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def may_be_mapped(file: BinaryIO) -> bool:
    """Return whether no one but this user, root and their programs can remove pages from an open file."""
    try:
        handle = file.fileno()
    except OSError:  # an in-memory file, io.UnsupportedOperation
        return False
    return not foreign(os.fstat(handle)) and sys.platform.startswith("linux") and _file_system(handle) not in _REMOTE


def _file_system(handle: int) -> int | None:
    """Linux's magic number of a file's file system; that of a remote one if unknown."""
    buffer = (ctypes.c_long * (_STATFS_BYTES // ctypes.sizeof(ctypes.c_long)))()
    if ctypes.CDLL(None).fstatfs(handle, ctypes.byref(buffer)) != 0:
        return min(_REMOTE)
    return int(buffer[0]) & 0xFFFFFFFF


def mapped(file: BinaryIO, start: int, size: int) -> np.ndarray:
    """`size` bytes of a file from byte `start`, in bounds, as mapped pages. Raises OSError if they cannot be mapped."""
    if not size:
        return zeros(0)
    first = start - start % mmap.ALLOCATIONGRANULARITY
    pages = mmap.mmap(file.fileno(), start - first + size, access=mmap.ACCESS_COPY, offset=first)
    return np.frombuffer(pages, np.uint8, size, start - first)


class Contents:
    """The bytes of a file, of which parts are read as arrays."""

    def __init__(self, content: bytes | bytearray | memoryview) -> None:
        self._content: memoryview | None = memoryview(content).cast("B")
        self.size = self._content.nbytes

    @property
    def content(self) -> memoryview:
        """The whole content. Raises OSError if it cannot be read."""
        assert self._content is not None
        return self._content

    def part(self, start: int, size: int) -> np.ndarray:
        """`size` bytes from `start`, in bounds. Raises OSError if they cannot be read."""
        return np.frombuffer(self.content, np.uint8, size, start)


class FileContents(Contents):
    """The bytes of a file on disk, mapped if allowed: the pages of a part are then dropped with the last array that
    uses it, and read again when needed."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises OSError if it cannot be opened."""
        self._path, self._content = path, None
        self._pages: mmap.mmap | None = None
        with path.open("rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            if self.size and may_be_mapped(file):
                # a file system without mappings, or not enough address space
                with contextlib.suppress(OSError, ValueError):
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
                raise OSError(f"{self._path} was truncated while it was read")
        return held


class _Part:
    """The object kept alive by arrays on a part of a file, and by all their views."""

    def __init__(self, held: np.ndarray, pages: mmap.mmap, start: int) -> None:
        self._held, self._pages, self._start = held, pages, start

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._held.__array_interface__

    def __del__(self) -> None:
        first = self._start - self._start % mmap.PAGESIZE
        # Nobody wrote to them, so reading them again gives the same bytes.
        self._pages.madvise(mmap.MADV_DONTNEED, first, self._start - first + self._held.nbytes)
