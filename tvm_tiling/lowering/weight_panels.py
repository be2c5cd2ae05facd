"""Block-quantised weights as arrays: as stored, as records, and as the panels that kernels read.

For each block, a panel holds the weights of its columns in the order in which the kernel reads them, followed by scales
and offsets; zero points and the factors that blocks share follow after all blocks. A word of a lane has 8 weights of 4
bits: bits 8 r are element r, bits 8 r + 4 element 4 + r, so that a mask, and a shift and a mask, give two groups of
bytes for a dot-product instruction. With 8 bits a word has 4 weights. 16 weights of 6 bits take three words: the lower
4 bits of all are in two words as above; bits 8 r + 2 g of the third are the upper 2 bits of element 4 g + r.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ..decide.gemm.blocked import BlockedProduct
from ..hardware.cpu import CACHE_LINE
from ..runtime.pages import zeros

# By the bits of a weight: weights, and words of a lane, that are decoded together.
UNITS = {4: (8, 1), 6: (16, 3), 8: (4, 1)}
_AT_ONCE = 1 << 20  # weights that are packed at a time, so that they stay in a cache


@dataclass(frozen=True)
class Blocks:
    """The weights of rows in blocks: `values` is uint8[rows, blocks, elements], one byte each; `scales`, `zeros` and
    `offsets` are [rows, blocks]; `factors` are float16[rows, groups] for scales, or for scales and then offsets.
    Omitted zeros are the middle of the values' range."""

    values: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None = None
    offsets: np.ndarray | None = None
    factors: tuple[np.ndarray, ...] = ()


BlocksOf: TypeAlias = Callable[[int, int], Blocks]
"""Those of some rows: the first, and how many."""


def row_bytes(values: np.ndarray, bits: int) -> np.ndarray:
    """Return the values, uint8[rows, blocks, elements], packed into bytes, the first in the lowest bits."""
    if bits == 8:
        return values
    if bits == 4:
        return values[..., 0::2] | (values[..., 1::2] << np.uint8(4))
    a, b, c, d = (values[..., place::4] for place in range(4))
    three = (a | (b << np.uint8(6)), (b >> np.uint8(2)) | (c << np.uint8(4)), (c >> np.uint8(4)) | (d << np.uint8(2)))
    return np.stack(three, axis=-1).reshape(*values.shape[:-1], -1)


