"""The header of a GGUF file: metadata by name, tensors by name, and their bytes.

The layout is that of ggml's docs/gguf.md, versions 2 and 3, little-endian. The file is not trusted: counts are bounded
before iteration, and every tensor must lie inside the file without overlapping another one.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...errors import ModelFormatError
from ...figures import quantity
from ...limits import MAX_EXTENT
from ...plain_text import printable
from ...runtime.pages import Contents
from .types import TENSOR_TYPES, TensorType

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_VALUES = 1 << 16  # metadata entries
MOST_TENSORS = 1 << 17
MOST_ELEMENTS = 1 << 23  # in all metadata arrays together
MOST_AXES = 4
_NUMBERS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_TEXT, _ARRAY = 8, 9
_WHOLE_FILE = "expected a complete GGUF file"


@dataclass(frozen=True)
class Tensor:
    """A tensor of the file: `shape` with the outermost axis first, its bytes starting at `start`."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    start: int
    size: int


@dataclass(frozen=True)
class Texts:
    """An array of strings that is read on demand."""

    contents: Contents
    start: int
    count: int

    def read(self) -> list[bytes]:
        """Return all strings."""
        content, at, found = self.contents.content, self.start, []
        for _ in range(self.count):
            (size,) = struct.unpack_from("<Q", content, at)
            found.append(bytes(content[at + 8 : at + 8 + size]))
            at += 8 + size
        return found


Value: TypeAlias = Any  # a number, a bool, a str, a NumPy array or Texts


