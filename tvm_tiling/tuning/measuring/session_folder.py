"""A folder for what one session builds. Those of sessions that were killed are removed by the next one.

A session holds a lock on its folder, which the system lets go of when its process ends, however it ended. So what is
not locked belongs to nobody, whatever its age, and process numbers that were given again do not matter.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "tvm-tiling-tune-"
_NAME = re.compile(rf"{PREFIX}\d+-[a-z0-9_]{{8}}")  # as tempfile makes them of prefix and process number
_PIECE = re.compile(r"\d{6}")


class SessionFolder:
    """A new folder among the system's temporary ones, locked until `close` removes it.

    It holds nothing but folders that `piece` made.
    """

    def __init__(self) -> None:
        self._count = 0
        remove_abandoned(Path(tempfile.gettempdir()))
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if self.path.exists():
                return
            os.close(self._lock)  # another session found it before it was locked

    def piece(self) -> Path:
        """A new folder within. Not to be asked from two threads at once."""
        self._count += 1
        found = self.path / f"{self._count:06}"
        found.mkdir()
        return found

    def close(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of this user's sessions that ended without doing so themselves. Nothing else is touched: not
    what a live session holds, not what is named or filled otherwise."""
    for path in _sessions_in(parent):
        with contextlib.suppress(OSError), _locked(path):  # of a live session it cannot be
            if all(_PIECE.fullmatch(piece.name) and piece.is_dir(follow_symlinks=False) for piece in os.scandir(path)):
                shutil.rmtree(path, ignore_errors=True)


def _sessions_in(parent: Path) -> list[Path]:
    """Folders of this user that are named as sessions name theirs."""
    found = []
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                        found.append(Path(entry.path))
    return found


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The lock of a folder; OSError where somebody has it."""
    held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(held)
