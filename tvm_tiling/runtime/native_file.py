"""Files that hold native code: opened only where nobody but their owner, who has to be this user or root, can have
written them, or where a digest says that they are the ones meant.

Loading such a file is running it. Nothing in it can be checked for what it does, so what counts is who wrote it: on a
machine with several users, in a folder that others may write to, that is what a file's owner and mode tell.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from pathlib import Path
from typing import BinaryIO

from ..errors import ModelFormatError

OWN = "accepted: a file of this user or of root that nobody else may write to; or its digest, load(path, digest=...)"


def open_native(path: str | os.PathLike[str], digest: str | None = None) -> BinaryIO:
    """The file, open for reading. ModelFormatError where others may have written it.

    `digest`: SHA-256 of the file in hexadecimal, as sha256sum prints it. It stands in for owner and mode; the content
    is then read at once, so that what is loaded is what was compared.
    """
    where = os.fspath(path)
    try:
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    except OSError as error:
        raise ModelFormatError(f"{where} cannot be read: {error.strerror or error}") from None
    try:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ModelFormatError(f"{where} is not a regular file; accepted: what save() wrote")
        if digest is None:
            if why := foreign(status):
                raise ModelFormatError(f"{where} holds native code and {why}: copy it if you trust its writer; {OWN}")
            return file
        with file:
            content = file.read()
    except BaseException:
        file.close()
        raise
    found = hashlib.sha256(content).hexdigest()
    if found != digest.lower():
        raise ModelFormatError(f"{where} is not the file of digest {digest}: its own is {found}")
    return io.BytesIO(content)


def foreign(status: os.stat_result) -> str:
    """Why others than this user and root may have written what has this owner and mode; empty where they may not.

    A group counts as its user where it is this process's own: most systems give every user a group, and new files are
    the group's to write.
    """
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to another user (number {status.st_uid})"
    if status.st_mode & stat.S_IWOTH:
        return "everybody may write to it"
    if status.st_mode & stat.S_IWGRP and status.st_gid not in (os.getegid(), 0):
        return f"group {status.st_gid} may write to it"
    return ""


def foreign_folder(folder: Path) -> str:
    """Why others may have put files into a folder; empty where they may not have, and where it is not there."""
    try:
        return foreign(folder.stat())
    except OSError:
        return ""


def _without_waiting(path: str, flags: int) -> int:
    """A pipe that nobody writes to is opened at once."""
    return os.open(path, flags | os.O_NONBLOCK)
