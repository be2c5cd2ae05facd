"""The fastest cut of a product through several storage levels (page 02), of few candidates.

Loads fall as blocks grow, level by level, so what is left to choose is short:

1. The spread of every level's instances over rows and columns: pairs of divisors.
2. The level where K is split, and there the rows and columns of the sums: the sums' room couples them, so for each
   count of columns the largest rows beside it, evened out, and a half of them. (Blocks inside that level are the same.)
3. The step of K: the largest that fits the levels inside, or a half, a quarter, ... of it.
4. The levels outside, from the innermost outwards: multiples of the blocks within, the largest that fit. Smaller ones
   are tried afterwards, level by level, as products begin sooner behind them.
5. The order of each level's two loops: the one that its loads take less time with.

The loads that no choice of 3 to 5 avoids bound a candidate from below; those that cannot win are left out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .levels_model import (
    Blocks,
    LevelProduct,
    Times,
    held_at,
    load_cycles,
    round_up,
    store_cycles,
    times,
    traffic_of,
)
from .traffic import ceil_div

MOST_COUNTS = 16  # of blocks along an axis that are tried
MOST_GROWN = 24  # candidates that are given outer levels
MOST_SHRUNK = 4  # candidates whose outer levels are made smaller


class Choice(NamedTuple):
    """A cut and its cycles."""

    blocks: Blocks
    times: Times

    @property
    def rank(self) -> tuple[float, int]:
        """Fastest first, then fewest loads into the outermost level."""
        return self.times.cycles, self.times.traffic[0].load_a + self.times.traffic[0].load_b


def best_blocks(p: LevelProduct) -> Choice | None:
    """The best cut, None if none fits; the module's text says what is tried."""
    starts = sorted(_starts(p), key=lambda start: start[0])
    found: list[Choice] = []
    best = math.inf
    for number, (bound, start) in enumerate(starts):
        if found and (number >= MOST_GROWN or bound >= best):
            break
        grown = [choice for blocks in _steps_of_k(p, start) if (choice := _grown(p, blocks)) is not None]
        if grown:
            found.append(min(grown, key=lambda choice: choice.rank))
            best = min(best, found[-1].times.cycles)
    found.sort(key=lambda choice: choice.rank)
    return min((_shrunk(p, choice) for choice in found[:MOST_SHRUNK]), key=lambda choice: choice.rank, default=None)


