"""Loop nests of a matrix multiplication without split-K on an accelerator.

The operand of the outer loop stays resident one partition at a time while the other streams past. Until a partition has
arrived, only its arrived part can be multiplied, and streamed data must stay in its buffer until it has met all of the
partition, since it is not loaded again. Two loop nests keep the multipliers busy in the meantime:

- by K: the partition arrives in steps of K together with a group of the streamed operand, as large as the accumulation
  buffer has space for sums. Each step of both is multiplied, and then the group's step is discarded. Groups after the
  first find the partition in its buffer.
- by tiles: the partition arrives in tiles, and each is multiplied by all pieces of a group that stays in its buffer.
  Sums of a tile are complete at once and need little space.

Either loop nest is better if its group covers the transfer time. Small steps, tiles and pieces start early and finish
early, but cost more, as every instruction takes whole cycles and has a fixed overhead. Candidates are ranked by a
closed form, and the best few are simulated piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...hardware.description import Hardware
from ...hardware.near_tile import NearTile
from ..tiling import GemmTiling
from .product_time import PieceNest, ProductEngines, engines_for
from .traffic import Product, ceil_div, round_down

PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # numbers of parts into which a partition, a group or K may be divided
HELD = (2, 3, 4, 6, 8, 12)  # steps of a group that the buffer may hold at once
HELD_GROUPS = (1, 2, 3, 4, 6, 8)  # whole groups that the buffer may hold at once
MOST_HELD = 64
EVEN = 8  # sizes of pieces and steps of K are also tried as multiples of this
ROUNDS = 4  # rounds of local search around the best candidate
TIMED = 16  # candidates of each loop nest that are simulated
HASTY = 4  # the same where a good candidate suffices
MOST_TIMED = 2500  # instructions simulated per candidate
EACH, WORTH = 0.05, 2e-7  # penalty of each instruction: in cycles, and as a share of all cycles


class Unsplit(NamedTuple):
    """A loop nest and the memory of its sums."""

    nest: PieceNest
    sums: str


def unsplit_nest(p: Product, tiling: GemmTiling, hardware: Hardware) -> Unsplit:
    """Return the fastest loop nest for the partitions of `tiling`."""
    unit = hardware.near_tile
    assert unit is not None  # product_on has refused machines without it
    engines = engines_for(p, hardware)
    sides = _Sides.of(p, tiling, unit)
    cycles, best = _fastest(p, engines, sides, TIMED)
    return _refined(p, engines, sides, cycles, best)


def hasty_cycles(p: Product, tiling: GemmTiling, hardware: Hardware) -> float:
    """Return the cycles of a quickly found loop nest, in most cases little more than those of the best one."""
    unit = hardware.near_tile
    assert unit is not None  # product_on has refused machines without it
    engines = engines_for(p, hardware)
    _, best = _fastest(p, engines, _Sides.of(p, tiling, unit), HASTY)
    return engines.cycles(best.nest, MOST_TIMED)


def _fastest(p: Product, engines: ProductEngines, sides: _Sides, most: int) -> tuple[float, Unsplit]:
    """Simulate the `most` candidates of each kind with the smallest estimates; return the least cost and its loop
    nest."""
    timed: list[tuple[float, int, Unsplit]] = []
    for candidates in (_by_k(sides), _by_tiles(sides)):
        found = list(candidates)
        estimates = sides.estimates(engines, [candidate.nest for candidate in found]) if found else np.empty(0)
        for place in np.argsort(estimates, kind="stable").tolist()[:most]:
            timed.append((_cost(p, engines, found[place].nest), len(timed), found[place]))
    cycles, _, best = min(timed)  # never empty: a single sum fits any memory
    return cycles, best


def _cost(p: Product, engines: ProductEngines, nest: PieceNest) -> float:
    """Return the cycles of a loop nest plus the penalty of its instructions."""
    number = nest.instructions(p)
    return engines.cycles(nest, MOST_TIMED) * (1 + WORTH * number) + EACH * number


def _refined(p: Product, engines: ProductEngines, sides: _Sides, cycles: float, best: Unsplit) -> Unsplit:
    """Return the best loop nest that changing one size at a time leads to."""
    tried = {best.nest}
    for _ in range(ROUNDS):
        before = best
        for other in sides.near(before):
            if other.nest not in tried:
                tried.add(other.nest)
                cost = _cost(p, engines, other.nest)
                if cost < cycles:
                    cycles, best = cost, other
        if best is before:
            break
    return best


@dataclass(frozen=True)
class _Sides:
    """The resident (`kept`) and the streamed (`passing`) operand: sizes, partitions and blocks in elements of m or n;
    cycles to load an element with all of K; bytes of the buffer of the streamed operand."""

    p: Product
    unit: NearTile
    keeps_a: bool
    kept: int
    step: int
    partition_kept: int
    kept_step: int  # partitions are multiples of this
    kept_block: int
    kept_cycles: float
    rounds: int
    passing: int
    partition: int
    passing_block: int
    passing_cycles: float
    passing_bytes: int  # bytes of an element
    room: int
    buffers: int

    @classmethod
    def of(cls, p: Product, tiling: GemmTiling, unit: NearTile) -> _Sides:
        keeps_a = tiling.outer_order == "mn"
        side_m = (p.m, min(tiling.partition_m, p.m), p.block_m, p.load_a_cycles / p.m)
        side_n = (p.n, min(tiling.partition_n, p.n), p.block_n, p.load_b_cycles / p.n)
        (kept, partition_kept, kept_block, kept_cycles), (passing, partition, passing_block, passing_cycles) = (
            (side_m, side_n) if keeps_a else (side_n, side_m)
        )
        buffers = 2 if unit.double_buffer else 1
        kept_step = kept_block if partition_kept % kept_block == 0 else 1
        step = _evened(kept, partition_kept, kept_step)
        return cls(
            p=p,
            unit=unit,
            keeps_a=keeps_a,
            kept=kept,
            step=step,
            partition_kept=partition_kept,
            kept_step=kept_step,
            kept_block=kept_block,
            kept_cycles=kept_cycles,
            rounds=ceil_div(kept, step),
            passing=passing,
            partition=partition,
            passing_block=passing_block,
            passing_cycles=passing_cycles,
            passing_bytes=p.d_b if keeps_a else p.d_a,
            room=buffers * (p.buf_b if keeps_a else p.buf_a),
            buffers=buffers,
        )

    def partitions(self, parts: int) -> list[tuple[int, bool]]:
        """Return (size, backward) of partitions that can be divided into `parts` tiles, as many partitions as
        decided: of nearly equal size, or as large as possible with one smaller partition at the end or (backward) at
        the start."""
        even = _evened(self.kept, self.partition_kept, self.kept_step * parts)
        largest = self.partition_kept // (self.kept_step * parts) * (self.kept_step * parts)
        found = {(even, False): None}
        for part in range(1, 4) if self.rounds > 1 else ():
            size = even + (largest - even) * part // 3 // (self.kept_step * parts) * (self.kept_step * parts)
            if size > even and size % (self.kept_step * parts) == 0:
                found |= {(size, False): None, (size, True): None}
        return list(found)

    def held(self, group: int, depth: int) -> int:
        """Return how many groups at that depth the buffer holds at once."""
        return min(MOST_HELD, self.room // (group * depth * self.passing_bytes))

    def near(self, found: Unsplit) -> Iterator[Unsplit]:
        """Yield loop nests that differ in one size."""
        nest, p = found.nest, self.p
        if nest.depth < p.k:
            for group in (
                *_near(nest.group, self.passing_block),
                _evened(self.passing, nest.group, self.passing_block),
            ):
                yield from self.by_k(nest.step, group, nest.depth, nest.backward)
            for depth in _near(nest.depth, self.unit.block_k):
                yield from self.by_k(nest.step, nest.group, depth, nest.backward)
            return
        for piece in _near(nest.piece, self.passing_block):
            group = max(1, round(nest.group / piece)) * piece
            yield from self.by_tiles(nest.step, nest.tile, group, piece, nest.backward)
        for group in (nest.group - nest.piece, nest.group + nest.piece, nest.group // 2 // nest.piece * nest.piece):
            yield from self.by_tiles(nest.step, nest.tile, group, nest.piece, nest.backward)
        for tile in _near(nest.tile, self.kept_block):
            if nest.step >= self.kept or nest.step % tile == 0:
                yield from self.by_tiles(nest.step, tile, nest.group, nest.piece, nest.backward)

    def by_k(self, step: int, group: int, depth: int, backward: bool) -> Iterator[Unsplit]:
        """Yield the loop nest by steps of K with these sizes if it fits."""
        sums = self.unit.acc_max // (group * step * self.p.d_acc) if group > 0 else 0
        held = self.held(group, depth) if sums and depth > 0 else 0
        if held and group <= self.passing and depth < self.p.k:
            nest = PieceNest(self.keeps_a, step, step, group, group, depth, held, self.buffers, min(2, sums), backward)
            yield Unsplit(nest, "acc")

    def by_tiles(self, step: int, tile: int, group: int, piece: int, backward: bool) -> Iterator[Unsplit]:
        """Yield the loop nest by tiles with these sizes if it fits; a group of one element always fits."""
        group = min(group, self.passing)
        sums = _memory_of_sums(tile * piece, self.unit)
        held = max(self.held(group, self.p.k), 1 if group == 1 else 0) if group > 0 else 0
        if held and sums is not None and tile <= step and piece <= group:
            nest = PieceNest(self.keeps_a, step, tile, group, piece, self.p.k, held, self.buffers, 2, backward)
            yield Unsplit(nest, sums)

    def estimates(self, engines: ProductEngines, nests: list[PieceNest]) -> np.ndarray:
        """Estimate the cycles of loop nests: the start, until the resident partition has arrived; the longest activity;
        and the end."""
        p = self.p
        fields = np.array(
            [(w.step, w.tile, w.group, w.piece, w.depth, w.held, w.backward) for w in nests], dtype=np.int64
        )
        step, tile, group, piece, depth, held, backward = fields.T
        short = self.kept - (self.rounds - 1) * step
        first_step, last_step = np.where(backward == 1, (short, step), (step, short))
        each = engines.products(*((tile, piece) if self.keeps_a else (piece, tile)), depth)
        number = self.kept / tile * (self.passing / piece) * (p.k / depth)
        work, part = each * number, depth / p.k
        of_group = np.minimum(1, group / self.passing)
        turn = work * first_step / self.kept * of_group  # one group with the whole resident partition
        last_turn = work * last_step / self.kept * of_group
        load = np.ceil(piece * self.passing_cycles * part)
        pieces = np.ceil(group / piece)
        first = np.maximum(tile * self.kept_cycles * part, load)
        arrival = np.maximum(0, (first_step - tile * part) * self.kept_cycles)
        coming = load * pieces / part - load
        begun = first + np.maximum(np.maximum(arrival, coming) + each, turn)  # when the first group is finished
        groups = self.rounds * np.ceil(self.passing / group) / part
        # A group alone in its buffer frees space for the next one piece by piece.
        stall = np.maximum(load - (pieces - 1) * each, pieces * load - 2 * (pieces - 1) * each)
        stalls = np.where(held == 1, np.maximum(0, stall) * (groups - 1), 0)
        computing = begun + work - turn + stalls
        waits = np.maximum(0, begun - held * pieces * load) * (groups > held)
        passing_by = load * pieces * groups + np.where(held == 1, stalls, waits) + last_turn * part
        staying = np.full(len(nests), self.kept * self.kept_cycles)
        rest = work * last_step / self.kept * (1 - of_group)
        staying += np.where(staying > work, rest, 0)
        # A small partition has less work than the streamed operand takes to load.
        passes = self.passing * self.passing_cycles
        turns = np.maximum(work * step / self.kept, passes), np.maximum(work * short / self.kept, passes)
        uneven = first + (self.rounds - 1) * turns[0] + turns[1]
        estimate: np.ndarray = (
            np.maximum(np.maximum(computing, passing_by), np.maximum(staying, uneven)) * (1 + WORTH * number)
            + EACH * number
        )
        return estimate


def _evened(size: int, partition: int, block: int) -> int:
    """Return the partition that divides `size` into the same number of parts, as equal as whole blocks allow."""
    return min(partition, ceil_div(ceil_div(size, ceil_div(size, partition)), block) * block)


def _by_k(sides: _Sides) -> Iterator[Unsplit]:
    """Yield loop nests by steps of K, each a whole partition with a whole group."""
    p, unit = sides.p, sides.unit
    for step, backward in sides.partitions(1):
        most = round_down(unit.acc_max // p.d_acc // step, sides.passing, sides.passing_block)
        if not most:
            continue
        groups = [most, *(_evened(sides.passing, max(1, most // parts), sides.passing_block) for parts in PARTS)]
        for group in dict.fromkeys(groups):
            deepest = sides.room // (group * sides.passing_bytes)
            depths = [*(deepest // held for held in HELD), *(ceil_div(p.k, parts) for parts in PARTS)]
            depths += [depth // EVEN * EVEN for depth in depths]
            for depth in dict.fromkeys(_depth(p.k, depth, unit.block_k) for depth in depths if depth):
                yield from sides.by_k(step, group, depth, backward)


def _depth(k: int, depth: int, block: int) -> int:
    """Return a step of K of at most `depth`, or one block: steps of nearly equal size."""
    whole = max(block, depth // block * block)
    return min(k, ceil_div(ceil_div(k, ceil_div(k, whole)), block) * block)


def _by_tiles(sides: _Sides) -> Iterator[Unsplit]:
    """Yield loop nests with all of K, by tiles of the partition and pieces of the group."""
    p = sides.p
    most = min(sides.passing, max(1, sides.room // (p.k * sides.passing_bytes)))
    tiles = dict.fromkeys(tile for parts in (*PARTS, sides.step) for tile in _tiles(sides, parts))
    groups: dict[tuple[int, int], None] = {}
    for versions in HELD_GROUPS:
        largest = max(1, most // versions)
        for whole in (largest, _evened(sides.passing, largest, sides.passing_block)):
            for parts in PARTS[::2]:
                piece = _part(whole, parts, sides.passing_block)
                for even in (piece, max(1, piece // EVEN) * EVEN):  # a size for which multiplications take whole cycles
                    if even <= whole:
                        groups[whole if whole >= sides.passing else whole // even * even, even] = None
    for step, tile, backward in tiles:
        for group, piece in groups:
            yield from sides.by_tiles(step, tile, group, piece, backward)


def _near(size: int, block: int) -> Iterator[int]:
    """Yield nearby sizes in whole blocks: one block more or less, multiples of EVEN, half and twice."""
    blocks = ceil_div(size, block)
    below = (blocks - 1) // EVEN * EVEN
    for count in (blocks - 1, blocks + 1, below, below + EVEN, below + 2 * EVEN, blocks // 2, blocks * 2):
        if count > 0 and count != blocks:
            yield count * block


def _tiles(sides: _Sides, parts: int) -> Iterator[tuple[int, int, bool]]:
    """Yield (partition, tile, backward) for partitions that `parts` tiles divide.

    Except in the last partition, a tile must not extend into the next partition, which would load that part twice.
    """
    for step, backward in sides.partitions(parts):
        if step >= sides.kept:
            yield step, _part(step, parts, sides.kept_block), False
        elif step % parts == 0:
            yield step, step // parts, backward


def _part(size: int, parts: int, block: int) -> int:
    """Return a part of `size` divided into `parts` parts or slightly fewer, in whole blocks."""
    return min(size, ceil_div(ceil_div(size, parts), block) * block)


def _memory_of_sums(elements: int, unit: NearTile) -> str | None:
    """Return the memory that holds two tiles of sums: the accumulation buffer, else the output buffer, half of which is
    reserved for results and epilogue operands."""
    size = 2 * elements * (unit.acc_bytes_per_element or 4)
    if size <= unit.acc_max:
        return "acc"
    return "out" if unit.out_bytes is None or 2 * size <= unit.out_bytes or elements == 1 else None
