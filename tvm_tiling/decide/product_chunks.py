"""How much of a product one instruction of an accelerator loads and multiplies (pages 01 and 06).

The cut of page 01 says what lies in the buffers at once. Engines overlap if that comes and goes in smaller pieces: the
matrix engine starts when the first pieces are there, and a piece whose last use is over makes room for another. Small
pieces lose to rounding, as every instruction takes whole cycles, and to what each instruction costs. So the pieces are
those with the least estimated time, of few candidates:

- K split: steps of partition_k are cut along k, evenly, since pieces take turns in the buffers and a short one would
  leave the next no time to be loaded in. Each piece of A and of B is used once and leaves; partial sums stay. Until the
  first pieces are there the matrix engine waits, and it works alone on the last.
- Not split: the operand of the outer loop stays, a partition at a time. It comes in tiles of whole rows, and the first
  piece of the other operand is multiplied with each tile as it comes. So a large piece hides the arrival of what stays,
  a small one is soon there and soon done with at the end.

Partitions are evened out: as many of them as decided, of nearly equal size, so that none is short of work to hide the
loads behind. An operand that the cut reads once although its loops would read it again stays as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..hardware.near_tile import NearTile
from .tiling import GemmTiling
from .traffic import Product, ceil_div

MOST_CUTS = 8  # pieces of a partition along one dimension, more only where sums find no room otherwise
MOST_VERSIONS = 16
WORTH = 0.002  # part of the time that more instructions have to win
EACH = 0.05  # cycles that an instruction is taken to cost beyond its own: few are better than many that are as good


@dataclass(frozen=True)
class ProductChunks:
    """Pieces of a cut, in elements, and how they take turns.

    The loops over m, n and k go in steps of `step_m`, `step_n` and `depth`, those within a step of m and n by tiles.
    `tile_m` x `tile_n` x `depth` is one instruction of the matrix engine. `versions` are how many steps of an operand
    may be in its buffer at once. `whole_a`, `whole_b`: the operand stays as a whole. `sums` is the memory of the sums,
    "acc" or "out".
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
    sums: str


def product_chunks(p: Product, tiling: GemmTiling, unit: NearTile) -> ProductChunks:
    """The pieces of `tiling` on a machine with `unit`."""
    if tiling.partition_k < p.k:
        return _split(p, tiling, unit)
    return _unsplit(p, tiling, unit)


def _whole_cycles(cycles: float, each: float) -> float:
    """`cycles` in instructions of `each` cycles, of which every one takes whole cycles."""
    return cycles * ceil_div(int(each * 1024), 1024) / each if each > 0 else cycles


def _evened(size: int, partition: int, block: int) -> int:
    """The partition that cuts `size` into as many parts, as equal as whole blocks make them."""
    return min(partition, ceil_div(ceil_div(size, ceil_div(size, partition)), block) * block)


def _split(p: Product, tiling: GemmTiling, unit: NearTile) -> ProductChunks:
    rows, columns = min(tiling.partition_m, p.m), min(tiling.partition_n, p.n)
    blocks = ceil_div(p.m, rows) * ceil_div(p.n, columns)
    steps = ceil_div(p.k, tiling.partition_k)
    buffers = 2 if unit.double_buffer else 1
    best: tuple[float, int, int] | None = None
    for depth in dict.fromkeys(_depth(p, steps * cuts, tiling.partition_k, unit) for cuts in range(1, MOST_CUTS + 1)):
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
        versions_a=_versions(buffers * p.buf_a, rows * depth * p.d_s),
        versions_b=_versions(buffers * p.buf_b, columns * depth * p.d_s),
        whole_a=p.fits_a and ceil_div(p.n, columns) > 1,
        whole_b=p.fits_b and ceil_div(p.m, rows) > 1,
        sums="acc",
    )


def _depth(p: Product, pieces: int, most: int, unit: NearTile) -> int:
    """The depth of a piece where k is cut into so many, or a few more."""
    depth = ceil_div(p.k, min(pieces, p.k))
    whole = ceil_div(depth, unit.block_k) * unit.block_k
    return whole if whole <= most else min(depth, most)


