"""Parameters as TVM saved them: names and arrays in one file, little-endian.

Nothing is copied: arrays are views of the file's bytes, which are mapped where there is a file. Every length is checked
against what the file has before it is used.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ModelFormatError
from ...runtime.pages import FileContents

LIST_MAGIC = 0xF7E58D4F05049CB7
ARRAY_MAGIC = 0xDD5E40F096B4A13F
MAX_NAME = 4096  # bytes
MAX_RANK = 32
# Kinds of numbers: (code, bits) of DLPack. Booleans were unsigned integers of one bit, stored in a byte each.
_KINDS = {
    **{(0, bits): f"int{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"float{bits}" for bits in (16, 32, 64)},
    (1, 1): "bool",
    (6, 8): "bool",
}
ACCEPTED = "accepted: what relay.save_param_dict or tvm.runtime.save_param_dict wrote"


def read_params(given: Any) -> dict[str, Any]:
    """Parameters by name: from a mapping as it is, from the path of a file or its bytes. ModelFormatError."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, str | Path):
        return parse_params(mapped(Path(given)), str(given))
    if isinstance(given, bytes | bytearray | memoryview):
        return parse_params(memoryview(given).cast("B"), "the params given")
    raise ModelFormatError(
        f"params is a {type(given).__name__}; accepted: arrays by name, or the path of a .params file"
    )


def mapped(path: Path) -> memoryview:
    """The bytes of a file, where it may be mapped read when they are used. ModelFormatError where there is no file."""
    if not path.is_file():
        raise ModelFormatError(f"{path} {'is not a file' if path.exists() else 'does not exist'}; accepted: a file")
    return FileContents(path).content


class _Reader:
    """Numbers and bytes from the front of a block."""

    def __init__(self, data: memoryview, where: str) -> None:
        self.data = data
        self.where = where
        self.at = 0

    def fail(self, what: str) -> ModelFormatError:
        return ModelFormatError(f"{self.where}: {what}; {ACCEPTED}")

    def numbers(self, layout: str) -> tuple[int, ...]:
        size = struct.calcsize(layout)
        self.check(size)
        found = struct.unpack_from(layout, self.data, self.at)
        self.at += size
        return found

    def block(self, size: int) -> memoryview:
        self.check(size)
        self.at += size
        return self.data[self.at - size : self.at]

    def check(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise self.fail(f"cut short: {size} bytes wanted at byte {self.at} of {len(self.data)}")


def parse_params(data: memoryview, where: str) -> dict[str, np.ndarray]:
    """The arrays of a params file by name, as views of `data`. ModelFormatError."""
    reader = _Reader(data, where)
    magic, _, count = reader.numbers("<QQQ")
    if magic != LIST_MAGIC:
        raise reader.fail("no params file")
    if count > len(data) // 8:
        raise reader.fail(f"{count} names in {len(data)} bytes")
    names: list[str] = []
    for _ in range(count):
        (length,) = reader.numbers("<Q")
        if length > MAX_NAME:
            raise reader.fail(f"a name of {length} bytes")
        try:
            names.append(bytes(reader.block(length)).decode())
        except UnicodeDecodeError:
            raise reader.fail("a name that is not UTF-8 text") from None
    if len(set(names)) < len(names):
        raise reader.fail("a name that occurs twice")
    (arrays,) = reader.numbers("<Q")
    if arrays != count:
        raise reader.fail(f"{arrays} arrays for {count} names")
    found = {name: _array(reader, name) for name in names}
    if reader.at != len(data):
        raise reader.fail(f"{len(data) - reader.at} bytes behind the last array")
    return found


def parse_array(data: memoryview, where: str) -> np.ndarray:
    """One array in the form that it has in a params file, and nothing else. ModelFormatError."""
    reader = _Reader(data, where)
    found = _array(reader, "the constant")
    if reader.at != len(data):
        raise reader.fail(f"{len(data) - reader.at} bytes behind the array")
    return found


def _array(reader: _Reader, name: str) -> np.ndarray:
    magic, _ = reader.numbers("<QQ")
    if magic != ARRAY_MAGIC:
        raise reader.fail(f"{name!r} is not an array")
    _, _, rank, code, bits, lanes = reader.numbers("<iiiBBH")
    if not 0 <= rank <= MAX_RANK:
        raise reader.fail(f"{name!r} has {rank} dimensions")
    kind = _KINDS.get((code, bits))
    if kind is None or lanes != 1:
        raise reader.fail(f"{name!r} has numbers of kind ({code}, {bits}, {lanes}), which are not served")
    shape = reader.numbers(f"<{rank}q")
    if any(extent < 0 for extent in shape):
        raise reader.fail(f"{name!r} has shape {shape}")
    (size,) = reader.numbers("<q")
    dtype = np.dtype("uint8" if kind == "bool" else kind).newbyteorder("<")
    count = math.prod(shape)
    if size != count * dtype.itemsize:
        raise reader.fail(
            f"{name!r} of shape {shape} and type {kind} takes {count * dtype.itemsize} bytes and has {size}"
        )
    held = reader.block(size)
    try:
        values = np.frombuffer(held, dtype, count).reshape(shape) if count else np.empty(shape, dtype)
    except ValueError:
        raise reader.fail(f"{name!r} has shape {shape}") from None
    return values != 0 if kind == "bool" else values
