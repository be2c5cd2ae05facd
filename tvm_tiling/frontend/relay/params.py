"""Parameters as saved by TVM: names and arrays in one file, little-endian.

Nothing is copied: arrays are views of the file's bytes, memory-mapped if there is a file. Every length is checked
against the file size before use.
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
# Element types: (code, bits) of DLPack. Booleans are unsigned integers of one bit, stored in a byte each.
_KINDS = {
    **{(0, bits): f"int{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"float{bits}" for bits in (16, 32, 64)},
    (1, 1): "bool",
    (6, 8): "bool",
}
ACCEPTED = "expected the output of relay.save_param_dict or tvm.runtime.save_param_dict"


def read_params(given: Any) -> dict[str, Any]:
    """Parameters by name: a mapping unchanged, or read from the path or bytes of a file. Raises ModelFormatError."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, str | Path):
        return parse_params(mapped(Path(given)), str(given))
    if isinstance(given, bytes | bytearray | memoryview):
        return parse_params(memoryview(given).cast("B"), "the given params")
    raise ModelFormatError(
        f"params is a {type(given).__name__}; expected arrays by name, or the path of a .params file"
    )


def mapped(path: Path) -> memoryview:
    """The bytes of a file, memory-mapped where possible. Raises ModelFormatError if there is no such file."""
    if not path.is_file():
        raise ModelFormatError(f"{path} {'is not a file' if path.exists() else 'does not exist'}; expected a file")
    return FileContents(path).content


class _Reader:
    """Reads numbers and bytes sequentially from a block."""

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
            raise self.fail(f"truncated: {size} bytes are expected at byte {self.at} of {len(self.data)}")


def parse_params(data: memoryview, where: str) -> dict[str, np.ndarray]:
    """The arrays of a params file by name, as views of `data`. Raises ModelFormatError."""
    reader = _Reader(data, where)
    magic, _, count = reader.numbers("<QQQ")
    if magic != LIST_MAGIC:
        raise reader.fail("not a params file")
    if count > len(data) // 8:
        raise reader.fail(f"{count} names do not fit in {len(data)} bytes")
    names: list[str] = []
    for _ in range(count):
        (length,) = reader.numbers("<Q")
        if length > MAX_NAME:
            raise reader.fail(f"a name has {length} bytes, more than {MAX_NAME}")
        try:
            names.append(bytes(reader.block(length)).decode())
        except UnicodeDecodeError:
            raise reader.fail("a name is not UTF-8 text") from None
    if len(set(names)) < len(names):
        raise reader.fail("a name occurs twice")
    (arrays,) = reader.numbers("<Q")
    if arrays != count:
        raise reader.fail(f"the counts of arrays ({arrays}) and names ({count}) differ")
    found = {name: _array(reader, name) for name in names}
    if reader.at != len(data):
        raise reader.fail(f"{len(data) - reader.at} bytes follow the last array")
    return found


def parse_array(data: memoryview, where: str) -> np.ndarray:
    """A single array in the format of a params file. Raises ModelFormatError."""
    reader = _Reader(data, where)
    found = _array(reader, "the constant")
    if reader.at != len(data):
        raise reader.fail(f"{len(data) - reader.at} bytes follow the array")
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
        raise reader.fail(f"{name!r} has the element type ({code}, {bits}, {lanes}), which is not supported")
    shape = reader.numbers(f"<{rank}q")
    if any(extent < 0 for extent in shape):
        raise reader.fail(f"{name!r} has shape {shape}")
    (size,) = reader.numbers("<q")
    dtype = np.dtype("uint8" if kind == "bool" else kind).newbyteorder("<")
    count = math.prod(shape)
    if size != count * dtype.itemsize:
        raise reader.fail(
            f"{name!r} has {size} bytes; expected {count * dtype.itemsize} for shape {shape} and type {kind}"
        )
    held = reader.block(size)
    try:
        values = np.frombuffer(held, dtype, count).reshape(shape) if count else np.empty(shape, dtype)
    except ValueError:
        raise reader.fail(f"{name!r} has shape {shape}") from None
    return values != 0 if kind == "bool" else values