class GgufFile:
    """A parsed GGUF header. `where` names the file in messages. ModelFormatError says what is wrong with it."""

    def __init__(self, contents: Contents, where: str) -> None:
        self.where, self.contents = where, contents
        self._content, self._at = contents.content, 0
        self._elements = 0
        self.metadata: dict[str, Value] = {}
        self.tensors: dict[str, Tensor] = {}
        try:
            self._read()
        except struct.error:
            raise ModelFormatError(
                f"{where} is truncated within its header, after {contents.size} bytes; {_WHOLE_FILE}"
            ) from None

    def part(self, tensor: Tensor, first: int = 0, count: int | None = None) -> np.ndarray:
        """Return the bytes of `count` rows of a tensor starting at row `first`: uint8[rows, bytes of a row]."""
        rows = math.prod(tensor.shape[:-1])
        row = tensor.size // max(rows, 1)
        number = rows - first if count is None else min(count, rows - first)
        return self.contents.part(tensor.start + first * row, number * row).reshape(number, row)

    # ---- the header -------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        if bytes(self._content[:4]) != MAGIC:
            raise ModelFormatError(f"{self.where} does not start with GGUF; {_WHOLE_FILE}")
        self._at = 4
        version = self._number("<I")
        if version not in VERSIONS:
            which = "big-endian" if version & 0xFFFF == 0 else f"of version {version}"
            raise ModelFormatError(f"{self.where}: a GGUF file {which}; expected little-endian, of version 2 or 3")
        tensors, values = self._number("<Q"), self._number("<Q")
        self._require("metadata values", values, MOST_VALUES)
        self._require("tensors", tensors, MOST_TENSORS)
        for _ in range(values):
            name = self._name("a metadata name")
            if name in self.metadata:
                raise ModelFormatError(f"{self.where}: metadata {name!r} appears twice; {_WHOLE_FILE}")
            self.metadata[name] = self._value(self._number("<I"), name)
        described = [self._tensor() for _ in range(tensors)]
        self._place(described)

    def _number(self, layout: str) -> Any:
        (found,) = struct.unpack_from(layout, self._content, self._at)
        self._at += struct.calcsize(layout)
        return found

    def _require(self, what: str, count: int, most: int) -> None:
        if count > most:
            raise ModelFormatError(f"{self.where}: {count} {what}; expected up to {most}")

    def _text(self, what: str) -> bytes:
        size = self._number("<Q")
        if size > self.contents.size - self._at:
            raise ModelFormatError(
                f"{self.where}: {what} has {size} bytes, but the file ends before that; {_WHOLE_FILE}"
            )
        self._at += size
        return bytes(self._content[self._at - size : self._at])

    def _name(self, what: str) -> str:
        found = self._text(what)
        if len(found) > 1 << 10:
            raise ModelFormatError(f"{self.where}: {what} has {len(found)} bytes; expected up to 1024")
        return found.decode("utf-8", "replace")

    def _value(self, kind: int, name: str) -> Value:
        shown = f"metadata {printable(name)!r}"
        if kind == _TEXT:
            return self._text(shown).decode("utf-8", "replace")
        if kind in _NUMBERS:
            return self._numbers(kind, 1, shown)[0].item()
        if kind != _ARRAY:
            raise ModelFormatError(f"{self.where}: {shown} has type {kind}; expected GGUF types 0 to 12")
        kind, count = self._number("<I"), self._number("<Q")
        self._elements += count
        self._require(f"elements in metadata arrays up to {shown}", self._elements, MOST_ELEMENTS)
        if kind in _NUMBERS:
            return self._numbers(kind, count, shown)
        if kind != _TEXT:
            raise ModelFormatError(f"{self.where}: {shown} is an array of type {kind}; expected numbers or strings")
        start = self._at
        for _ in range(count):
            (size,) = struct.unpack_from("<Q", self._content, self._at)
            self._at += 8 + size
            if self._at > self.contents.size:
                raise ModelFormatError(f"{self.where}: a string of {shown} exceeds the file; {_WHOLE_FILE}")
        return Texts(self.contents, start, count)

    def _numbers(self, kind: int, count: int, shown: str) -> np.ndarray:
        dtype = np.dtype(_NUMBERS[kind])
        if count * dtype.itemsize > self.contents.size - self._at:
            raise ModelFormatError(f"{self.where}: {shown} exceeds the file; {_WHOLE_FILE}")
        self._at += count * dtype.itemsize
        return np.frombuffer(self._content, dtype, count, self._at - count * dtype.itemsize)

    # ---- tensors ----------------------------------------------------------------------------------------------------

    def _tensor(self) -> tuple[str, tuple[int, ...], TensorType, int]:
        """Read name, shape, type and offset of the next tensor."""
        name = self._name("a tensor's name")
        what = f"{self.where}: tensor {printable(name)!r}"
        axes = self._number("<I")
        if not 1 <= axes <= MOST_AXES:
            raise ModelFormatError(f"{what} has {quantity(axes, 'axis', 'axes')}; expected 1 to {MOST_AXES}")
        shape = tuple(self._number("<Q") for _ in range(axes))[::-1]
        kind = self._number("<I")
        if not all(1 <= extent <= MAX_EXTENT for extent in shape):
            raise ModelFormatError(f"{what} has shape {list(shape)}; expected extents of 1 to {MAX_EXTENT}")
        if kind not in TENSOR_TYPES:
            raise ModelFormatError(f"{what} has unknown type {kind}; expected {_supported()}")
        found = TENSOR_TYPES[kind]
        if shape[-1] % found.elements:
            raise ModelFormatError(
                f"{what} of {found.name} has rows of {shape[-1]} elements; expected multiples of {found.elements}"
            )
        return name, shape, found, self._number("<Q")

    def _place(self, described: list[tuple[str, tuple[int, ...], TensorType, int]]) -> None:
        """Place the tensors in the file, with checks."""
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1) or alignment > 1 << 20:
            raise ModelFormatError(f"{self.where}: general.alignment = {alignment!r}; expected a power of two")
        begin = -(-self._at // alignment) * alignment
        for name, shape, kind, offset in described:
            what = f"{self.where}: tensor {printable(name)!r}"
            if name in self.tensors:
                raise ModelFormatError(f"{what} appears twice; {_WHOLE_FILE}")
            size = math.prod(shape) // kind.elements * kind.bytes
            if offset % alignment:
                raise ModelFormatError(f"{what} starts at byte {offset}; expected multiples of {alignment}")
            if begin + offset + size > self.contents.size:
                raise ModelFormatError(
                    f"{what} ends at byte {begin + offset + size}, but the file has {self.contents.size}; {_WHOLE_FILE}"
                )
            self.tensors[name] = Tensor(name, shape, kind, begin + offset, size)
        end, last = 0, ""
        for tensor in sorted(self.tensors.values(), key=lambda tensor: tensor.start):
            if tensor.start < end:
                both = f"{printable(last)!r} and {printable(tensor.name)!r}"
                raise ModelFormatError(f"{self.where}: tensors {both} overlap; {_WHOLE_FILE}")
            end, last = tensor.start + tensor.size, tensor.name


def _supported() -> str:
    return ", ".join(kind.name for kind in TENSOR_TYPES.values() if kind.is_supported)
