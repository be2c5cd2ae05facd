"""Atomic file writes, which replace only regular files."""

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
_MOST_LINKS = 40  # from link to link, the limit of Linux
_SPECIAL = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing bytes, which is moved to `path` on success; after an error nothing has changed.

    A symbolic link is kept, and its target is written. Raises OSError with the reason if `path` cannot be written:
    directories, devices, pipes and sockets are never replaced. The partial file is locked while it is written: an
    unlocked one was left by a killed process.
    """
    target = _writable(path)
    try:
        handle, partial = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise type(error)(f"{path} cannot be written: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            with contextlib.suppress(OSError):  # not all file systems support locks
                fcntl.flock(handle, fcntl.LOCK_SH)
            yield file
        _refuse_special(target, path)  # it may have been created in the meantime
        os.replace(partial, target)
    except BaseException as error:
        Path(partial).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            raise OSError(f"{path} cannot be written: {error.strerror}") from None
        raise


def refuse_unwritable(path: str | os.PathLike[str]) -> None:
    """Raise OSError if no file can be written to `path`: checked before long work whose result goes there."""
    _writable(path)


def _writable(path: str | os.PathLike[str]) -> Path:
    """The path to write for `path`: itself, or the target of its links. Raises OSError if it cannot be written."""
    if "\0" in os.fspath(path):
        raise OSError(f"{os.fspath(path)!r} cannot be written: a path must not contain a null byte")
    target = _linked(path)
    _refuse_special(target, path)
    if not target.parent.is_dir():
        exists = target.parent.exists()
        fault = f"{target.parent} is not a directory" if exists else f"directory {target.parent} does not exist"
        raise FileNotFoundError(f"{path} cannot be written: {fault}")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"{path} cannot be written: directory {target.parent} is not writable")
    return target


def _linked(path: str | os.PathLike[str]) -> Path:
    """The path that `path` refers to after following its links, whether or not it exists."""
    target = Path(path)
    for _ in range(_MOST_LINKS):
        if not target.name or target.name == "..":
            return target  # a directory
        folder = Path(os.path.realpath(target.parent))
        if folder.parts[:2] == ("/", "proc"):
            raise PermissionError(f"{path} cannot be written: it is a stream of a process; expected the path of a file")
        if not (folder / target.name).is_symlink():
            return target
        target = folder / target.name
        _refuse_foreign(target, path)
        target = folder / os.readlink(target)
    raise OSError(f"{path} cannot be written: its links form a cycle; expected the path of a file")


def _refuse_foreign(link: Path, path: str | os.PathLike[str]) -> None:
    """Raise PermissionError for a link created by another user in a world-writable directory such as /tmp."""
    folder, owner = link.parent.stat(), link.lstat().st_uid
    shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    if shared and owner not in (os.geteuid(), folder.st_uid):
        raise PermissionError(
            f"{path} cannot be written: it is a link created by another user; expected a link of this user"
        )


def _refuse_special(target: Path, path: str | os.PathLike[str]) -> None:
    """Raise OSError if the path exists and is not a regular file."""
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
        f"{path} cannot be written: it is {_SPECIAL.get(kind, 'not a regular file')}; expected the path of a file"
    )
