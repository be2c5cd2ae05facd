"""A saved executable: a tar archive of a description, a library of kernels for each variant, and the constants.

The constants are one block, which is memory-mapped from the file if that is permitted (pages.py): the pages read for
verification are not kept, and processes that load one file share them. The block lies at a multiple of 512 bytes, as
all members of such an archive do, and the constants in it at multiples of 64. library.py describes libraries.
Corruption is detected: libraries and the description are verified with SHA-256; the constants and further contents,
which may be gigabytes, with CRC-32, which detects every change within 32 bits and is several times as fast.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..atomic_file import atomic_file, refuse_unwritable
from ..errors import HardwareError, ModelFormatError, TilingError, other_version
from ..hardware.instruction_sets import InstructionSet
from ..plain_text import plain_json
from ..runtime.arrays import ALIGNMENT
from ..runtime.library import OBJECTS, SHARED, Library, load
from ..runtime.native_file import open_native
from ..runtime.open_plan import AnyPlan, plan_of
from ..runtime.pages import mapped, may_be_mapped, zeros
from .toolchain import missing

FORMAT = "tvm-tiling-executable"
# 6 had no plans in parts; 5 had no dynamic dimensions; 4 had no nodes of operators; 3 had no plans; 2 contained the
# compile time, so that two files of one model differed
VERSION = 7
READABLE = (2, 3, 4, 5, 6, 7)
DESCRIPTION, CONSTANTS = "model.json", "constants.bin"
LARGEST_DESCRIPTION = 64 << 20  # bytes
MOST_MEMBERS = 100_000
STEP = 1 << 20  # bytes that are read and checksummed at a time, while they are in a cache
ACCEPTED = "expected a file written by save()"
NO_PLAN = "it was saved by an older version"


def _library_name(number: int, kind: str) -> str:
    return f"model_{number}{kind}"


def _objects_name(number: int) -> str:
    return f"objects_{number}"


def write(
    path: str | os.PathLike[str],
    description: Mapping[str, Any],
    libraries: Sequence[Library],
    constants: np.ndarray,
    further: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write the file atomically; `description` is plain values, `constants` bytes, `further` bytes by name.

    Raises OSError with the reason if it cannot be written.
    """
    if unlinked := next((library for library in libraries if not library.content), None):
        arch = None if unlinked.instructions is None else unlinked.instructions.arch
        raise TilingError(f"{os.fspath(path)} cannot be written: {missing(arch)}; export() does not require one")
    refuse_unwritable(path)
    digests = [hashlib.sha256(library.content).hexdigest() for library in libraries]
    objects = {
        _objects_name(number): np.frombuffer(library.objects, np.uint8)
        for number, library in enumerate(libraries)
        if library.objects
    }
    blocks = {CONSTANTS: constants, **objects, **(further or {})}
    sums = {name: zlib.crc32(held.data) for name, held in blocks.items()}
    plans = [library.no_plan if library.plan is None else library.plan.to_dict() for library in libraries]
    known = {
        "format": FORMAT,
        "version": VERSION,
        "libraries": digests,
        "plans": plans,
        "instructions": [library.instructions and library.instructions.to_dict() for library in libraries],
        "checksums": sums,
        **description,
    }
    known["digest"] = _digest(known)
    with atomic_file(path) as file, tarfile.open(fileobj=file, mode="w") as archive:
        _add(archive, DESCRIPTION, memoryview(json.dumps(known, sort_keys=True).encode()))
        for number, library in enumerate(libraries):
            _add(archive, _library_name(number, library.kind), memoryview(library.content))
        for name, held in blocks.items():
            _add(archive, name, held.data)


def _add(archive: tarfile.TarFile, name: str, content: memoryview) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = content.nbytes
    archive.addfile(entry, _Content(content))  # type: ignore[arg-type]


class _Content(io.RawIOBase):
    """A file of bytes that are read without a copy."""

    def __init__(self, content: memoryview) -> None:
        self._rest = content

    def read(self, size: int = -1) -> bytes:
        size = len(self._rest) if size < 0 else size
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken  # type: ignore[return-value]


@dataclass(frozen=True)
class Saved:
    """The content written by write(). `mapped`: whether the constants are memory-mapped. `further`: contents by
    name."""

    description: dict[str, Any]
    libraries: list[Library]
    constants: np.ndarray
    mapped: bool
    further: dict[str, np.ndarray]


