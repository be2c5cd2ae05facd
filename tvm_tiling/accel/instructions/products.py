"""GEMM and COLMV, and how every instruction that sums products is executed: exactly in integers.

    GEMM, COLMV,  c[m, n0, n1] (+)= sum over k0, k1, k2 of a[m, k0, k1, k2] * b[n0, n1, k0, k1, k2]; loops in the order
    WCONV         m, n0, n1, k0, k1, k2; adds to c where the flag ACCUMULATE is set, else overwrites it. The three
                  differ in the engine that does it and so in time. Integers are summed in the type of c, int32 or
                  int16, and wrap round there; floats in float32, rounded once
    GEMM          the matrix engine (page 01): fill + blocks, the result drain later. Where blocks that are not full are
                  skipped, blocks = ceil(m*n*k / MAC per cycle), else ceil(m/block_m) * ceil(n/block_n) *
                  ceil(k/block_k), each as many cycles as a full one. Where they are streamed, each block of block_m x
                  block_k of A takes the strips of n1, once for each n0. All instances of the innermost level work on it
                  together. Sums that stay in its accumulation buffer are added by the engine: that is its own work
    COLMV         the columns of page 04 (m: rows, k2: columns; immediate = (EP, VP)): ceil(k/EP) * ceil(m/VP) for each
                  column of the result, there the latency of EP later. All columns in one instruction is row-wise
                  order, which needs the whole vector; columns of x in one and those of h, added to them, in the next
                  is column-wise order, which starts before h is there

Integers are multiplied by the machine's float matrix product, which is much faster than NumPy's for integers, over
stretches of k short enough for every partial sum to be a whole number that the float type holds:

    type     through    largest product    stretch of k    largest sum
    int8     float32    2^14               2^10            2^24
    uint8    float32    255^2              2^8             < 2^24
    int16    float64    2^30               2^22            2^52

Stretches are added in int32, which wraps round as the hardware's adders do; so does int16, where sums are kept in it.
int32 operands are multiplied as int64, whose low half is the wrapped product.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...decide.gemm.strips import streamed_cycles
from ...hardware.machine import Machine
from ..program.elements import as_float32, is_integer, narrowed
from ..program.isa import ElementType, Operand
from .row import Batch, Cost, Cycles, How, Instruction, Traffic, Unit, ceil_quotient

LOOPS: Mapping[Operand, tuple[int, ...]] = {"a": (0, 3, 4, 5), "b": (1, 2, 3, 4, 5), "c": (0, 1, 2)}
OUTER = (1, 3, 4)
"""n0, k0 and k1: a product of two matrices has none of them."""

_STRETCH: dict[int, tuple[type[Any], int | None]] = {
    ElementType.INT8: (np.float32, 1 << 10),
    ElementType.UINT8: (np.float32, 1 << 8),
    ElementType.INT16: (np.float64, 1 << 22),
}


def multiply(a: np.ndarray, b: np.ndarray, c: np.ndarray, how: How) -> None:
    """c[m, n0, n1] (+)= sum over k0, k1, k2 of a[m, k0, k1, k2] * b[n0, n1, k0, k1, k2].

    Integers sum in c's type, int32 or int16. Floats sum in float32, to which c is added, and are rounded once, to the
    type of c. Where n0, k0 and k1 are 1, they may be left out of all three: a[m, k], b[n, k], c[m, n].
    """
    kind, result = how.kinds
    sums = _integer_sums(a, b, kind) if is_integer(kind) else _float_sums(a, b, kind)
    if c.ndim > 2:
        sums = sums.reshape(c.shape)
    if not is_integer(result) and result != ElementType.FLOAT32:
        c[...] = narrowed(as_float32(c, result) + sums if how.reads_c else sums, result)
    elif how.reads_c:
        np.add(c, sums.astype(c.dtype, copy=False), out=c)
    else:
        c[...] = sums.astype(c.dtype, copy=False)


def _float_sums(a: np.ndarray, b: np.ndarray, kind: int) -> np.ndarray:
    left, right = (x if kind == ElementType.FLOAT32 else as_float32(x, kind) for x in (a, b))
    if a.ndim > 2:
        left, right = _as_matrices(left, right)
    return left.dot(right.T)


def _integer_sums(a: np.ndarray, b: np.ndarray, kind: int) -> np.ndarray:
    """The sums in int32, wrapped round."""
    through, stretch = _STRETCH.get(kind, (np.int64, None))
    # Rows together, whatever their order in the memory: several loops are one then, and stretches are cut off easily.
    left, right = a.astype(through, order="C"), b.astype(through, order="C")
    if a.ndim > 2:
        left, right = _as_matrices(left, right)
    columns = left.shape[1]
    if stretch is None or columns <= stretch:
        return _wrapped(left.dot(right.T))
    sums = np.zeros((len(left), len(right)), np.int32)
    for start in range(0, columns, stretch):
        part = slice(start, start + stretch)
        sums += _wrapped(left[:, part].dot(right[:, part].T))
    return sums


def _as_matrices(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return a.reshape(a.shape[0], -1), b.reshape(b.shape[0] * b.shape[1], -1)


def _wrapped(sums: np.ndarray) -> np.ndarray:
    """Whole numbers of any type as int32, wrapped round."""
    # A float64 beyond int32 does not wrap when it becomes one; those of float32 are at most 2^24.
    return (sums.astype(np.int64) if sums.dtype == np.float64 else sums).astype(np.int32)


def _gemm_cycles(batch: Batch, machine: Machine) -> Cycles:
    tile = machine.hardware.near_tile
    assert tile is not None
    together = math.prod(level.instances for level in machine.hardware.levels)
    if tile.partial_blocks == "padded":
        full = -(-batch.m // tile.block_m) * -(-batch.n // tile.block_n) * -(-batch.k // tile.block_k)
        blocks = -(-full // together)
        for element, same in batch.each(batch.element):
            blocks[same] *= tile.block_cycles(element)
    elif tile.partial_blocks == "streamed":
        _, lines, columns, *taps, channels = batch.column("extent").astype(np.int64).T
        depth = taps[0] * taps[1] * -(-channels // tile.block_k)
        blocks = np.zeros(len(batch.number), dtype=np.int64)
        for element, same in batch.each(batch.element):
            sizes = (batch.m[same], lines[same], columns[same], depth[same])
            blocks[same] = streamed_cycles(tile, element, *sizes)
    else:
        blocks = np.zeros(len(batch.number), dtype=np.int64)
        for element, same in batch.each(batch.element):
            blocks[same] = ceil_quotient(batch.macs[same], tile.macs(element) * together)
    return np.maximum(tile.fill + blocks, tile.interval), tile.drain


def _gemm_traffic(batch: Batch, machine: Machine) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each block of block_m x block_n sums the engine reads both operands, writes the sums, and reads them for
    every block of k but the first, and for that one where it adds to them. A block is block_k deep, or as deep as its
    multipliers reach in a cycle: with twice as many, sums are passed half as often, and their energy halves."""
    tile = machine.hardware.near_tile
    assert tile is not None
    across, down = -(-batch.n // tile.block_n), -(-batch.m // tile.block_m)
    reach = np.array([tile.macs(element) for element in batch.element.tolist()]) / (tile.block_m * tile.block_n)
    deep = ceil_quotient(batch.k, np.maximum(reach, tile.block_k))
    sums = batch.m * batch.n * batch.result * (2 * deep - 1 + batch.adds)
    return batch.m * batch.k * batch.element * across, batch.k * batch.n * batch.element * down, sums


def _column_cycles(batch: Batch, machine: Machine) -> Cycles:
    column = machine.hardware.column
    assert column is not None
    columns, rows = _together(batch)
    batch.refuse(
        machine,
        ~np.isin(columns, column.column_counts) | (rows < 1) | (columns * rows > column.multipliers),
        lambda place: f"takes (EP, VP) = ({columns[place]}, {rows[place]})",
        f"EP of {', '.join(map(str, column.column_counts))} and EP * VP of at most {column.multipliers}",
    )
    latency = np.zeros(len(batch.number), dtype=np.int64)
    for count, same in batch.each(columns):
        latency[same] = column.latency(count)
    busy = -(-batch.k // columns) * -(-batch.m // rows) * batch.n
    return np.maximum(busy, column.interval), latency


def _column_traffic(batch: Batch, machine: Machine) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrix is read once, the vector for every VP rows."""
    _, rows = _together(batch)
    vectors = batch.k * batch.n * batch.element * -(-batch.m // rows)
    return batch.m * batch.k * batch.n * batch.element, vectors, (1 + batch.adds) * batch.m * batch.n * batch.result


def _together(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """EP and VP of each instruction: columns and rows that the engine takes at once."""
    columns, rows = batch.column("immediate").astype(np.int64).T
    return columns, rows


def summing(number: int, name: str, unit: Unit, cycles: Cost, traffic: Traffic) -> Instruction:
    """The row of an instruction that sums products on `unit`."""
    return Instruction(number, name, LOOPS, multiply, "sums", unit, cycles, traffic, when_once=OUTER, accumulates=True)


GEMM = summing(4, "GEMM", "near_tile", _gemm_cycles, _gemm_traffic)
COLMV = summing(6, "COLMV", "column", _column_cycles, _column_traffic)
