"""How a product whose K is not split is walked on an accelerator (pages 01 and 06).

The operand of the outer loop stays, a partition at a time, while the other one passes by. Until a partition is there,
only what meets the part that has come can be multiplied, and what passes by may not leave its buffer before it has met
all of the partition, since it does not come again for it. Two walks keep the multipliers at work meanwhile:

- by k: the partition comes in steps of k, and a group of what passes by with it, as large as the accumulation buffer
  holds sums for. Each step of both is multiplied and the step of the group leaves. Groups after the first one find the
  partition in its buffer.
- by tiles: the partition comes in tiles, and each is multiplied with all pieces of a group that stays in its buffer.
  Sums of a tile are complete at once and need little room.

Either walk is better where its group hides the arrival. Small steps, tiles and pieces are soon there at the start and
soon done with at the end; they lose to rounding, as every instruction takes whole cycles, and to what each one costs.
Candidates are ranked by a closed form and the best few of them timed piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...hardware.description import Hardware
from ...hardware.near_tile import NearTile
from ..tiling import GemmTiling
from .product_time import PieceNest, ProductEngines
from .traffic import Product, ceil_div, round_down

CONFIGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # into how many parts a partition, a group or k may be cut
HELD = (2, 3, 4, 6, 8, 12)  # steps of a group that may be in the buffer at once
HELD_GROUPS = (1, 2, 3, 4, 6, 8)  # whole groups
MOST_HELD = 64
EVEN = 8  # what pieces and steps of k are multiples of besides
ROUNDS = 4  # of changing a size of the best
TIMED = 16  # candidates of each walk that are timed
HASTY = 4  # where it need not be the best
MOST_TIMED = 2500  # instructions that are looked at for it
EACH, WORTH = 0.05, 2e-7  # cycles, and part of all cycles, that an instruction more has to win


class Unsplit(NamedTuple):
    """A walk and the memory of its sums."""

    nest: PieceNest
    sums: str


def unsplit_nest(p: Product, tiling: GemmTiling, hardware: Hardware) -> Unsplit:
    """The walk of least time by the partitions of `tiling`."""
    unit = hardware.near_tile
    assert unit is not None  # whoever has a Product has it from such a machine
    engines = ProductEngines(p, hardware)
    sides = _Sides.of(p, tiling, unit)
    cycles, best = _fastest(p, engines, sides, TIMED)
    return _refined(p, engines, sides, cycles, best)


def hasty_cycles(p: Product, tiling: GemmTiling, hardware: Hardware) -> float:
    """Cycles of a walk that is soon found, in most cases little more than those of the best one."""
    unit = hardware.near_tile
    assert unit is not None  # whoever has a Product has it from such a machine
    engines = ProductEngines(p, hardware)
    _, best = _fastest(p, engines, _Sides.of(p, tiling, unit), HASTY)
    return engines.cycles(best.nest, MOST_TIMED)


def _fastest(p: Product, engines: ProductEngines, sides: _Sides, most: int) -> tuple[float, Unsplit]:
    """The walk of least cost, of so many of either kind that are estimated to take least, and its cost."""
    timed: list[tuple[float, int, Unsplit]] = []
    for candidates in (_by_k(sides), _by_tiles(sides)):
        found = list(candidates)
        estimates = sides.estimates(engines, [candidate.nest for candidate in found]) if found else np.empty(0)
        for place in np.argsort(estimates, kind="stable").tolist()[:most]:
            timed.append((_cost(p, engines, found[place].nest), len(timed), found[place]))
    cycles, _, best = min(timed)  # a single sum has room in any memory, so there is one at least
    return cycles, best


def _cost(p: Product, engines: ProductEngines, nest: PieceNest) -> float:
    """Cycles of a walk and what its instructions have to win besides."""
    number = nest.instructions(p)
    return engines.cycles(nest, MOST_TIMED) * (1 + WORTH * number) + EACH * number


def _refined(p: Product, engines: ProductEngines, sides: _Sides, cycles: float, best: Unsplit) -> Unsplit:
    """The best walk that can be come to by changing one size at a time."""
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
    """The operand that stays and the one that passes by: sizes, partitions, blocks in elements of m or n; cycles of one
    load of an element with all of k; bytes of the buffer of what passes by."""

    p: Product
    unit: NearTile
    keeps_a: bool
    kept: int
    step: int
    partition_kept: int
    kept_step: int  # what partitions are multiples of
    kept_block: int
    kept_cycles: float
    rounds: int
    passing: int
    partition: int
    passing_block: int
    passing_cycles: float
    passing_bytes: int  # of an element
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

    def partitions(self, configs: int) -> list[tuple[int, bool]]:
        """Sizes of partitions that can be cut into so many tiles, as many partitions as decided: of nearly equal size,
        or as large as they may be and one that is smaller, the last or the first (backward)."""
        even = _evened(self.kept, self.partition_kept, self.kept_step * configs)
        largest = self.partition_kept // (self.kept_step * configs) * (self.kept_step * configs)
        found = {(even, False): None}
        for part in range(1, 4) if self.rounds > 1 else ():
            size = even + (largest - even) * part // 3 // (self.kept_step * configs) * (self.kept_step * configs)
            if size > even and size % (self.kept_step * configs) == 0:
                found |= {(size, False): None, (size, True): None}
        return list(found)

    def held(self, group: int, depth: int) -> int:
        """How many groups at that depth are in the buffer at once."""
        return min(MOST_HELD, self.room // (group * depth * self.passing_bytes))

    def near(self, found: Unsplit) -> Iterator[Unsplit]:
        """Walks that differ in one size."""
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
        """The walk by steps of k of those sizes, if it has room."""
        sums = self.unit.acc_max // (group * step * self.p.d_acc) if group > 0 else 0
        held = self.held(group, depth) if sums and depth > 0 else 0
        if held and group <= self.passing and depth < self.p.k:
            nest = PieceNest(self.keeps_a, step, step, group, group, depth, held, self.buffers, min(2, sums), backward)
            yield Unsplit(nest, "acc")

    def by_tiles(self, step: int, tile: int, group: int, piece: int, backward: bool) -> Iterator[Unsplit]:
        """The walk by tiles of those sizes, if it has room; a single element of what passes by has."""
        group = min(group, self.passing)
        sums = _memory_of_sums(tile * piece, self.unit)
        held = max(self.held(group, self.p.k), 1 if group == 1 else 0) if group > 0 else 0
        if held and sums is not None and tile <= step and piece <= group:
            nest = PieceNest(self.keeps_a, step, tile, group, piece, self.p.k, held, self.buffers, 2, backward)
            yield Unsplit(nest, sums)

    def estimates(self, engines: ProductEngines, nests: list[PieceNest]) -> np.ndarray:
        """Cycles of walks: the start, until the partition that stays is there; what takes longest; and the end."""
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
        turn = work * first_step / self.kept * of_group  # a group with all of what stays
        last_turn = work * last_step / self.kept * of_group
        load = np.ceil(piece * self.passing_cycles * part)
        pieces = np.ceil(group / piece)
        first = np.maximum(tile * self.kept_cycles * part, load)
        arrival = np.maximum(0, (first_step - tile * part) * self.kept_cycles)
        coming = load * pieces / part - load
        begun = first + np.maximum(np.maximum(arrival, coming) + each, turn)  # when the first group is done with
        groups = self.rounds * np.ceil(self.passing / group) / part
        # A group alone in its buffer makes room piece by piece for the next.
        stall = np.maximum(load - (pieces - 1) * each, pieces * load - 2 * (pieces - 1) * each)
        stalls = np.where(held == 1, np.maximum(0, stall) * (groups - 1), 0)
        computing = begun + work - turn + stalls
        waits = np.maximum(0, begun - held * pieces * load) * (groups > held)
        passing_by = load * pieces * groups + np.where(held == 1, stalls, waits) + last_turn * part
        staying = np.full(len(nests), self.kept * self.kept_cycles)
        rest = work * last_step / self.kept * (1 - of_group)
        staying += np.where(staying > work, rest, 0)
        # A partition that is small has work for less time than what passes by takes to load.
        passes = self.passing * self.passing_cycles
        turns = np.maximum(work * step / self.kept, passes), np.maximum(work * short / self.kept, passes)
        uneven = first + (self.rounds - 1) * turns[0] + turns[1]
        estimate: np.ndarray = (
            np.maximum(np.maximum(computing, passing_by), np.maximum(staying, uneven)) * (1 + WORTH * number)
            + EACH * number
        )
        return estimate


def _evened(size: int, partition: int, block: int) -> int:
    """The partition that cuts `size` into as many parts, as equal as whole blocks make them."""
    return min(partition, ceil_div(ceil_div(size, ceil_div(size, partition)), block) * block)


def _by_k(sides: _Sides) -> Iterator[Unsplit]:
    """Walks by steps of k, each a whole partition with a whole group."""
    p, unit = sides.p, sides.unit
    for step, backward in sides.partitions(1):
        most = round_down(unit.acc_max // p.d_acc // step, sides.passing, sides.passing_block)
        if not most:
            continue
        groups = [most, *(_evened(sides.passing, max(1, most // configs), sides.passing_block) for configs in CONFIGS)]
        for group in dict.fromkeys(groups):
            deepest = sides.room // (group * sides.passing_bytes)
            depths = [*(deepest // held for held in HELD), *(ceil_div(p.k, configs) for configs in CONFIGS)]
            depths += [depth // EVEN * EVEN for depth in depths]
            for depth in dict.fromkeys(_depth(p.k, depth, unit.block_k) for depth in depths if depth):
                yield from sides.by_k(step, group, depth, backward)


def _depth(k: int, depth: int, block: int) -> int:
    """A step of k, none larger than `depth` unless a block is: steps of nearly equal size."""
    whole = max(block, depth // block * block)
    return min(k, ceil_div(ceil_div(k, ceil_div(k, whole)), block) * block)


def _by_tiles(sides: _Sides) -> Iterator[Unsplit]:
    """Walks with all of k, by tiles of the partition and pieces of the group."""
    p = sides.p
    most = min(sides.passing, max(1, sides.room // (p.k * sides.passing_bytes)))
    tiles = dict.fromkeys(tile for configs in (*CONFIGS, sides.step) for tile in _tiles(sides, configs))
    groups: dict[tuple[int, int], None] = {}
    for versions in HELD_GROUPS:
        largest = max(1, most // versions)
        for whole in (largest, _evened(sides.passing, largest, sides.passing_block)):
            for configs in CONFIGS[::2]:
                piece = _part(whole, configs, sides.passing_block)
                for even in (piece, max(1, piece // EVEN) * EVEN):  # of which products take whole cycles
                    if even <= whole:
                        groups[whole if whole >= sides.passing else whole // even * even, even] = None
    for step, tile, backward in tiles:
        for group, piece in groups:
            yield from sides.by_tiles(step, tile, group, piece, backward)


def _near(size: int, block: int) -> Iterator[int]:
    """Other sizes in whole blocks: one more or less, a few, a multiple that products take whole cycles of, or half."""
    blocks = ceil_div(size, block)
    below = (blocks - 1) // EVEN * EVEN
    for count in (blocks - 1, blocks + 1, below, below + EVEN, below + 2 * EVEN, blocks // 2, blocks * 2):
        if count > 0 and count != blocks:
            yield count * block


def _tiles(sides: _Sides, configs: int) -> Iterator[tuple[int, int, bool]]:
    """A partition, its tile in so many tiles, where tiles can divide it, and whether to begin with the last partition.
    A tile that is not the last may not reach into the next partition, which would load that part twice."""
    for step, backward in sides.partitions(configs):
        if step >= sides.kept:
            yield step, _part(step, configs, sides.kept_block), False
        elif step % configs == 0:
            yield step, step // configs, backward


def _part(size: int, configs: int, block: int) -> int:
    """A part of `size` in so many, or a few less, of whole blocks."""
    return min(size, ceil_div(ceil_div(size, configs), block) * block)


def _memory_of_sums(elements: int, unit: NearTile) -> str | None:
    """Where two tiles of sums have room: the accumulation buffer, else the output buffer, a half of which is left to
    results and what is read beside them."""
    size = 2 * elements * (unit.acc_bytes_per_element or 4)
    if size <= unit.acc_max:
        return "acc"
    return "out" if unit.out_bytes is None or 2 * size <= unit.out_bytes or elements == 1 else None
