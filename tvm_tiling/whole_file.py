"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write bytes to, which is put at `path` when all went well; after an error nothing has changed.

    OSError says in one sentence why `path` cannot be written. The partial file is locked as long as it is written: one
    that is not was left by a process that was killed.
    """
    target = Path(path)
    refuse_unwritable(target)
    try:
        handle, partial = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise type(error)(f"{target} cannot be written: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            with contextlib.suppress(OSError):  # not all file systems have locks
                fcntl.flock(handle, fcntl.LOCK_SH)
            yield file
        os.replace(partial, target)
    except BaseException as error:
        Path(partial).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise OSError(f"{target} cannot be written: {error.strerror}") from None
        raise


def refuse_unwritable(path: str | os.PathLike[str]) -> None:
    """OSError if no file can be put at `path`: to be asked before long work whose result goes there."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} cannot be written: it is a folder; accepted: the path of a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{target} cannot be written: {target.parent} is no folder; accepted: a file in a folder that is there"
        )
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"{target} cannot be written: {target.parent} may not be written to")
