"""Program files: readable without TVM and without pickle, and safe to load from untrusted sources.

    8 bytes   "VSIMPROG"
    4 bytes   version of the format
    4 bytes   CRC-32 of everything that follows
    8 bytes   length of the header
    header    JSON: machine, tables, the number of instructions
    instructions, consecutive INSTRUCTION records
    constants, in the order of the tensor table

Numbers are little-endian. Lengths are checked against the file size before memory is allocated, so that a corrupted
file costs no more memory than its size.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import asdict, fields
from typing import Any, TypeVar

import numpy as np

from ...atomic_file import atomic_file
from ...errors import HardwareError, ProgramError, other_version
from ...hardware.description import Hardware
from ...hardware.file import from_dict
from ...plain_text import plain_json
from .isa import INSTRUCTION
from .magic import MAGIC
from .tables import STORAGE, Memory, ProgramTables, Region, Tensor

VERSION = 1
_START = struct.Struct("<8sIIQ")
_TABLES: dict[str, type] = {"memories": Memory, "tensors": Tensor, "regions": Region}
_KEYS = {"hardware", "queues", "instructions", *_TABLES}

T = TypeVar("T")
P = TypeVar("P", bound=ProgramTables)


def save(program: ProgramTables, path: str | os.PathLike[str]) -> None:
    """See :meth:`.program.Program.save`."""
    header: dict[str, Any] = {
        "hardware": program.hardware.to_dict(),
        "queues": list(program.queues),
        "instructions": len(program),
        **{name: [asdict(row) for row in getattr(program, name)] for name in _TABLES},
    }
    text = json.dumps(header, sort_keys=True).encode()
    arrays = [program.instructions, *(program.constants[tensor.name] for tensor in program.of_role("constant"))]
    parts: list[bytes | memoryview] = [text, *(np.ascontiguousarray(array).data for array in arrays)]
    checksum = zlib.crc32(struct.pack("<Q", len(text)))
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    with atomic_file(path) as file:
        file.write(_START.pack(MAGIC, VERSION, checksum, len(text)))
        file.writelines(parts)


def load(kind: type[P], path: str | os.PathLike[str]) -> P:
    """Load a program of the class `kind`; see :meth:`.program.Program.load`."""
    try:
        with open(path, "rb") as file:
            start = file.read(_START.size)
            if start[: len(MAGIC)] != MAGIC:
                raise ProgramError(
                    f"{path} is not a program of the simulated accelerator; expected a file written by Program.save()"
                )
            content = memoryview(file.read())
    except OSError as error:
        raise ProgramError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return _parse(kind, start, content)
    except (ProgramError, HardwareError) as error:
        raise ProgramError(f"{path}: {error}") from None


def _parse(kind: type[P], start: bytes, content: memoryview) -> P:
    if len(start) < _START.size:
        raise ProgramError("the file is truncated")
    _, version, checksum, length = _START.unpack(start)
    if version != VERSION:
        raise ProgramError(f"the file has {other_version(version, (VERSION,), 'compile and save the program again')}")
    if length > len(content):
        raise ProgramError("the file is truncated")
    if zlib.crc32(content, zlib.crc32(start[-8:])) != checksum:
        raise ProgramError("the file is corrupted or truncated: its checksum does not match")
    header = _header(bytes(content[:length]))
    count = header["instructions"]
    if type(count) is not int or not 0 <= count <= (len(content) - length) // INSTRUCTION.itemsize:
        raise ProgramError(f"instructions = {count!r}; expected at most as many as the file holds")
    tables: dict[str, Any] = {
        name: [_row(kind, row, name) for row in _listed(header, name)] for name, kind in _TABLES.items()
    }
    place = length + count * INSTRUCTION.itemsize
    constants = {}
    for tensor in tables["tensors"]:
        if tensor.role == "constant":
            constants[tensor.name] = _constant(tensor, content[place:])
            place += constants[tensor.name].nbytes
    if place != len(content):
        raise ProgramError(f"{len(content) - place} bytes after the last constant; expected none")
    return kind(
        hardware=from_dict(Hardware, header["hardware"], "hardware"),
        queues=tuple(_listed(header, "queues")),
        instructions=np.frombuffer(content[length:], dtype=INSTRUCTION, count=count),
        constants=constants,
        **tables,
    )


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = plain_json(text)
    except (ValueError, RecursionError):
        raise ProgramError("its header is not valid JSON") from None
    if not isinstance(header, dict) or header.keys() != _KEYS:
        raise ProgramError(f"its header must contain exactly {', '.join(sorted(_KEYS))}")
    return header


def _listed(header: dict[str, Any], name: str) -> list[Any]:
    if not isinstance(header[name], list):
        raise ProgramError(f"{name} = {header[name]!r}; expected a list")
    return header[name]


def _row(kind: type[T], row: Any, table: str) -> T:
    """Return a row of a table after checking that every field is present and of its type."""
    types = {f.name: {"str": str, "int": int}.get(str(f.type), list) for f in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(row, dict) or {name: type(value) for name, value in row.items()} != types:
        raise ProgramError(f"a row of {table} must contain exactly {', '.join(types)}, each of its type")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()})


def _constant(tensor: Tensor, content: memoryview) -> np.ndarray:
    """Return the values of a constant, which `content` starts with. The tensor's row is checked only as far as needed
    here."""
    if tensor.dtype not in STORAGE or not all(type(extent) is int and extent > 0 for extent in tensor.shape):
        raise ProgramError(
            f"tensor {tensor.name!r}: {tensor.dtype!r} of shape {tensor.shape} is not a valid type and shape"
        )
    if tensor.bytes > len(content):
        raise ProgramError(f"constant {tensor.name!r} is truncated: {len(content)} of {tensor.bytes} bytes")
    return np.frombuffer(content, dtype=STORAGE[tensor.dtype], count=tensor.elements).reshape(tensor.shape)