def read(path: str | os.PathLike[str], digest: str | None = None, copy: bool = False, foreign: bool = False) -> Saved:
    """Read a file written by write(), with a single opening.

    Raises ModelFormatError if it is invalid or others may have written it (native_file.py), and HardwareError if this
    CPU lacks an instruction set; nothing is loaded before everything is read. `copy`: constants in memory of this
    process, not in the file's pages. `foreign`: libraries with instructions that this CPU lacks are accepted, and not
    loaded.
    """
    where = os.fspath(path)
    with open_native(path, digest) as file:
        try:
            with tarfile.open(fileobj=_Bounded(file), mode="r:") as archive:  # type: ignore[call-overload]
                members = _members(archive, file, where)
                known = _description(_member(members, DESCRIPTION, where, LARGEST_DESCRIPTION), where)
                names = [_library_member(members, number) for number in range(len(known["libraries"]))]
                contents = [_member(members, name, where).tobytes() for name in names]
                sums = known.get("checksums", {})  # absent in files of older releases
                constants, is_mapped = _constants(members, where, sums.get(CONSTANTS), copy)
                linked = [_objects_name(number) for number in range(len(names))]
                objects = [
                    _member(members, name, where, checksum=sums.get(name)).tobytes() if name in members else b""
                    for name in linked
                ]
                others = sorted(members.keys() - {DESCRIPTION, CONSTANTS, *names, *linked})
                further = {name: _member(members, name, where, checksum=sums.get(name)) for name in others}
        except (tarfile.TarError, EOFError, ValueError, OverflowError, MemoryError) as error:
            if isinstance(error, ModelFormatError):
                raise
            raise ModelFormatError(f"{where} is not a saved executable ({str(error)[:80]}); {ACCEPTED}") from None
        except OSError as error:
            raise ModelFormatError(f"{where} cannot be read: {error.strerror or error}") from None
    for content, expected in zip(contents, known["libraries"], strict=True):
        if hashlib.sha256(content).hexdigest() != expected:
            raise ModelFormatError(f"{where}: its library is corrupted; {ACCEPTED}")
    plans, instructions = _plans(known, where), _instructions(known, where, foreign)
    libraries = [
        replace(_loaded(content, Path(name).suffix, plan, held, where, needed), instructions=needed)
        for content, name, plan, held, needed in zip(contents, names, plans, objects, instructions, strict=True)
    ]
    return Saved(known, libraries, constants, is_mapped, further)


def _description(content: np.ndarray, where: str) -> dict[str, Any]:
    try:
        known = plain_json(content.tobytes())
        if known["format"] != FORMAT:
            raise ValueError(f"format {known['format']!r}")
        if known["version"] not in READABLE:
            said = other_version(known["version"], READABLE, "compile the model again")
            raise ModelFormatError(f"{where} has {said}")
        if not all(isinstance(digest, str) for digest in known["libraries"]):
            raise TypeError("a digest is not a string")
        if not all(isinstance(found, int) for found in known.get("checksums", {}).values()):
            raise TypeError("a checksum is not a number")
        if known.get("digest", _digest(known)) != _digest(known):  # absent in files of older releases
            raise ValueError("its digest does not match")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ModelFormatError):
            raise
        raise corrupted(where, error) from None
    plain: dict[str, Any] = known
    return plain


