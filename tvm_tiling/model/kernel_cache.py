"""Kernels kept by content, beside the compiled models: those that another model has compiled are not compiled again.

A kernel's file holds the SHA-256 of an object of machine code, and the object. What is said of the files of models in
cache.py holds of these: one that cannot be read, or that others may have written, counts as absent.
"""

from __future__ import annotations

import contextlib
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


class KernelCache:
    """The kernels in `place`; with None, a cache that holds nothing. May be used from several threads."""

    def __init__(self, place: CacheFolder | None) -> None:
        usable = place is not None and place.limit and not place.refused()
        self._place = place if usable else None
        self._stamp = json.dumps([versions(), sources()])
        self._used: list[Path] = []
        self._lock = threading.Lock()

    @property
    def keeps(self) -> bool:
        """Whether what is put here may be got again."""
        return self._place is not None

    def key(self, content: str) -> str:
        """64 hexadecimal digits that change with `content` and with what compiles it."""
        return hashlib.sha256(f"{self._stamp} {content}".encode()).hexdigest()

    def get(self, key: str) -> bytes | None:
        """The object of that key, or None."""
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
        """Keep an object; where that is not possible, do without."""
        if self._place is None:
            return
        path = self._path(self._place, key)
        with contextlib.suppress(OSError):
            self._place.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic_file(path) as file:
                file.write(hashlib.sha256(content).digest() + content)
            self._note(path)

    def make_space(self) -> None:
        """Note the uses of this object's kernels, and keep the folder within its limit."""
        if self._place is not None:
            self._place.used(*self._used)
            self._place.make_space()

    def _note(self, path: Path) -> None:
        with self._lock:
            self._used.append(path)

    @staticmethod
    def _path(place: CacheFolder, key: str) -> Path:
        return place.path / f"{key}{KERNEL_SUFFIX}"
