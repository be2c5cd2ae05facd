"""Program steps: how much of a matrix multiplication one accelerator instruction loads and multiplies.

The partition says what the buffers hold at once. Engines overlap if data moves in smaller steps: the matrix engine
starts when the first steps have arrived, and a step frees its space after its last use. Small steps cost more, because
every instruction takes whole cycles and has a fixed overhead. So the steps with the least estimated time among a few
candidates are chosen:

- With split-K, steps of partition_k are divided evenly along K, since steps alternate in the buffers and a short one
  would leave no time to load the next. Each step of A and of B is used once. Partial sums stay resident, those of two
  blocks if there is space and storing results takes time. The matrix engine waits for the first steps and works without
  overlap on the last.
- Without split-K, the operand of the outer loop stays resident one partition at a time, and all of it must arrive
  before the matrix engine can use all of it. Multiplications in the meantime cover the transfer; see gemm/unsplit.py.

Without split-K, partitions are evened out: there are as many as decided, of nearly equal size, so that each has enough
work to cover the loads. An operand that the configuration reads once although its loops would read it again stays
resident as a whole.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from ...hardware.description import Hardware
from ...hardware.near_tile import NearTile
from ..tiling import GemmTiling, ProductChunks
from .product_time import ProductEngines, engines_for
from .split_time import split_cycles
from .traffic import Product, ceil_div
from .unsplit import unsplit_nest

MOST_PARTS = 8  # steps per partition along K
MOST_VERSIONS = 16
WORTH = 0.002  # share of the time that more instructions must save
# Penalty in cycles per instruction, so that of equally fast candidates the one with fewer instructions wins.
EACH = 0.05


def product_chunks(p: Product, tiling: GemmTiling, hardware: Hardware) -> ProductChunks:
    """Return the program steps of `tiling` on `hardware.near_tile`."""
    return _chunks(p, replace(tiling, reasons=(), chunks=None), hardware)


@functools.lru_cache(maxsize=1024)
def _chunks(p: Product, tiling: GemmTiling, hardware: Hardware) -> ProductChunks:
    unit = hardware.near_tile
    assert unit is not None  # product_on has refused machines without it
    engines = engines_for(p, hardware)
    if tiling.partition_k < p.k:
        chunks = _split(p, tiling, unit, engines)
        return replace(chunks, cycles=split_cycles(p, tiling, chunks, engines))
    return _unsplit(p, tiling, hardware, engines)


def _unsplit(p: Product, tiling: GemmTiling, hardware: Hardware, engines: ProductEngines) -> ProductChunks:
    nest, sums = unsplit_nest(p, tiling, hardware)
    (step_m, tile_m), (step_n, tile_n) = (nest.step, nest.tile), (nest.group, nest.piece)
    if not nest.keeps_a:
        (step_m, tile_m), (step_n, tile_n) = (step_n, tile_n), (step_m, tile_m)
    return ProductChunks(
        step_m=step_m,
        step_n=step_n,
        depth=nest.depth,
        tile_m=tile_m,
        tile_n=tile_n,
        sync_m=tile_m,
        sync_n=tile_n,
        versions_a=nest.buffers if nest.keeps_a else nest.held,
        versions_b=nest.held if nest.keeps_a else nest.buffers,
        whole_a=False,
        whole_b=False,
        stays="a" if nest.keeps_a else "b",
        backward=nest.backward,
        sums=sums,
        versions_sums=nest.sums,
        cycles=float(engines.cycles(nest)),
    )


def _whole_cycles(cycles: float, each: float) -> float:
    """Return `cycles` spent in instructions of `each` cycles, with each instruction rounded up to whole cycles."""
    return cycles * ceil_div(int(each * 1024), 1024) / each if each > 0 else cycles


def _split(p: Product, tiling: GemmTiling, unit: NearTile, engines: ProductEngines) -> ProductChunks:
    rows, columns = min(tiling.partition_m, p.m), min(tiling.partition_n, p.n)
    blocks = ceil_div(p.m, rows) * ceil_div(p.n, columns)
    steps = ceil_div(p.k, tiling.partition_k)
    buffers = 2 if unit.double_buffer else 1
    best: tuple[float, int, int] | None = None
    for depth in dict.fromkeys(
        _depth(p, steps * parts, tiling.partition_k, unit) for parts in range(1, MOST_PARTS + 1)
    ):
        gemm, load_a, load_b = (
            total * depth / p.k / blocks
            for total in (p.gemm_cycles, tiling.load_a * p.load_a_cycles, tiling.load_b * p.load_b_cycles)
        )
        for tiles in (1, 2, 4):
            each = gemm / tiles
            work = _whole_cycles(p.gemm_cycles, each) + unit.fill * p.gemm_cycles / each
            loads = (
                _whole_cycles(tiling.load_a * p.load_a_cycles, load_a),
                _whole_cycles(tiling.load_b * p.load_b_cycles, load_b),
            )
            cycles = max(work + max(load_a, load_b), *loads) + each + EACH * p.gemm_cycles / each
            if best is None or cycles < best[0] * (1 - WORTH):
                best = (cycles, depth, tiles)
    assert best is not None
    _, depth, tiles = best
    tile_m, tile_n = rows, columns
    if tiling.inner_order == "nm":
        tile_n = _piece(columns, p.n, tiles, p.block_n)
    else:
        tile_m = _piece(rows, p.m, tiles, p.block_m)
    return ProductChunks(
        step_m=rows,
        step_n=columns,
        depth=depth,
        tile_m=tile_m,
        tile_n=tile_n,
        sync_m=tile_m,
        sync_n=tile_n,
        versions_a=_versions(buffers * p.buf_a, rows * depth * p.d_a),
        versions_b=_versions(buffers * p.buf_b, columns * depth * p.d_b),
        whole_a=p.fits_a and ceil_div(p.n, columns) > 1,
        whole_b=p.fits_b and ceil_div(p.m, rows) > 1,
        stays="",
        backward=False,
        sums="acc",
        versions_sums=2 if engines.leaving and blocks > 1 and 2 * rows * columns * p.d_acc <= p.acc_max else 1,
        cycles=0.0,
    )


def _depth(p: Product, pieces: int, most: int, unit: NearTile) -> int:
    """Return the depth of a step where K is divided into `pieces` steps or slightly more."""
    depth = ceil_div(p.k, min(pieces, p.k))
    whole = ceil_div(depth, unit.block_k) * unit.block_k
    return whole if whole <= most else min(depth, most)


def _versions(room: int, size: int) -> int:
    return max(1, min(MOST_VERSIONS, room // size))


def _piece(size: int, whole: int, parts: int, block: int) -> int:
    """Return the size of a piece if a partition of `size` is divided into at most `parts` pieces. Pieces divide the
    partition, except at the end of the dimension, where the last may be shorter.
    """
    if size >= whole:
        return min(size, ceil_div(ceil_div(size, parts), block) * block)
    return next(size // c for c in range(parts, 0, -1) if size % c == 0 and (size // c % block == 0 or c == 1))
