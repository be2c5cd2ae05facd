"""GEMM and COLMV, and how every instruction that sums products is executed: exactly in integers.

    GEMM, COLMV,  c[m, n0, n1] (+)= sum over k0, k1, k2 of a[m, k0, k1, k2] * b[n0, n1, k0, k1, k2]; loops in the order
    WCONV         m, n0, n1, k0, k1, k2; adds to c where the flag ACCUMULATE is set, else overwrites it. The three
                  differ in their engine and thus in time. Integers are summed in the type of c, int32 or
                  int16, and wrap round there; floats in float32, rounded once
    GEMM          the matrix engine (design page 01): fill + blocks, the result drain later. Where partial blocks are
                  skipped, blocks = ceil(m*n*k / MAC per cycle), else ceil(m/block_m) * ceil(n/block_n) *
                  ceil(k/block_k), each taking as long as a full one. Where they are streamed, each block of block_m x
                  block_k of A takes the strips of n1, once for each n0. All instances of the innermost level work on it
                  together. The engine itself adds to sums that stay in its accumulation buffer
    COLMV         the column engine (design page 04; m: rows, k2: columns; immediate = (EP, VP)): ceil(k/EP) *
                  ceil(m/VP) for each column of the result, available the latency of EP later. All columns in one
                  instruction is row-wise order, which needs the whole vector; columns of x in one and those of h,
                  added to them, in the next is column-wise order, which starts before h is available

Integers are multiplied by the float matrix multiplication of the host, which is much faster than NumPy's for integers,
over stretches of k short enough for the float type to hold every partial sum exactly:

    type     through    largest product    stretch of k    largest sum
    int8     float32    2^14               2^10            2^24
    uint8    float32    255^2              2^8             < 2^24
    int16    float64    2^30               2^22            2^52

Stretches are added in int32, or in int16 where sums are kept in it; both wrap around as the adders of the hardware do.
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
"""n0, k0 and k1, which a multiplication of two matrices does not use."""

_STRETCH: dict[int, tuple[type[Any], int | None]] = {
    ElementType.INT8: (np.float32, 1 << 10),
    ElementType.UINT8: (np.float32, 1 << 8),
    ElementType.INT16: (np.float64, 1 << 22),
}


def multiply(a: np.ndarray, b: np.ndarray, c: np.ndarray, how: How) -> None:
    """Compute c[m, n0, n1] (+)= sum over k0, k1, k2 of a[m, k0, k1, k2] * b[n0, n1, k0, k1, k2].

    Integers accumulate in the type of c, int32 or int16. Floats accumulate in float32, to which c is added, and are
    rounded once to the type of c. If n0, k0 and k1 are 1, all three operands may omit them: a[m, k], b[n, k], c[m, n].
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
    """Return the sums in int32 with wraparound."""
    through, stretch = _STRETCH.get(kind, (np.int64, None))
    # Contiguous rows, whatever the order in memory: several loops collapse to one, and stretches are easy to slice.
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
    """Convert integers of any type to int32 with wraparound."""
    # Converting a float64 beyond int32 does not wrap; sums in float32 are at most 2^24.
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
    """Return the bytes of A, B and sums that the matrix engine touches.

    For each block of block_m x block_n sums the engine reads both operands, writes the sums, and reads them for every
    block of k except the first, and for that one if it accumulates. A block is block_k deep, or as deep as the
    multipliers reach in a cycle: with twice as many multipliers, sums are passed half as often and their energy halves.
    """
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
    """Return the bytes of a column instruction: the matrix is read once, the vector once for every VP rows."""
    _, rows = _together(batch)
    vectors = batch.k * batch.n * batch.element * -(-batch.m // rows)
    return batch.m * batch.k * batch.n * batch.element, vectors, (1 + batch.adds) * batch.m * batch.n * batch.result


def _together(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Return EP and VP of each instruction: the columns and rows that the engine processes at once."""
    columns, rows = batch.column("immediate").astype(np.int64).T
    return columns, rows


def summing(number: int, name: str, unit: Unit, cycles: Cost, traffic: Traffic) -> Instruction:
    """Return the row of an instruction that accumulates products on `unit`."""
    return Instruction(number, name, LOOPS, multiply, "sums", unit, cycles, traffic, when_once=OUTER, accumulates=True)


GEMM = summing(4, "GEMM", "near_tile", _gemm_cycles, _gemm_traffic)
COLMV = summing(6, "COLMV", "column", _column_cycles, _column_traffic)
