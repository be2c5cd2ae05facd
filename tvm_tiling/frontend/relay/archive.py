"""Relay in tar archives: model.json or model.relay with model.params, and TVM's Model Library Format.

Nothing is extracted: members are read in place, so that no path or link in the archive is ever followed.
"""

from __future__ import annotations

import io
import re
import tarfile
from dataclasses import dataclass
from pathlib import PurePosixPath

from ...errors import ModelFormatError
from ...figures import quantity

MAX_MEMBERS = 10_000
ACCEPTED = (
    "expected a tar of model.json or model.relay and model.params, or Model Library Format with src/*.relay and "
    "parameters/*.params"
)
# Names of a model outside any folder; the first existing one is used.
AT_THE_TOP: tuple[str, ...] = ("model.json", "model.relay", "relay.json", "relay.txt")
# Folders of the Model Library Format that contain the compiled graph.
GRAPHS = ("executor-config/graph/", "runtime-config/graph/")


@dataclass(frozen=True)
class Archive:
    """The contents of an archive: the model's name and bytes, its parameters, if any, and the graph that it was
    compiled to, if there is exactly one."""

    name: str
    model: memoryview
    params: tuple[tuple[str, memoryview], ...]
    graph: tuple[str, memoryview] | None


class _View(io.RawIOBase):
    """A file over bytes that does not copy them."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Up to `size` bytes; an oversized request allocates nothing."""
        end = len(self._data) if size is None or size < 0 else self._at + size
        taken = bytes(self._data[self._at : end])
        self._at += len(taken)
        return taken

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        taken = self._data[self._at : self._at + len(buffer)]
        buffer[: len(taken)] = taken
        self._at += len(taken)
        return len(taken)


def is_tar(data: memoryview) -> bool:
    """Return whether the bytes start like a tar archive."""
    return bytes(data[257:262]) == b"ustar"


def members(data: memoryview, where: str) -> dict[str, memoryview]:
    """The files in an archive by name. Raises ModelFormatError for a corrupted archive, and for names that lead out of
    it."""
    found: dict[str, memoryview] = {}
    end = 0
    try:
        with tarfile.open(fileobj=_View(data), mode="r:") as archive:
            for count, member in enumerate(archive):
                if count >= MAX_MEMBERS:
                    raise ModelFormatError(f"{where}: more than {MAX_MEMBERS} members; {ACCEPTED}")
                end = member.offset_data + -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
                if member.isdir():
                    continue
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts:
                    raise ModelFormatError(f"{where}: the path {member.name!r} leads out of the archive; {ACCEPTED}")
                if not member.isreg() or member.issparse():
                    raise ModelFormatError(f"{where}: {member.name!r} is a link or not a regular file; {ACCEPTED}")
                if member.size < 0 or member.offset_data + member.size > len(data):
                    raise ModelFormatError(f"{where}: truncated within {member.name!r}")
                found[str(name)] = data[member.offset_data : member.offset_data + member.size]
    except (tarfile.TarError, EOFError, ValueError, KeyError, OverflowError, RecursionError) as error:
        if isinstance(error, ModelFormatError):
            raise
        raise ModelFormatError(f"{where}: a corrupted tar archive ({str(error)[:80]}); {ACCEPTED}") from None
    if bytes(data[end : end + tarfile.BLOCKSIZE]) != bytes(tarfile.BLOCKSIZE):
        raise ModelFormatError(f"{where}: the tar archive is truncated after {end} bytes; {ACCEPTED}")
    return found


def read_archive(data: memoryview, where: str) -> Archive:
    """The model and the parameters in an archive. Raises ModelFormatError unless there is exactly one model."""
    held = members(data, where)
    models = [name for name in AT_THE_TOP if name in held][:1]
    if not models:
        sources = [name for name in held if name.startswith("src/")]
        models = [name for name in sources if name.endswith(".relay") or name == "src/relay.txt"]
    if len(models) != 1:
        what = f"{quantity(len(models), 'model')} ({', '.join(sorted(models)[:5])})" if models else "no Relay model"
        raise ModelFormatError(f"{where}: contains {what}; {ACCEPTED}")
    beside = models[0].rpartition("/")[0]
    params = [name for name in held if name.endswith(".params") and (not beside or name.startswith("parameters/"))]
    graphs = [name for name in held if name.startswith(GRAPHS)]
    graph = (graphs[0], held[graphs[0]]) if len(graphs) == 1 else None
    return Archive(models[0], held[models[0]], tuple((name, held[name]) for name in sorted(params)), graph)


_TEXT = re.compile(r"\s*(?:#\[\s*version\b|v0\.0\.\d|/\*|//|def\s+@|fn\s*\(|free_var\s+%|type\s+\w+)")
_JSON = re.compile(r'\s*\{\s*"(?:root|nodes|b64ndarrays|attrs)"')


def is_relay(data: bytes | memoryview) -> bool:
    """Return whether the bytes start like a form of Relay that this package reads."""
    start = bytes(data[:4096])
    if is_tar(memoryview(data)):
        return True
    text = start.decode("utf-8", "replace").lstrip("\ufeff")
    return _TEXT.match(text) is not None or _JSON.match(text) is not None
