"""Files of native code: opened only if nobody but their owner, who has to be this user or root, can have written them,
or if their digest matches a given one.

Loading such a file executes it. Its content cannot be verified, so its author is decisive: on a multi-user machine, in
a directory that others may write to, the owner and mode of a file identify it.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from pathlib import Path
from typing import BinaryIO

from ..errors import ModelFormatError

OWN = "expected a file of this user or of root that nobody else may write to; or its digest, load(path, digest=...)"


def open_native(path: str | os.PathLike[str], digest: str | None = None) -> BinaryIO:
    """Open the file for reading. Raises ModelFormatError if others may have written it.

    `digest`: SHA-256 of the file in hexadecimal, as printed by sha256sum. It replaces the check of owner and mode; the
    content is then read at once, so that the verified bytes are the loaded ones.
    """
    where = os.fspath(path)
    try:
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    except OSError as error:
        raise ModelFormatError(f"{where} cannot be read: {error.strerror or error}") from None
    try:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ModelFormatError(f"{where} is not a regular file; expected a file written by save()")
        if digest is None:
            if why := foreign(status):
                raise ModelFormatError(
                    f"{where} contains native code and {why}: copy it if you trust its author; {OWN}"
                )
            return file
        with file:
            content = file.read()
    except BaseException:
        file.close()
        raise
    found = hashlib.sha256(content).hexdigest()
    if found != digest.lower():
        raise ModelFormatError(f"{where} has digest {found}, not {digest}")
    return io.BytesIO(content)


def foreign(status: os.stat_result) -> str:
    """The reason why users other than this one and root may have written a file of this owner and mode; empty if they
    cannot.

    A group counts as its user if it is the process's own group: most systems assign every user a group, and new files
    are group-writable.
    """
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to another user (number {status.st_uid})"
    if status.st_mode & stat.S_IWOTH:
        return "everybody may write to it"
    if status.st_mode & stat.S_IWGRP and status.st_gid not in (os.getegid(), 0):
        return f"group {status.st_gid} may write to it"
    return ""


def foreign_folder(folder: Path) -> str:
    """The reason why others may have put files into a directory; empty if they cannot, or it does not exist."""
    try:
        return foreign(folder.stat())
    except OSError:
        return ""


def _without_waiting(path: str, flags: int) -> int:
    """Open without blocking, for a pipe that has no writer."""
    return os.open(path, flags | os.O_NONBLOCK)
