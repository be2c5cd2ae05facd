"""A saved executable: a tar archive of a description, a library of kernels for each variant, and the constants.

The constants are one block, read in one go into memory of its own; the libraries are mapped by the system.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from ..errors import ModelFormatError
from ..whole_file import refuse_unwritable, whole_file
from .passes.constants import aligned

FORMAT = "tvm-tiling-executable"
VERSION = 2
DESCRIPTION, CONSTANTS = "model.json", "constants.bin"
LARGEST_DESCRIPTION = 64 << 20  # bytes
ACCEPTED = "accepted: what save() wrote"


@dataclass(frozen=True)
class Library:
    """Kernels and the program that calls them: as relax.build makes them, or loaded, and then with the file's bytes."""

    module: Any
    content: bytes | None = None

    def exported(self) -> bytes:
        """The bytes of a shared library. A C compiler links it, unless it was loaded."""
        if self.content is not None:
            return self.content
        with tempfile.TemporaryDirectory(prefix="tvm-tiling-") as folder:
            path = Path(folder) / "model.so"
            self.module.export_library(str(path))
            return path.read_bytes()


def _library_name(number: int) -> str:
    return f"model_{number}.so"


def write(
    path: str | os.PathLike[str],
    description: Mapping[str, Any],
    libraries: Sequence[Library],
    constants: np.ndarray,
    further: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write the file, whole or not at all; `description` is plain values, `constants` bytes, `further` bytes by name.
    OSError says why it cannot be written.
    """
    refuse_unwritable(path)
    contents = [library.exported() for library in libraries]
    digests = [hashlib.sha256(content).hexdigest() for content in contents]
    known = {"format": FORMAT, "version": VERSION, "libraries": digests, **description}
    with whole_file(path) as file, tarfile.open(fileobj=file, mode="w") as archive:
        _add(archive, DESCRIPTION, memoryview(json.dumps(known, sort_keys=True).encode()))
        for number, content in enumerate(contents):
            _add(archive, _library_name(number), memoryview(content))
        _add(archive, CONSTANTS, constants.data)
        for name, held in (further or {}).items():
            _add(archive, name, held.data)


def _add(archive: tarfile.TarFile, name: str, content: memoryview) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = content.nbytes
    archive.addfile(entry, _Content(content))  # type: ignore[arg-type]


class _Content(io.RawIOBase):
    """A file of bytes that are read without being copied first."""

    def __init__(self, content: memoryview) -> None:
        self._rest = content

    def read(self, size: int = -1) -> bytes:
        size = len(self._rest) if size < 0 else size
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken  # type: ignore[return-value]


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Library], np.ndarray]:
    """What write() wrote: description, libraries, constants. ModelFormatError says what is wrong with the file."""
    where = os.fspath(path)
    try:
        with tarfile.open(path, "r:") as archive:
            known = _description(_member(archive, DESCRIPTION, where, LARGEST_DESCRIPTION), where)
            contents = [
                _member(archive, _library_name(number), where).tobytes() for number in range(len(known["libraries"]))
            ]
            constants = _member(archive, CONSTANTS, where)
    except (tarfile.TarError, EOFError) as error:
        raise ModelFormatError(f"{where} is no saved executable ({error}); {ACCEPTED}") from None
    except OSError as error:
        raise ModelFormatError(f"{where} cannot be read: {error.strerror or error}") from None
    for content, digest in zip(contents, known["libraries"], strict=True):
        if hashlib.sha256(content).hexdigest() != digest:
            raise ModelFormatError(f"{where}: its library is damaged; {ACCEPTED}")
    return known, [_loaded(content, where) for content in contents], constants


def read_further(path: str | os.PathLike[str], names: Sequence[str]) -> list[np.ndarray]:
    """The bytes that write() was given as `further`, of these names. ModelFormatError where one is missing or short."""
    where = os.fspath(path)
    try:
        with tarfile.open(path, "r:") as archive:
            return [_member(archive, name, where) for name in names]
    except (tarfile.TarError, EOFError) as error:
        raise ModelFormatError(f"{where} is no saved executable ({error}); {ACCEPTED}") from None


def _description(content: np.ndarray, where: str) -> dict[str, Any]:
    try:
        known = json.loads(content.tobytes())
        if known["format"] != FORMAT:
            raise ValueError(f"format {known['format']!r}")
        if known["version"] != VERSION:
            raise ModelFormatError(f"{where} is of version {known['version']}; accepted: {VERSION}")
        if not all(isinstance(digest, str) for digest in known["libraries"]):
            raise TypeError("a digest is no text")
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, ModelFormatError):
            raise
        raise damaged(where, error) from None
    plain: dict[str, Any] = known
    return plain


def damaged(where: str, error: Exception) -> ModelFormatError:
    """The error for a description that does not say what it should."""
    return ModelFormatError(f"{where}: its description is damaged ({error}); {ACCEPTED}")


def _member(archive: tarfile.TarFile, name: str, where: str, most: int | None = None) -> np.ndarray:
    """The bytes of a file in the archive, aligned as kernels want them."""
    try:
        member = archive.getmember(name)
    except KeyError:
        raise ModelFormatError(f"{where} holds no {name}; {ACCEPTED}") from None
    if not member.isreg() or (most is not None and member.size > most):
        raise ModelFormatError(f"{where}: {name} is no file of at most {most} bytes")
    assert archive.fileobj is not None
    if member.offset_data + member.size > os.stat(where).st_size:
        raise ModelFormatError(f"{where} is cut short within {name}")
    content = aligned(member.size)
    archive.fileobj.seek(member.offset_data)
    filled = archive.fileobj.readinto(content.data)  # type: ignore[attr-defined]
    if filled != member.size:
        raise ModelFormatError(f"{where} is cut short within {name}")
    return content


def _loaded(content: bytes, where: str) -> Library:
    with tempfile.TemporaryDirectory(prefix="tvm-tiling-") as folder:
        file = Path(folder) / "model.so"
        file.write_bytes(content)
        # The system keeps the mapping when the file is gone.
        try:
            return Library(tvm.runtime.load_module(str(file)), content)
        except Exception as error:
            said = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise ModelFormatError(f"{where}: its library cannot be loaded here: {said}") from None
