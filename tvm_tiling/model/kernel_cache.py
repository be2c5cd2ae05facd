"""Kernel cache by content, next to the compiled models: kernels that another model has compiled are reused.

A kernel's file contains the SHA-256 of an object file, and the object file. The rules of cache.py apply: a file that
cannot be read, or that others may have written, counts as missing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import threading
from pathlib import Path

from ..atomic_file import atomic_file
from ..errors import ModelFormatError
from ..runtime.native_file import open_native
from .cache_folder import KERNEL_SUFFIX, CacheFolder
from .package_versions import sources, versions

_DIGEST_BYTES = 32


@functools.lru_cache(maxsize=1)
def _stamp() -> str:
    """What changes with the compiler: the versions of packages, and this package's files."""
    return json.dumps([versions(), sources()])


class KernelCache:
    """The kernels in `place`; with None, an empty cache. May be used from several threads."""

    def __init__(self, place: CacheFolder | None) -> None:
        usable = place is not None and place.limit and not place.refused()
        self._place = place if usable else None
        self._stamp = _stamp()
        self._used: list[Path] = []
        self._lock = threading.Lock()

    @property
    def keeps(self) -> bool:
        """Return whether stored kernels can be retrieved."""
        return self._place is not None

    def key(self, content: str) -> str:
        """64 hexadecimal digits that change with `content` and with the compiler."""
        return hashlib.sha256(f"{self._stamp} {content}".encode()).hexdigest()

    def get(self, key: str) -> bytes | None:
        """The object file for this key, or None."""
        if self._place is None:
            return None
        path = self._path(self._place, key)
        if not path.is_file():
            return None
        try:
            with open_native(path) as file:
                digest, content = file.read(_DIGEST_BYTES), file.read()
        except (ModelFormatError, OSError):
            return None
        if hashlib.sha256(content).digest() != digest:
            return None
        self._note(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Store an object file; errors are ignored."""
        if self._place is None:
            return
        path = self._path(self._place, key)
        with contextlib.suppress(OSError):
            self._place.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic_file(path) as file:
                file.write(hashlib.sha256(content).digest() + content)
            self._note(path)

    def make_space(self) -> None:
        """Record the uses of the kernels retrieved here, and keep the directory within its limit."""
        if self._place is not None:
            self._place.used(*self._used)
            self._place.make_space()

    def _note(self, path: Path) -> None:
        with self._lock:
            self._used.append(path)

    @staticmethod
    def _path(place: CacheFolder, key: str) -> Path:
        return place.path / f"{key}{KERNEL_SUFFIX}"
