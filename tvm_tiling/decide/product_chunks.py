"""How much of a product one instruction of an accelerator loads and multiplies (pages 01 and 06).

The cut of page 01 says what lies in the buffers at once. Engines overlap if that comes and goes in smaller pieces: the
matrix engine starts when the first pieces are there, and a piece whose last use is over makes room for another.
Pieces that are too small lose to rounding, since every instruction takes whole cycles, and to what each instruction
costs; so a piece takes `ENOUGH` cycles where there is so much to do, and a partition is cut into few of them.

- K split: steps of partition_k are cut along k. Each piece of A and of B is used once and leaves; partial sums stay.
- Not split: the operand of the outer loop stays, a partition at a time, and comes in pieces of whole rows; the other
  passes by, in pieces too where its tiles are the outer ones of the inner loops, else a partition at a time.
- An operand that the cut reads once although its loops would read it again stays as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..hardware.near_tile import NearTile
from .tiling import GemmTiling
from .traffic import Product, ceil_div

ENOUGH = 128.0  # cycles that an instruction should take: rounding up costs at most a percent
MOST_CUTS = 8  # pieces of a partition along one dimension
FINE = 64  # partitions of a product that need no pieces: one is a small part of the whole


@dataclass(frozen=True)
class ProductChunks:
    """Pieces of a cut, in elements, and how they take turns.

    The loops over m, n and k go in steps of `step_m`, `step_n` and `depth`, those within a step of m and n by tiles.
    `tile_m` x `tile_n` x `depth` is one instruction of the matrix engine. `versions` are how many pieces, or steps of
    an operand that stays, may be in the buffer at once. `whole_a`, `whole_b`: the operand stays as a whole. `ring`: the
    operand that passes by comes tile by tile. `sums` is the memory of the sums, "acc" or "out".
    """

    step_m: int
    step_n: int
    depth: int
    tile_m: int
    tile_n: int
    versions_a: int
    versions_b: int
    whole_a: bool
    whole_b: bool
    ring: bool
    sums: str


def product_chunks(p: Product, tiling: GemmTiling, unit: NearTile) -> ProductChunks:
    """The pieces of `tiling` on a machine with `unit`."""
    shape = _Shape.of(p, tiling, unit)
    return _split(shape, tiling) if shape.depth < p.k else _unsplit(shape, tiling)


@dataclass(frozen=True)
class _Shape:
    """What both kinds of cut ask for: the partition, and what one of it takes in cycles."""

    p: Product
    unit: NearTile
    rows: int
    columns: int
    depth: int
    gemm: float
    load_a: float
    load_b: float
    enough: float  # cycles of an instruction
    finest: int  # most pieces of a partition along one dimension
    buffers: int

    @classmethod
    def of(cls, p: Product, tiling: GemmTiling, unit: NearTile) -> _Shape:
        rows, columns, depth = (
            min(part, size)
            for part, size in ((tiling.partition_m, p.m), (tiling.partition_n, p.n), (tiling.partition_k, p.k))
        )
        steps = ceil_div(p.m, rows) * ceil_div(p.n, columns) * ceil_div(p.k, depth)
        return cls(
            p=p,
            unit=unit,
            rows=rows,
            columns=columns,
            depth=depth,
            gemm=p.gemm_cycles * (rows * columns * depth) / (p.m * p.n * p.k),
            load_a=rows * depth * p.d_s / p.bw_a,
            load_b=columns * depth * p.d_s / p.bw_b,
            enough=max(ENOUGH, 16.0 * (unit.fill + unit.drain)),
            finest=max(1, min(MOST_CUTS, ceil_div(FINE, steps))),
            buffers=2 if unit.double_buffer else 1,
        )

    def cuts(self, cycles: float, most: int) -> int:
        """Into how many pieces to cut what takes `cycles`."""
        return max(1, min(int(cycles / self.enough), most))

    def turns(self, buffer: int, elements: int) -> int:
        """How many pieces of so many elements the buffer holds, of which half are used."""
        return max(1, min(2 * MOST_CUTS, self.buffers * buffer // (elements * self.p.d_s)))

    def again_a(self) -> bool:
        return self.p.fits_a and ceil_div(self.p.n, self.columns) > 1

    def again_b(self) -> bool:
        return self.p.fits_b and ceil_div(self.p.m, self.rows) > 1


def _split(shape: _Shape, tiling: GemmTiling) -> ProductChunks:
    p, unit = shape.p, shape.unit
    cuts = shape.cuts(max(shape.gemm, shape.load_a, shape.load_b), min(shape.finest, shape.depth))
    # All pieces of k equal: they take turns, and a short one would leave the next one no time to be loaded in.
    pieces = ceil_div(p.k, shape.depth) * cuts
    depth = min(shape.depth, ceil_div(ceil_div(p.k, pieces), unit.block_k) * unit.block_k)
    tiles = shape.cuts(shape.gemm * depth / shape.depth, 4)
    tile_m, tile_n = shape.rows, shape.columns
    if tiling.inner_order == "nm":
        tile_n = _piece(shape.columns, p.n, tiles, p.block_n)
    else:
        tile_m = _piece(shape.rows, p.m, tiles, p.block_m)
    return ProductChunks(
        step_m=shape.rows,
        step_n=shape.columns,
        depth=depth,
        tile_m=tile_m,
        tile_n=tile_n,
        versions_a=shape.turns(p.buf_a, shape.rows * depth),
        versions_b=shape.turns(p.buf_b, shape.columns * depth),
        whole_a=shape.again_a(),
        whole_b=shape.again_b(),
        ring=True,
        sums="acc",
    )


def _unsplit(shape: _Shape, tiling: GemmTiling) -> ProductChunks:
    p = shape.p
    keeps_a = tiling.outer_order == "mn"
    kept, passing = (shape.load_a, shape.load_b) if keeps_a else (shape.load_b, shape.load_a)
    cuts_passing = shape.cuts(max(shape.gemm, passing), shape.finest)
    cuts_kept = shape.cuts(max(shape.gemm / cuts_passing, kept), MOST_CUTS)
    cuts_m, cuts_n = (cuts_kept, cuts_passing) if keeps_a else (cuts_passing, cuts_kept)
    steps = [shape.rows, shape.columns]
    tiles = [_piece(shape.rows, p.m, cuts_m, p.block_m), _piece(shape.columns, p.n, cuts_n, p.block_n)]
    passes = 1 if keeps_a else 0  # which of the two dimensions is that of the operand that passes by
    if tiles[passes] == steps[passes] and (cuts_m, cuts_n)[passes] > 1:
        # A partition that cannot be cut evenly need not be walked as one: nothing but its pieces lies in the buffer.
        block = (p.block_m, p.block_n)[passes]
        steps[passes] = tiles[passes] = _rounded(steps[passes], (cuts_m, cuts_n)[passes], block)
    tiles[0], tiles[1], sums = _with_room(shape, tiles[0], tiles[1], steps)
    outer_tiles_pass = (tiling.inner_order == "nm") == keeps_a
    ring = outer_tiles_pass or tiles[1 - passes] >= steps[1 - passes]
    held = [steps[0], steps[1]]
    if ring:
        held[passes] = tiles[passes]
    return ProductChunks(
        step_m=steps[0],
        step_n=steps[1],
        depth=shape.depth,
        tile_m=tiles[0],
        tile_n=tiles[1],
        versions_a=shape.buffers if keeps_a else shape.turns(p.buf_a, held[0] * p.k),
        versions_b=shape.turns(p.buf_b, held[1] * p.k) if keeps_a else shape.buffers,
        whole_a=shape.again_a() and not keeps_a,
        whole_b=shape.again_b() and keeps_a,
        ring=ring,
        sums=sums,
    )


def _rounded(size: int, cuts: int, block: int) -> int:
    """The piece of `size` in `cuts` pieces: a multiple of `block`, or all of it."""
    return min(size, ceil_div(ceil_div(size, cuts), block) * block)


def _piece(size: int, whole: int, cuts: int, block: int) -> int:
    """A piece of a partition of `size` in at most `cuts` pieces. Only at the end of the whole dimension may a piece be
    shorter: elsewhere pieces divide the partition."""
    if size >= whole:
        return _rounded(size, cuts, block)
    return next(size // c for c in range(cuts, 0, -1) if size % c == 0 and (size // c % block == 0 or c == 1))


def _with_room(shape: _Shape, tile_m: int, tile_n: int, steps: list[int]) -> tuple[int, int, str]:
    """A tile of which two fit the memory of the sums, and which memory that is: the accumulation buffer, or where it is
    too small and results leave through a buffer without limit, that one."""
    p, unit = shape.p, shape.unit
    per = unit.acc_bytes_per_element or 4
    if 2 * tile_m * tile_n * per <= unit.acc_max:
        return tile_m, tile_n, "acc"
    if unit.out_bytes is None:
        return tile_m, tile_n, "out"
    # Of the output buffer the sums take a quarter at most: results and what is read beside them lie there too.
    sums, room = max(("acc", unit.acc_max // (2 * per)), ("out", unit.out_bytes // (4 * per)), key=lambda pair: pair[1])
    cuts = [1, 1]
    while tile_m * tile_n > room and (tile_m > 1 or tile_n > 1):
        longer = 0 if tile_m >= tile_n else 1
        cuts[longer] = ceil_div(steps[longer], (tile_m, tile_n)[longer]) + 1
        if longer == 0:
            tile_m = min(tile_m - 1, _fine_piece(steps[0], p.m, cuts[0]))
        else:
            tile_n = min(tile_n - 1, _fine_piece(steps[1], p.n, cuts[1]))
    return tile_m, tile_n, sums


def _fine_piece(size: int, whole: int, cuts: int) -> int:
    """A piece of a partition in at least `cuts` pieces that divide it, or the whole dimension in about as many."""
    if size >= whole:
        return max(1, ceil_div(size, cuts))
    return next(size // c for c in range(cuts, size + 1) if size % c == 0) if cuts <= size else 1