def sizes(whole: int, unit: int) -> list[int]:
    """Sizes of blocks along an axis, in multiples of `unit`, evened out: the counts of blocks that differ."""
    found: list[int] = []
    units = ceil_div(whole, unit)
    count = 1
    while count <= units:
        size = ceil_div(units, count)
        found.append(size * unit)
        if size == 1:
            break
        count = ceil_div(units, size - 1)  # the next count that makes blocks smaller
    if len(found) > MOST_COUNTS:
        picks = {round(i * (len(found) - 1) / (MOST_COUNTS - 1)) for i in range(MOST_COUNTS)}
        powers = {2**i for i in range(units.bit_length())}
        found = [size for i, size in enumerate(found) if i in picks or size // unit in powers]
    return found


def spreads(p: LevelProduct) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Over how many instances in all each level spreads rows, and columns."""
    own = [
        [(over, storage.fan_out // over) for over in range(1, storage.fan_out + 1) if storage.fan_out % over == 0]
        for storage in p.levels
    ]
    for pairs in itertools.product(*own):
        across_m = tuple(itertools.accumulate((pair[0] for pair in pairs), lambda x, y: x * y))
        across_n = tuple(itertools.accumulate((pair[1] for pair in pairs), lambda x, y: x * y))
        yield across_m, across_n


def _starts(p: LevelProduct) -> Iterator[tuple[float, Blocks]]:
    """Cuts with the blocks of the split level alone, and what they cannot be faster than."""
    levels = len(p.levels)
    for across_m, across_n in spreads(p):
        rows_of = sizes(p.m, p.units[0] * across_m[-1])
        columns_of = sizes(p.n, p.units[1] * across_n[-1])
        for split in range(levels + 1):
            depth = min(p.units[2], p.k) if split < levels else p.k
            for sums in (1, 2):
                seen = set()
                for columns in columns_of:
                    shortest = None
                    for rows in rows_of:
                        blocks = _same(p, split, rows, columns, depth, across_m, across_n, sums)
                        if shortest is not None and rows * 2 < shortest:
                            break
                        if _fits(p, blocks, 0):
                            shortest = shortest or rows
                            if (rows, columns) not in seen:
                                seen.add((rows, columns))
                                yield _bound(p, blocks), blocks


def _same(
    p: LevelProduct,
    split: int,
    rows: int,
    columns: int,
    depth: int,
    across_m: tuple[int, ...],
    across_n: tuple[int, ...],
    sums: int,
) -> Blocks:
    """A cut whose levels all have the same rows and columns."""
    count = split + 1
    return Blocks((rows,) * count, (columns,) * count, ("mn",) * count, depth, across_m, across_n, sums)


def _fits(p: LevelProduct, b: Blocks, first: int) -> bool:
    """Whether the levels from `first` inwards have room for a cut."""
    traffic = traffic_of(p, b)
    return all(held_at(p, b, level, traffic[level]) is not None for level in range(first, len(p.levels)))


def _bound(p: LevelProduct, b: Blocks) -> float:
    """Cycles that no choice of steps and of outer blocks goes below."""
    bound = 0.0
    for level in range(len(p.levels)):
        often = (1, 1)
        if level >= b.split and b.depth < p.k:
            often = (ceil_div(p.n, b.columns[-1]), ceil_div(p.m, b.rows[-1]))
        bytes_a, bytes_b = often[0] * p.m * p.k * p.d_s, often[1] * p.n * p.k * p.d_s
        bound = max(bound, sum(load_cycles(p, b, level, bytes_a, bytes_b)))
        bound = max(bound, store_cycles(p, level, p.m * p.n * p.d_acc))
    return max(bound, p.peak_cycles)


def _steps_of_k(p: LevelProduct, b: Blocks) -> Iterator[Blocks]:
    """The cut with the largest step of K that fits, then with smaller ones."""
    if b.split == len(p.levels):
        yield b
        return
    unit = p.units[2]
    low, high = 1, ceil_div(p.k, unit)
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(p, b._replace(depth=middle * unit), b.split):
            low = middle
        else:
            high = middle - 1
    while True:
        steps = ceil_div(ceil_div(p.k, unit), low)
        yield b._replace(depth=ceil_div(ceil_div(p.k, unit), steps) * unit)
        if low == 1 or p.product_cycles(b.rows[-1], b.columns[-1], low * unit) < 16:
            return
        low = (low + 1) // 2


def _grown(p: LevelProduct, b: Blocks) -> Choice | None:
    """The levels outside the split one with the largest blocks that fit, each level's room shared out as is best."""
    best: Choice | None = None
    for favour in ("m", "n", "both"):
        blocks = b
        for level in range(b.split - 1, -1, -1):
            blocks = _largest(p, blocks, level, favour)
        found = _ordered(p, blocks)
        if found is not None and (best is None or found.rank < best.rank):
            best = found
        if all(storage.room is None for storage in p.levels):
            break
    return best


def _largest(p: LevelProduct, b: Blocks, level: int, favour: str) -> Blocks:
    """Blocks of one level as multiples of those within, grown in rows and columns in turn while they fit."""
    stuck: set[str] = set()
    while len(stuck) < 2:
        for axis in ("m", "n"):
            if axis in stuck or (favour != "both" and axis != favour and favour not in stuck):
                continue
            grown = _grow(p, b, level, axis)
            if grown is not None:
                b = grown
            else:
                stuck.add(axis)
    return b


def _grow(p: LevelProduct, b: Blocks, level: int, axis: str) -> Blocks | None:
    """One axis of a level's block (and of those outside, which are as large) made larger: fewer blocks by one or, where
    there are many, by half."""
    whole, own = (p.m, b.rows) if axis == "m" else (p.n, b.columns)
    inner = own[level + 1]
    count = ceil_div(whole, own[level])
    for fewer in dict.fromkeys((ceil_div(count, 2), count - 1)):
        if 0 < fewer < count:
            size = round_up(ceil_div(whole, fewer), inner)
            grown = _with(b, axis, (*(size for _ in range(level + 1)), *own[level + 1 :]))
            if held_at(p, grown, level, traffic_of(p, grown)[level]) is not None:
                return grown
    return None


def _with(b: Blocks, axis: str, own: Sequence[int]) -> Blocks:
    return b._replace(rows=tuple(own)) if axis == "m" else b._replace(columns=tuple(own))


def _ordered(p: LevelProduct, b: Blocks) -> Choice | None:
    """The cut with each level's loops in the order that its loads take less time in, the next level's on a tie; None if
    it does not fit."""
    last = len(p.levels) - 1
    for level in range(b.split + 1):
        options = []
        for order in ("mn", "nm"):
            own = b._replace(orders=(*b.orders[:level], order, *b.orders[level + 1 :]))
            traffic = traffic_of(p, own)
            busy = [
                sum(load_cycles(p, own, place, traffic[place].load_a * p.m * p.k, traffic[place].load_b * p.n * p.k))
                for place in (min(level, last), min(level + 1, last))
            ]
            options.append((busy, not traffic[min(level, last)].a_first, own))
        b = min(options, key=lambda option: option[:2])[-1]
    found = times(p, b)
    return None if found is None else Choice(b, found)


def _shrunk(p: LevelProduct, start: Choice) -> Choice:
    """Blocks of the outer levels made smaller while that is faster."""
    best = start
    improved = True
    while improved:
        improved = False
        for level in range(best.blocks.split):
            for axis in ("m", "n"):
                for blocks in _smaller(p, best.blocks, level, axis):
                    found = _ordered(p, blocks)
                    if found is not None and found.rank < best.rank:
                        best, improved = found, True
    return best


def _smaller(p: LevelProduct, b: Blocks, level: int, axis: str) -> Iterator[Blocks]:
    """Cuts with smaller blocks of one level along one axis, those outside rounded to multiples."""
    whole, own = (p.m, b.rows) if axis == "m" else (p.n, b.columns)
    inner = own[level + 1]
    seen = {own[level]}
    multiple = ceil_div(min(own[level], round_up(whole, inner)), inner)
    for less in ((multiple + 1) // 2, multiple - 1):
        size = less * inner
        if less < 1 or size in seen:
            continue
        seen.add(size)
        outer: list[int] = []
        for other in reversed(own[:level]):
            outer.append(round_up(other, size) if other >= whole else max(size, other // size * size))
        yield _with(b, axis, (*reversed(outer), size, *own[level + 1 :]))