def _versions(room: int, size: int) -> int:
    return max(1, min(MOST_VERSIONS, room // size))


def _piece(size: int, whole: int, cuts: int, block: int) -> int:
    """A piece of a partition of `size` in at most `cuts` pieces. Only at the end of the whole dimension may a piece be
    shorter: elsewhere pieces divide the partition."""
    if size >= whole:
        return min(size, ceil_div(ceil_div(size, cuts), block) * block)
    return next(size // c for c in range(cuts, 0, -1) if size % c == 0 and (size // c % block == 0 or c == 1))


# ---- K not split -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Side:
    """One dimension of a product that is not split: its size, its partition, the block, cycles of one load of a row."""

    size: int
    partition: int
    block: int
    row_cycles: float
    loads: int

    @property
    def total(self) -> float:
        """Cycles of all loads."""
        return self.loads * self.size * self.row_cycles


def _unsplit(p: Product, tiling: GemmTiling, unit: NearTile) -> ProductChunks:
    side_m = _Side(p.m, min(tiling.partition_m, p.m), p.block_m, p.load_a_cycles / p.m, tiling.load_a)
    side_n = _Side(p.n, min(tiling.partition_n, p.n), p.block_n, p.load_b_cycles / p.n, tiling.load_b)
    keeps_a = tiling.outer_order == "mn"
    kept, passing = (side_m, side_n) if keeps_a else (side_n, side_m)
    buffers = 2 if unit.double_buffer else 1
    room = buffers * (p.buf_b if keeps_a else p.buf_a)
    best: tuple[float, int, int, int, str] | None = None
    for step, tile in _candidates(kept):
        for piece in dict.fromkeys(_pieces(passing)):
            sums = _memory_of_sums(tile * piece, unit)
            if sums is None:
                continue
            versions = _versions(room, piece * p.k * p.d_s)
            cycles = _estimate(p, unit, kept, passing, step, tile, piece, versions)
            if best is None or cycles < best[0] * (1 - WORTH):
                best = (cycles, step, tile, piece, sums)
    assert best is not None  # a single sum has room in any memory
    _, step, tile, piece, sums = best
    versions = _versions(room, piece * p.k * p.d_s)
    return ProductChunks(
        step_m=step if keeps_a else piece,
        step_n=piece if keeps_a else step,
        depth=p.k,
        tile_m=tile if keeps_a else piece,
        tile_n=piece if keeps_a else tile,
        versions_a=buffers if keeps_a else versions,
        versions_b=versions if keeps_a else buffers,
        whole_a=False,
        whole_b=False,
        sums=sums,
    )


def _cuts(size: int) -> Iterator[int]:
    """Into how many pieces a partition may be cut."""
    yield from range(1, min(size, MOST_CUTS) + 1)
    cuts = 2 * MOST_CUTS
    while cuts < size:
        yield cuts
        cuts *= 2
    yield size


def _candidates(kept: _Side) -> Iterator[tuple[int, int]]:
    """(partition, tile) of the operand that stays: evened out, the tile dividing the partition or the last one."""
    for cuts in _cuts(kept.partition):
        block = kept.block if kept.partition % kept.block == 0 else 1
        step = _evened(kept.size, kept.partition, min(block * cuts, kept.partition))
        if step >= kept.size:
            yield step, _piece(step, kept.size, cuts, kept.block)
        elif step % cuts == 0:
            yield step, step // cuts


def _pieces(passing: _Side) -> Iterator[int]:
    """Pieces of the operand that passes by, none larger than its partition."""
    for cuts in _cuts(passing.partition):
        whole = min(passing.partition, ceil_div(ceil_div(passing.partition, cuts), passing.block) * passing.block)
        yield _evened(passing.size, whole, passing.block)


def _memory_of_sums(elements: int, unit: NearTile) -> str | None:
    """Where two tiles of sums have room: the accumulation buffer, else the output buffer, a half of which is left to
    results and what is read beside them."""
    size = 2 * elements * (unit.acc_bytes_per_element or 4)
    if size <= unit.acc_max:
        return "acc"
    return "out" if unit.out_bytes is None or 2 * size <= unit.out_bytes or elements == 1 else None


def _estimate(
    p: Product, unit: NearTile, kept: _Side, passing: _Side, step: int, tile: int, piece: int, versions: int
) -> float:
    """Cycles of the product: the start, until what stays is there; then what takes longest; and the end."""
    each = p.gemm_cycles * tile / p.m * piece / p.n
    if kept.size != p.m:
        each = p.gemm_cycles * tile / p.n * piece / p.m
    work = _whole_cycles(p.gemm_cycles, each) + (unit.fill * p.gemm_cycles / each)
    ratio = work / p.gemm_cycles
    turn = each * ratio * step / tile  # a piece with all of what stays
    arrival = step * kept.row_cycles
    first = piece * passing.row_cycles
    begun = max(first + turn, arrival + each * ratio)  # when the first piece is done with
    stall = max(0.0, begun - versions * first)  # how long the loads of what passes find no room
    computing = begun + work - turn
    passing_by = _whole_cycles(passing.total, first) + stall + turn
    rounds = ceil_div(kept.size, step)
    staying = kept.total + work / rounds if kept.total > work else 0.0
    return max(computing, passing_by, staying) + EACH * p.gemm_cycles / each