def values_of(packed: np.ndarray, bits: int) -> np.ndarray:
    """Return the values that row_bytes() packed."""
    if bits == 8:
        return packed
    made = np.empty((*packed.shape[:-1], packed.shape[-1] * 8 // bits), np.uint8)
    if bits == 4:
        np.bitwise_and(packed, np.uint8(15), out=made[..., 0::2])
        np.right_shift(packed, np.uint8(4), out=made[..., 1::2])
        return made
    a, b, c = (packed[..., place::3] for place in range(3))
    made[..., 0::4] = a & np.uint8(63)
    made[..., 1::4] = (a >> np.uint8(6)) | ((b & np.uint8(15)) << np.uint8(2))
    made[..., 2::4] = (b >> np.uint8(4)) | ((c & np.uint8(3)) << np.uint8(4))
    made[..., 3::4] = c >> np.uint8(2)
    return made


# ---- records ---------------------------------------------------------------------------------------------------------


def record_memory(product: BlockedProduct) -> np.ndarray:
    """Return memory for the records of a matrix multiplication, which a constant shares."""
    shape = (product.n, product.blocks, product.record)
    return zeros(product.n * product.blocks * product.record).reshape(shape)


def records(found: Blocks, product: BlockedProduct, into: np.ndarray) -> None:
    """Write the weights of rows as records, uint8[rows, blocks, bytes of a record]."""
    shape, encoding = into.shape[:2], product.encoding
    into[..., : product.value_bytes] = row_bytes(found.values, product.bits)
    parts = [(product.value_bytes, found.scales, encoding.scales)]
    if found.offsets is not None:
        parts.append((product.zero_place, found.offsets, encoding.scales))
    else:
        into[..., product.zero_place] = product.centre if found.zeros is None else found.zeros
    for place, factors in enumerate(found.factors):
        shared = np.repeat(factors, encoding.grouped, axis=-1)[:, : shape[1]]
        parts.append((product.factor_place + 2 * place, shared, "float16"))
    for place, numbers, kind in parts:
        held = np.ascontiguousarray(numbers.reshape(*shape, 1), kind).view(np.uint8)
        into[..., place : place + held.shape[-1]] = held


def blocks_of_records(given: np.ndarray, product: BlockedProduct) -> BlocksOf:
    """Return a function that reads rows of records."""

    def rows(first: int, count: int) -> Blocks:
        part = given[first : first + count]
        encoding = product.encoding

        def numbers(place: int, kind: str) -> np.ndarray:
            held = part[..., place : place + np.dtype(kind).itemsize]
            return np.ascontiguousarray(held).view(kind)[..., 0]

        factors = (product.factor_place + 2 * place for place in range(product.factors))
        return Blocks(
            values_of(part[..., : product.value_bytes], product.bits),
            numbers(product.value_bytes, encoding.scales),
            zeros=None if encoding.offsets else part[..., product.zero_place],
            offsets=numbers(product.zero_place, encoding.scales) if encoding.offsets else None,
            factors=tuple(numbers(place, "float16")[:, :: encoding.grouped] for place in factors),
        )

    return rows


# ---- panels ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panels:
    """The weights of a matrix multiplication in panels of `nr` columns."""

    product: BlockedProduct
    nr: int

    @property
    def in_unit(self) -> int:
        """Weights of a lane that are decoded together."""
        return UNITS[self.product.bits][0]

    @property
    def unit_words(self) -> int:
        """Words of a lane that hold these weights."""
        return UNITS[self.product.bits][1]

    @property
    def units(self) -> int:
        """Units per block."""
        return self.product.encoding.block // self.in_unit

    @property
    def count(self) -> int:
        """Number of panels; the last one may have columns outside the matrix."""
        return -(-self.product.n // self.nr)

    @property
    def values(self) -> int:
        """Bytes of a block's weights."""
        return self.nr * self.product.value_bytes

    @property
    def shared(self) -> int:
        """Bytes of a block's scales or offsets."""
        return self.nr * self.product.scale_bytes

    @property
    def step(self) -> int:
        """Bytes of a block."""
        return self.values + self.shared * (1 + self.product.encoding.offsets)

    @property
    def tail(self) -> int:
        """Offset of the zero points or factors."""
        return self.product.blocks * self.step

    @property
    def groups(self) -> int:
        """Number of groups of blocks that share factors."""
        return -(-self.product.blocks // self.product.encoding.grouped) if self.product.factors else 0

    @property
    def size(self) -> int:
        """Bytes of a panel."""
        used = self.tail + (self.nr * self.product.blocks if self.product.encoding.zero_points else 0)
        return -(-(used + 2 * self.nr * self.product.factors * self.groups) // CACHE_LINE) * CACHE_LINE

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of all panels in bytes."""
        return self.count, self.size

    def pack(self, rows: BlocksOf, into: np.ndarray) -> None:
        """Pack the weights of all columns, given as rows, `into` uint8 zeros of `shape`."""
        p, nr = self.product, self.nr
        turn = max(1, _AT_ONCE // (nr * p.blocks * p.encoding.block))
        whole = p.n // nr
        for first in range(0, whole, turn):
            count = min(turn, whole - first)
            self._pack_some(rows(first * nr, count * nr), into[first : first + count], nr)
        if p.n % nr:
            self._pack_some(rows(whole * nr, p.n % nr), into[whole:], p.n % nr)

    def _pack_some(self, found: Blocks, into: np.ndarray, columns: int) -> None:
        """Pack panels of `columns` columns each."""
        p, nr, panels = self.product, self.nr, len(into)

        def transposed(values: np.ndarray, width: int) -> np.ndarray:
            return values.reshape(panels, columns, p.blocks, width).transpose(0, 2, 3, 1)

        blocks = into[:, : self.tail].reshape(panels, p.blocks, self.step)
        words = self._words(np.ascontiguousarray(found.values).reshape(panels * columns, p.blocks, -1))
        width = words.shape[-1]
        held = blocks[..., : self.values].view("<u4").reshape(panels, p.blocks, width, nr)
        held[..., :columns] = transposed(words, width)
        for place, numbers in enumerate((found.scales, found.offsets)):
            if numbers is not None:
                start = self.values + place * self.shared
                kind = np.dtype(p.encoding.scales)
                part = blocks[..., start : start + self.shared].view(kind)
                part[..., :columns] = transposed(numbers.astype(kind, copy=False), 1)[:, :, 0]
        behind = into[:, self.tail :]
        if p.encoding.zero_points:
            part = behind[:, : nr * p.blocks].reshape(panels, p.blocks, nr)
            given = np.full((panels * columns, p.blocks), p.centre) if found.zeros is None else found.zeros
            part[..., :columns] = transposed(given, 1)[:, :, 0]
        for place, factors in enumerate(found.factors):
            part = behind[:, : 2 * nr * p.factors * self.groups].view("<f2")
            part = part.reshape(panels, self.groups, p.factors, nr)[:, :, place, :columns]
            part[...] = factors.reshape(panels, columns, self.groups).transpose(0, 2, 1)

    def _words(self, values: np.ndarray) -> np.ndarray:
        """Return contiguous values as uint32[rows, blocks, words of a column]."""
        four = values.view("<u4")  # weights as the bytes of a word
        if self.product.bits == 8:
            return four
        if self.product.bits == 4:
            return four[..., 0::2] | (four[..., 1::2] << np.uint32(4))
        parts = [four[..., place::4] for place in range(4)]
        low, high = np.uint32(0x0F0F0F0F), np.uint32(0x03030303)
        made = np.empty((*four.shape[:-1], four.shape[-1] * 3 // 4), np.uint32)
        for word in (0, 1):
            first, second = parts[2 * word : 2 * word + 2]
            made[..., word::3] = (first & low) | ((second & low) << np.uint32(4))
        upper = [((part >> np.uint32(4)) & high) << np.uint32(2 * place) for place, part in enumerate(parts)]
        made[..., 2::3] = upper[0] | upper[1] | upper[2] | upper[3]
        return made
