"""The directory of the compile cache: its path, its files, and its size limit.

The least recently used file is evicted first. A use is recorded as the file's modification time, always later than that
of any other file in the directory, so that a clock that was set back does not make the latest use the oldest.

A process killed while writing leaves a partial file, whose lock the system releases; so partial files without a lock
are removed, once they are older than the time between the creation of a file and its lock.

Reading a directory of 25,000 files takes a tenth of a second. A process does it once a minute at most, and counts what
it writes meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from ..errors import TilingError
from ..runtime.native_file import foreign_folder
from ..user_folder import NO_HOME, is_unreadable, user_folder

SUFFIX = ".tar"
ASKED = ".asked.json"
KERNEL_SUFFIX = ".kernel"
LIMIT = 4 << 30  # bytes
NOWHERE = Path(os.devnull) / "tvm-tiling"  # a path that never exists: the cache of a user without a home directory
PARTIAL_SECONDS = 60.0
SCAN_SECONDS = 60.0  # how long the contents are taken to be those of the last scan and what this process has used since
_OURS = re.compile(rf"[0-9a-f]{{64}}({'|'.join(map(re.escape, (SUFFIX, ASKED, KERNEL_SUFFIX)))})")
_PARTIAL = re.compile(rf"\.{_OURS.pattern}\.[a-z0-9_]{{8}}")  # as named by whole_file
_SIZE = re.compile(r"(\d+)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def cache_folder() -> Path | None:
    """The directory of compiled models: TVM_TILING_CACHE, or tvm-tiling in the user's cache directory; None if the user
    has no home directory."""
    if given := os.environ.get("TVM_TILING_CACHE"):
        return Path(given)
    return user_folder("XDG_CACHE_HOME", ".cache")


def cache_limit() -> int:
    """The maximum size of the cache in bytes: TVM_TILING_CACHE_SIZE, such as 500M or 2G, or 4 GiB. Raises TilingError
    for an invalid size."""
    given = os.environ.get("TVM_TILING_CACHE_SIZE", "").strip()
    if not given:
        return LIMIT
    if (found := _SIZE.fullmatch(given)) is None:
        raise TilingError(f"TVM_TILING_CACHE_SIZE = {given!r}; expected bytes, such as 500000000, 500M or 2G, or 0")
    return int(found[1]) << 10 * " KMGT".index(found[2].upper() or " ")


@dataclass(frozen=True)
class Held:
    """The contents of a cache: compiled models, kernels, and total bytes."""

    models: int
    kernels: int
    bytes: int


@dataclass
class _Scan:
    """What a scan of a directory found: total bytes, the latest modification time, and the moment of the scan."""

    bytes: int
    latest: int
    at: float


_SCANS: dict[Path, _Scan] = {}


class CacheFolder:
    """A directory of files by key, with at most `limit` bytes. Other files in it are ignored."""

    def __init__(self, path: Path | None = None, limit: int | None = None) -> None:
        self.path = path or cache_folder() or NOWHERE
        self.limit = cache_limit() if limit is None else limit

    def refused(self) -> str:
        """Why this directory is not used: it does not exist, this user cannot read it, or others may write to it.
        Empty if it is used."""
        if self.path == NOWHERE:
            return NO_HOME
        if is_unreadable(self.path):
            return "this user may not read it"
        return foreign_folder(self.path)

    def held(self) -> Held:
        """The current contents."""
        files = self._files()
        models, kernels = (sum(path.endswith(suffix) for path in files) for suffix in (SUFFIX, KERNEL_SUFFIX))
        return Held(models, kernels, sum(status.st_size for status in files.values()))

    def used(self, *paths: Path) -> None:
        """Record that these files are used now."""
        scan = self._recent()
        moment = scan.latest = max(time.time_ns(), scan.latest + 1)
        for path in paths:
            with contextlib.suppress(OSError):
                os.utime(path, ns=(moment, moment))
                scan.bytes += path.stat().st_size  # twice for a file that was there already: an upper bound

    def make_space(self) -> None:
        """If the files exceed the limit, remove the least recently used ones until an eighth of it is free."""
        if self._recent().bytes <= self.limit:
            return
        total = self._scan().bytes
        if total <= self.limit:
            return
        for path, status in sorted(self._files().items(), key=lambda item: item[1].st_mtime_ns):
            if total <= self.limit - self.limit // 8:
                break
            # A process with this file open, or its library mapped, keeps it.
            with contextlib.suppress(OSError):
                os.unlink(path)
                total -= status.st_size
        _SCANS[self.path].bytes = total

    def _recent(self) -> _Scan:
        """The last scan of this process with what it has used since, or a new one."""
        scan = _SCANS.get(self.path)
        return scan if scan is not None and time.monotonic() - scan.at < SCAN_SECONDS else self._scan()

    def _scan(self) -> _Scan:
        """Remove abandoned partial files, and return what the others are."""
        self._remove_partial()
        files = self._files().values()
        latest = max((status.st_mtime_ns for status in files), default=0)
        scan = _SCANS[self.path] = _Scan(sum(status.st_size for status in files), latest, time.monotonic())
        return scan

    def _files(self) -> dict[str, os.stat_result]:
        found = {}
        with contextlib.suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                if _OURS.fullmatch(entry.name):
                    with contextlib.suppress(OSError):  # another process may have removed it
                        found[entry.path] = entry.stat(follow_symlinks=False)
        return found

    def _remove_partial(self) -> None:
        with contextlib.suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                if not _PARTIAL.fullmatch(entry.name):
                    continue
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > PARTIAL_SECONDS:
                        _remove_unlocked(entry.path)


def _remove_unlocked(path: str) -> None:
    """Remove a file. Raises OSError if it is locked."""
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(handle)
