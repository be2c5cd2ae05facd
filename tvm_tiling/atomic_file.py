"""Files that appear whole or not at all, and only where nothing or a regular file is."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MOST_LINKS = 40  # from link to link, as Linux follows them
_SPECIAL = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write bytes to, which is put at `path` when all went well; after an error nothing has changed.

    A symbolic link stays, and what it leads to is written. OSError says in one sentence why `path` cannot be written:
    folders, devices, pipes and sockets are never replaced. The partial file is locked as long as it is written: one
    that is not was left by a process that was killed.
    """
    target = _writable(path)
    try:
        handle, partial = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise type(error)(f"{path} cannot be written: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            with contextlib.suppress(OSError):  # not all file systems have locks
                fcntl.flock(handle, fcntl.LOCK_SH)
            yield file
        _refuse_special(target, path)  # for it may have come in the meantime
        os.replace(partial, target)
    except BaseException as error:
        Path(partial).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            raise OSError(f"{path} cannot be written: {error.strerror}") from None
        raise


def refuse_unwritable(path: str | os.PathLike[str]) -> None:
    """OSError if no file can be put at `path`: to be asked before long work whose result goes there."""
    _writable(path)


def _writable(path: str | os.PathLike[str]) -> Path:
    """Where a file for `path` goes: there, or where links lead. OSError where none can go."""
    if "\0" in os.fspath(path):
        raise OSError(f"{os.fspath(path)!r} cannot be written: a path holds no zero byte")
    target = _linked(path)
    _refuse_special(target, path)
    if not target.parent.is_dir():
        exists = target.parent.exists()
        fault = f"{target.parent} is not a directory" if exists else f"directory {target.parent} does not exist"
        raise FileNotFoundError(f"{path} cannot be written: {fault}")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"{path} cannot be written: {target.parent} may not be written to")
    return target


def _linked(path: str | os.PathLike[str]) -> Path:
    """The place that `path` names when its links are followed, be there something or not."""
    target = Path(path)
    for _ in range(_MOST_LINKS):
        if not target.name or target.name == "..":
            return target  # a folder
        folder = Path(os.path.realpath(target.parent))
        if folder.parts[:2] == ("/", "proc"):
            raise PermissionError(
                f"{path} cannot be written: it is a stream of a process; accepted: the path of a file"
            )
        if not (folder / target.name).is_symlink():
            return target
        target = folder / target.name
        _refuse_foreign(target, path)
        target = folder / os.readlink(target)
    raise OSError(f"{path} cannot be written: its links lead in a circle; accepted: the path of a file")


def _refuse_foreign(link: Path, path: str | os.PathLike[str]) -> None:
    """PermissionError for a link that somebody else put into a folder that is everybody's, such as /tmp."""
    folder, owner = link.parent.stat(), link.lstat().st_uid
    shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    if shared and owner not in (os.geteuid(), folder.st_uid):
        raise PermissionError(f"{path} cannot be written: it is a link that another user made; accepted: one's own")


def _refuse_special(target: Path, path: str | os.PathLike[str]) -> None:
    """OSError where something other than a regular file is."""
    try:
        kind = stat.S_IFMT(target.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise type(error)(f"{path} cannot be written: {error.strerror or error}") from None
    if kind == stat.S_IFREG:
        return
    refusal = IsADirectoryError if kind == stat.S_IFDIR else PermissionError
    raise refusal(
        f"{path} cannot be written: it is {_SPECIAL.get(kind, 'no regular file')}; accepted: the path of a file"
    )
