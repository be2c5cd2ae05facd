"""The constants of a compiled model in one memory block, each passed to the model's function as an argument.

A virtual machine with embedded constants has them twice while it is loaded, each variant of a model has them again, and
TVM records a memory scope for each and logs a warning for every scope that it later reads or writes. As arguments they
are the pages of a file, shared by the variants.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.arrays import ALIGNMENT
from ...runtime.pages import zeros

if TYPE_CHECKING:
    import tvm


@dataclass(frozen=True, kw_only=True)
class Place:
    """The location of a constant in the block: byte offset, shape in elements, TVM's name of the type."""

    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Size in bytes."""
        return _bytes(self.shape, self.dtype)


def _bytes(shape: Sequence[int], dtype: str) -> int:
    named = re.fullmatch(r"bool|[a-z]+(\d{1,3})(_[a-z0-9]+)?", dtype)
    if named is None:
        raise ValueError(f"a constant has type {dtype[:40]!r}")
    return math.prod(shape) * -(-int(named[1] or 8) // 8)  # of any size: a file may contain shapes beyond 64 bits


class Constants:
    """A block of bytes and the locations of the constants in it."""

    def __init__(self, block: np.ndarray, places: Sequence[Place], *, mapped: bool = False) -> None:
        """`block`: bytes aligned to ALIGNMENT. `mapped`: whether they are pages of a file."""
        self.block, self.places, self.mapped = block, tuple(places), mapped
        self._tensors: dict[int, tvm.runtime.Tensor] = {}

    def tensors(self, numbers: Sequence[int]) -> list[tvm.runtime.Tensor]:
        """The constants with these numbers as TVM tensors; they share the block's memory."""
        for number in numbers:
            if number not in self._tensors:
                self._tensors[number] = _tensor(self.block, self.places[number])
        return [self._tensors[number] for number in numbers]

    def describe(self) -> list[dict[str, Any]]:
        """The locations as plain values, to be read by places_of()."""
        return [asdict(place) for place in self.places]


def places_of(plain: Sequence[dict[str, Any]], size: int) -> list[Place]:
    """The locations from a describe() result for a block of `size` bytes. Raises ValueError if a constant is outside
    the block, or overlaps another one."""
    places = [Place(offset=int(p["offset"]), shape=tuple(map(int, p["shape"])), dtype=str(p["dtype"])) for p in plain]
    for place in places:
        if place.offset % ALIGNMENT or place.offset < 0 or min(place.shape, default=0) < 0:
            raise ValueError(f"a constant at {place.offset} has shape {place.shape}")
        if place.offset + place.size > size:
            raise ValueError(f"a constant ends at {place.offset + place.size}, outside {size} bytes")
    end = 0
    for place in sorted((place for place in places if place.size), key=lambda place: place.offset):
        if place.offset < end:
            raise ValueError(f"a constant at {place.offset} overlaps another one, which ends at {end}")
        end = place.offset + place.size
    return places


class Collection:
    """Constants collected from the variants of a model; equal ones are stored once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._values: list[np.ndarray | None] = []
        self._places: list[Place] = []
        self._end = 0

    def add(self, value: tvm.runtime.Tensor) -> int:
        """Add a constant and return its number; its memory is kept and must not be written any more."""
        from ...runtime.tensors import bytes_of  # imports TVM, like the tensor itself

        shape, dtype = tuple(int(extent) for extent in value.shape), str(value.dtype)
        content = bytes_of(value, _bytes(shape, dtype))
        key = (dtype, shape, hashlib.sha256(content.data).digest())
        if key not in self._found:
            self._found[key] = len(self._values)
            self._values.append(content)
            self._places.append(Place(offset=self._end, shape=shape, dtype=dtype))
            self._end += -(-content.nbytes // ALIGNMENT) * ALIGNMENT
        return self._found[key]

    def size(self, number: int) -> int:
        """Bytes of a constant."""
        return self._places[number].size

    def together(self) -> Constants:
        """Copy all of them to one block, releasing each; gaps are zeros, because the block is saved as it is. Call this
        once, at the end."""
        block = zeros(self._end)
        for number, place in enumerate(self._places):
            block[place.offset : place.offset + place.size] = self._values[number]
            self._values[number] = None
        return Constants(block, self._places)


def _tensor(block: np.ndarray, place: Place) -> tvm.runtime.Tensor:
    import tvm  # not needed by models with a plan

    content = block[place.offset : place.offset + place.size]
    if not content.size:
        return tvm.runtime.empty(place.shape, place.dtype)
    return tvm.runtime.from_dlpack(content)._create_view(place.shape, place.dtype)