def _digest(known: Mapping[str, Any]) -> str:
    """The digest by which a modified description is detected."""
    rest = {name: value for name, value in known.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def corrupted(where: str, error: Exception) -> ModelFormatError:
    """The error for an invalid description."""
    return ModelFormatError(f"{where}: its description is corrupted ({error}); {ACCEPTED}")


class _Bounded:
    """A file to read from: reads, and thus allocations, never exceed the remaining bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.tell, self.seek = file, file.tell, file.seek
        self._end = file.seek(0, os.SEEK_END)
        file.seek(0)

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._end - self._file.tell())
        return self._file.read(left if size < 0 else min(size, left))


@dataclass(frozen=True)
class _Place:
    """The position of a member's bytes in the archive's file."""

    file: BinaryIO
    start: int
    size: int


def _members(archive: tarfile.TarFile, file: BinaryIO, where: str) -> dict[str, _Place]:
    """The archive's members by name, each of which lies within the file. Nothing is extracted: names are looked up, no
    path is made of them, and no link is followed."""
    place = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(place)
    found: dict[str, _Place] = {}
    for count, member in enumerate(archive):
        if count >= MOST_MEMBERS:
            raise ModelFormatError(f"{where} contains more than {MOST_MEMBERS} members; {ACCEPTED}")
        if not member.isreg() or member.issparse():
            raise ModelFormatError(f"{where}: {member.name!r} is a link or not a regular file; {ACCEPTED}")
        if member.name in found:
            raise ModelFormatError(f"{where} contains {member.name!r} twice; {ACCEPTED}")
        if member.size < 0 or member.offset_data + member.size > end:
            raise ModelFormatError(f"{where} is truncated within {member.name}")
        found[member.name] = _Place(file, member.offset_data, member.size)
    return found


def _member(
    members: dict[str, _Place], name: str, where: str, most: int | None = None, checksum: int | None = None
) -> np.ndarray:
    """The bytes of a member, aligned as required by kernels. Raises ModelFormatError if there are more than `most`, or
    if the checksum differs."""
    place = _place(members, name, where)
    if most is not None and place.size > most:
        raise ModelFormatError(f"{where}: {name} has {place.size} bytes; expected at most {most}")
    content = zeros(place.size)
    parts = (content[start : start + STEP].data for start in range(0, place.size, STEP))
    _read(place, name, where, parts, checksum)
    return content


def _constants(members: dict[str, _Place], where: str, checksum: int | None, copy: bool) -> tuple[np.ndarray, bool]:
    """The constants after verification of their checksum, and whether they are memory-mapped."""
    place = _place(members, CONSTANTS, where)
    found = None if copy else _mapped(place)
    if found is None:
        return _member(members, CONSTANTS, where, checksum=checksum), False
    buffer = memoryview(bytearray(STEP))
    sizes = (min(STEP, place.size - start) for start in range(0, place.size, STEP))
    _read(place, CONSTANTS, where, (buffer[:size] for size in sizes), checksum)
    return found, True


def _mapped(place: _Place) -> np.ndarray | None:
    """The bytes of a member as pages of the file; None if it must not be mapped, or if they are not at a multiple of
    ALIGNMENT."""
    if place.start % ALIGNMENT or not may_be_mapped(place.file):
        return None
    try:
        return mapped(place.file, place.start, place.size)
    except (OSError, ValueError):  # a file system without mappings, or no address space
        return None


def _place(members: dict[str, _Place], name: str, where: str) -> _Place:
    place = members.get(name)
    if place is None:
        raise ModelFormatError(f"{where} does not contain {name}; {ACCEPTED}")
    return place


def _read(place: _Place, name: str, where: str, parts: Iterable[memoryview], checksum: int | None) -> None:
    """Read a member into `parts`, which have its size in total. Raises ModelFormatError if its checksum differs."""
    place.file.seek(place.start)
    found = 0
    for part in parts:
        if place.file.readinto(part) != part.nbytes:  # type: ignore[attr-defined]
            raise ModelFormatError(f"{where} is truncated within {name}")
        if checksum is not None:
            found = zlib.crc32(part, found)
    if checksum is not None and found != checksum:
        raise ModelFormatError(f"{where}: {name} is corrupted (its checksum is {found}, not {checksum}); {ACCEPTED}")


def _library_member(members: Mapping[str, object], number: int) -> str:
    """The name of the member with that library: of object files, or else of a shared library."""
    objects = _library_name(number, OBJECTS)
    return objects if objects in members else _library_name(number, SHARED)


def _plans(known: dict[str, Any], where: str) -> list[AnyPlan | str]:
    """For each library its plan, or why it has none."""
    try:
        found = known.get("plans", [NO_PLAN] * len(known["libraries"]))
        if len(found) != len(known["libraries"]):
            raise ValueError(f"{len(found)} plans")
        return [plan if isinstance(plan, str) else plan_of(plan) for plan in found]
    except (ValueError, KeyError, TypeError) as error:
        raise corrupted(where, error) from None


def _instructions(known: dict[str, Any], where: str, foreign: bool) -> list[InstructionSet | None]:
    """For each library the instruction sets that its kernels may use, all of which this CPU has unless they may be
    `foreign`; None for a file of an older version. Raises HardwareError with the name of an instruction set that this
    CPU lacks."""
    try:
        found = known.get("instructions", [None] * len(known["libraries"]))
        if len(found) != len(known["libraries"]):
            raise ValueError(f"{len(found)} instruction sets")
        needed = [None if plain is None else InstructionSet.from_dict(plain) for plain in found]
    except (ValueError, KeyError, TypeError) as error:
        raise corrupted(where, error) from None
    for each in needed:
        if each is not None and not foreign and (lacking := each.lacking()):
            raise HardwareError(
                f"{where} was compiled for another CPU: this one lacks {lacking}; expected a model compiled "
                "on this CPU, or with target= a description of it"
            )
    return needed


def _loaded(
    content: bytes, kind: str, plan: AnyPlan | str, objects: bytes, where: str, needed: InstructionSet | None
) -> Library:
    if needed is not None and (lacking := needed.lacking()):
        known, why = (None, plan) if isinstance(plan, str) else (plan, "")
        return Library(content, kind, None, None, known, why, objects, lacking=lacking)
    try:
        if isinstance(plan, str):
            return load(content, kind, no_plan=plan)
        return load(content, kind, plan, objects=objects)
    except OSError as error:
        raise OSError(f"{where}: its library cannot be written to {tempfile.gettempdir()}: {error.strerror}") from None
    except Exception as error:
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ModelFormatError(f"{where}: its library cannot be loaded here: {said}") from None
