"""Temporary folders. Those of killed processes are removed by the next process that makes one.

A process holds a lock on each of its folders. The system releases the lock when the process and all forks that share it
have ended, however they ended. A folder without a lock is therefore abandoned, whatever its age; process numbers, which
are reused and differ between containers, are not used.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import secrets
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

PREFIX = "tvm-tiling-"
_NAME = re.compile(rf"{PREFIX}\d+-[a-z0-9_]{{8}}")  # prefix, process number and random characters
_PIECE = re.compile(r"\d{6}")
_FILE = re.compile(r"[\w-]+\.(o|so|c|vsim)")  # object files, libraries, C sources, simulated programs
_MOST_ENTRIES = 20_000  # examined entries of the system's folder: about 10 ms
_REMOVING_SECONDS = 0.1  # after which the remaining folders are left to the next process
_uses = itertools.count()


class TemporaryFolder:
    """A new folder at `path` among the system's temporary ones, locked until `close` removes it.

    It is for the folders made by `piece`, object files, libraries and programs: if it contains a file of another kind,
    it is not removed after a kill. The first one of a process removes the folders of killed processes. Raises OSError
    if no folder can be made there.
    """

    def __init__(self) -> None:
        self._pieces = 0
        if next(_uses) == 0:
            with contextlib.suppress(OSError):
                remove_abandoned(Path(tempfile.gettempdir()))
        while not self._made():
            pass

    def _made(self) -> bool:
        """Make and lock the folder; False if another process considered it abandoned before it was locked, or owns one
        of that name.

        Ctrl-C may arrive at any time, so the removal is registered before the folder exists.
        """
        self.path = Path(tempfile.gettempdir()) / f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        held = contextlib.ExitStack()
        held.callback(_remove, self.path, os.getpid())
        self._release = weakref.finalize(self, held.close)
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            held.pop_all()
            return False
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            held.callback(os.close, lock)
            with contextlib.suppress(OSError):  # not all file systems support locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if self.path.exists():
                return True
        self.close()
        return False

    def piece(self) -> Path:
        """Make a new folder within. Not thread-safe."""
        self._pieces += 1
        found = self.path / f"{self._pieces:06}"
        found.mkdir()
        return found

    def close(self) -> None:
        """Remove the folder with its contents. In a fork of the process that made it, leave it to that process."""
        self._release()


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder, which is removed with its contents when the context is left. Raises OSError if none can be made."""
    with contextlib.closing(TemporaryFolder()) as folder:
        yield folder.path


def _remove(path: Path, process: int) -> None:
    """Remove a folder of this process, completely even on Ctrl-C, which is then raised."""
    try:
        if process == os.getpid():
            shutil.rmtree(path, ignore_errors=True)
    except BaseException:
        _remove(path, process)
        raise


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of this user's processes that ended without removing them.

    Nothing else is touched: no folder of a live process, none with another name or other contents, and nothing behind a
    link. With many entries or many folders to remove, it stops early and leaves the rest to the next process.
    """
    until = time.monotonic() + _REMOVING_SECONDS
    for path in _own_in(parent):
        with contextlib.suppress(OSError):
            _remove_unlocked(path)
        if time.monotonic() > until:
            return


def _own_in(parent: Path) -> list[Path]:
    """Folders of this user with a name used by this package."""
    found = []
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in itertools.islice(entries, _MOST_ENTRIES):
            if entry.name.startswith(PREFIX) and _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                        found.append(Path(entry.path))
    return found


def _remove_unlocked(path: Path) -> None:
    """Remove a folder whose contents are those of this package. Raises OSError if a process holds its lock."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with os.scandir(path) as entries:
            ours = all(_is_ours(entry) for entry in entries)
        if ours:
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    is_folder = entry.is_dir(follow_symlinks=False)
    return (_PIECE if is_folder else _FILE).fullmatch(entry.name) is not None
