"""How much of a product one instruction of an accelerator loads and multiplies (pages 01 and 06).

The configuration of page 01 says what lies in the buffers at once. Engines overlap if that comes and goes in smaller
pieces: the matrix engine starts when the first pieces are there, and a piece whose last use is over makes room for
another. Small pieces lose to rounding, as every instruction takes whole cycles, and to what each instruction costs. So
the pieces are those with the least estimated time, of few candidates:

- K split: steps of partition_k are cut along k, evenly, since pieces take turns in the buffers and a short one would
  leave the next no time to be loaded in. Each piece of A and of B is used once and leaves; partial sums stay, those of
  two blocks where there is room and results take time to leave. Until the first pieces are there the matrix engine
  waits, and it works alone on the last.
- Not split: the operand of the outer loop stays, a partition at a time, and has to come before all of it has work. What
  is multiplied meanwhile hides that; gemm/unsplit.py tells how.

Partitions are evened out where K is not split: as many of them as decided, of nearly equal size, so that none is short
of work to hide the loads behind. An operand that the configuration reads once although its loops would read it again
stays as a whole.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from ...hardware.description import Hardware
from ...hardware.near_tile import NearTile
from ..tiling import GemmTiling, ProductChunks
from .product_time import ProductEngines
from .split_time import split_cycles
from .traffic import Product, ceil_div
from .unsplit import unsplit_nest

MOST_CONFIGS = 8  # pieces of a partition along k
MOST_VERSIONS = 16
WORTH = 0.002  # part of the time that more instructions have to win
EACH = 0.05  # cycles that an instruction is taken to cost beyond its own: few are better than many that are as good


def product_chunks(p: Product, tiling: GemmTiling, hardware: Hardware) -> ProductChunks:
    """The pieces of `tiling` on `hardware.near_tile`."""
    return _chunks(p, replace(tiling, reasons=(), chunks=None), hardware)


@functools.lru_cache(maxsize=1024)
def _chunks(p: Product, tiling: GemmTiling, hardware: Hardware) -> ProductChunks:
    unit = hardware.near_tile
    assert unit is not None  # whoever has a Product has it from such a machine
    engines = ProductEngines(p, hardware)
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
    """`cycles` in instructions of `each` cycles, of which every one takes whole cycles."""
    return cycles * ceil_div(int(each * 1024), 1024) / each if each > 0 else cycles


def _split(p: Product, tiling: GemmTiling, unit: NearTile, engines: ProductEngines) -> ProductChunks:
    rows, columns = min(tiling.partition_m, p.m), min(tiling.partition_n, p.n)
    blocks = ceil_div(p.m, rows) * ceil_div(p.n, columns)
    steps = ceil_div(p.k, tiling.partition_k)
    buffers = 2 if unit.double_buffer else 1
    best: tuple[float, int, int] | None = None
    for depth in dict.fromkeys(
        _depth(p, steps * configs, tiling.partition_k, unit) for configs in range(1, MOST_CONFIGS + 1)
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
    """The depth of a piece where k is cut into so many, or a few more."""
    depth = ceil_div(p.k, min(pieces, p.k))
    whole = ceil_div(depth, unit.block_k) * unit.block_k
    return whole if whole <= most else min(depth, most)


def _versions(room: int, size: int) -> int:
    return max(1, min(MOST_VERSIONS, room // size))


def _piece(size: int, whole: int, configs: int, block: int) -> int:
    """A piece of a partition of `size` in at most `configs` pieces. Only at the end of the whole dimension may a piece
    be shorter: elsewhere pieces divide the partition."""
    if size >= whole:
        return min(size, ceil_div(ceil_div(size, configs), block) * block)
    return next(size // c for c in range(configs, 0, -1) if size % c == 0 and (size // c % block == 0 or c == 1))
