"""The constants of a compiled model in one piece of memory, each given to the model's function as an argument.

A virtual machine that holds constants of its own has them twice while it is loaded, each variant of a model has them
again, and TVM notes a memory scope for each when a machine is made and logs a warning for every scope that it writes or
reads afterwards. As arguments they are the pages of a file, and variants share them.
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
    """Where a constant lies in the block: bytes from its start, shape in elements, TVM's name of the type."""

    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Bytes."""
        return _bytes(self.shape, self.dtype)


def _bytes(shape: Sequence[int], dtype: str) -> int:
    named = re.fullmatch(r"bool|[a-z]+(\d{1,3})(_[a-z0-9]+)?", dtype)
    if named is None:
        raise ValueError(f"a constant of type {dtype[:40]!r}")
    return math.prod(shape) * -(-int(named[1] or 8) // 8)  # of any size: a file may state shapes beyond 64 bits


class Constants:
    """A block of bytes and the places of the constants in it."""

    def __init__(self, block: np.ndarray, places: Sequence[Place], *, mapped: bool = False) -> None:
        """`block`: bytes that start at a multiple of ALIGNMENT. `mapped`: whether they are pages of a file."""
        self.block, self.places, self.mapped = block, tuple(places), mapped
        self._tensors: dict[int, tvm.runtime.Tensor] = {}

    def tensors(self, numbers: Sequence[int]) -> list[tvm.runtime.Tensor]:
        """The constants of these numbers as TVM's tensors; they share the block's memory."""
        for number in numbers:
            if number not in self._tensors:
                self._tensors[number] = _tensor(self.block, self.places[number])
        return [self._tensors[number] for number in numbers]

    def describe(self) -> list[dict[str, Any]]:
        """The places as plain values; places_of() reads them."""
        return [asdict(place) for place in self.places]


def places_of(plain: Sequence[dict[str, Any]], size: int) -> list[Place]:
    """What describe() wrote of a block of `size` bytes. ValueError where a place is outside of it, or in another."""
    places = [Place(offset=int(p["offset"]), shape=tuple(map(int, p["shape"])), dtype=str(p["dtype"])) for p in plain]
    for place in places:
        if place.offset % ALIGNMENT or place.offset < 0 or min(place.shape, default=0) < 0:
            raise ValueError(f"a constant at {place.offset} of shape {place.shape}")
        if place.offset + place.size > size:
            raise ValueError(f"a constant ends at {place.offset + place.size} of {size} bytes")
    end = 0
    for place in sorted((place for place in places if place.size), key=lambda place: place.offset):
        if place.offset < end:
            raise ValueError(f"a constant at {place.offset} begins before another ends, at {end}")
        end = place.offset + place.size
    return places


class Collection:
    """Constants as they are gathered from one variant of a model after the other; equal ones are kept once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._values: list[np.ndarray | None] = []
        self._places: list[Place] = []
        self._end = 0

    def add(self, value: tvm.runtime.Tensor) -> int:
        """The number of that constant from now on; its memory is kept, and not to be written to any more."""
        from ...runtime.tensors import bytes_of  # which brings TVM, as the tensor has

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
        """All of them in one block, each let go of when it is there; what lies between them is zeros, for the block is
        saved as it is. To be called once, at the end."""
        block = zeros(self._end)
        for number, place in enumerate(self._places):
            block[place.offset : place.offset + place.size] = self._values[number]
            self._values[number] = None
        return Constants(block, self._places)


def _tensor(block: np.ndarray, place: Place) -> tvm.runtime.Tensor:
    import tvm  # which models with a plan do without

    content = block[place.offset : place.offset + place.size]
    if not content.size:
        return tvm.runtime.empty(place.shape, place.dtype)
    return tvm.runtime.from_dlpack(content)._create_view(place.shape, place.dtype)
