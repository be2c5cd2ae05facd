"""Cost model of a configuration through several storage levels: bytes read, bytes held and cycles. The search is
elsewhere (levels/search.py).

A configuration is a loop nest over blocks, with one pair of loops per level from the outermost inwards:

    rows and columns of level 1 in its order, K whole | ... | rows and columns of level s | steps of K | one tile

Levels outside level s, where K is split, hold blocks with all of K. From s inwards they hold steps of K, and the sums
of a block of rows x columns stay in the innermost level until they are complete. An `s` past the last level stands for
a configuration that never splits K; its innermost rows and columns are those of one tile. No other loop nest keeps sums
in place: with a loop over K outside a loop over rows or columns, sums would have to leave the innermost level. Hence
all levels inside s use its blocks.

Instances of a level share a block: `across_m` of them take different rows, `across_n` different columns. Instances with
the same rows receive them in one transfer (multicast). A block means that of all instances together.

Convolutions use the same model (levels/level_conv.py): rows are output channels, steps of k are input channels, and a
column is a line of output points. Neighbouring lines share lines of the input, so a block of c columns holds c * step +
halo input lines, and so does each instance's part.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..gemm.traffic import ceil_div

MOST_SLOTS = 4  # blocks of an operand held in a level at once
RESULT_SLOTS = 16  # blocks of results in flight
RESULT_PART = 8  # 1/8 of a shared level is the most that results may use beyond two blocks


def round_up(size: int, unit: int) -> int:
    """Return the smallest multiple of `unit` that is at least `size`."""
    return ceil_div(size, unit) * unit


def nested(sizes: tuple[int, ...], whole: int, unit: int) -> tuple[int, ...]:
    """Clip block sizes to an axis and round each to a multiple of the next one, the last to a multiple of `unit`."""
    found: list[int] = []
    inner = unit
    for size in reversed(sizes):
        inner = min(max(1, size // inner) * inner, round_up(whole, inner))
        found.append(inner)
    return tuple(reversed(found))


@dataclass(frozen=True)
class Storage:
    """One storage level: its instances per instance of the level above and in total, the capacity of one instance
    (`capacity` if operands share it, else `capacities` for a, b and out), its bandwidth in bytes per cycle, and its
    latency in cycles."""

    name: str
    fan_out: int
    instances: int
    capacity: int | None
    capacities: tuple[int, int, int]
    rate: float
    latency: int


class Image(Protocol):
    """Input traffic of a convolution."""

    def read(self, bordered: bool, lines: int, parts: int) -> int:
        """Return the bytes read for each step of k by all blocks of `lines` lines, each divided into `parts` parts,
        with the padding of the input if `bordered`."""
        ...


@dataclass(frozen=True)
class LevelProduct:
    """C[m, n] = A[m, k] * B[k, n] on a machine with storage levels.

    Sizes are in elements; `d_a`, `d_b` and `d_acc` are bytes per element of A, B and the sums; external rates are in
    bytes per cycle. `turns` is the number of blocks of an operand held at once (2 for double buffering). Where columns
    are lines of a convolution, `image` counts the input that they read.
    """

    m: int
    n: int
    k: int
    d_a: int
    d_b: int
    d_acc: int
    units: tuple[int, int, int]  # blocks of m, n and k are padded to multiples of these
    block: tuple[int, int, int]  # of the matrix engine
    # Cycles of one block of an engine that pads partial blocks; None if they cost only their own work.
    block_cycles: int | None
    macs: float  # multiply-accumulates per cycle of one instance
    fill: int
    drain: int
    levels: tuple[Storage, ...]
    rates: tuple[float, float, float]  # of external memory for a, b and out
    latency: int  # of external memory
    turns: int
    store_queues: tuple[str, ...] = ()  # store queue of each level
    issue: int = 0  # cycles between two instructions
    token: int = 0  # cycles to send or receive a token
    ports: int | None = None  # of external memory
    pj: tuple[float, ...] = ()  # pJ per multiply-accumulate, per byte of external memory, and per byte of each level
    d_epilogue: int = 0  # bytes per sum that the innermost level holds for the epilogue: operands and results
    step: int = 1  # input columns between neighbouring result columns
    halo: int = 0  # input columns that a block reads beyond these steps; negative if it skips some
    rounds: int = 1  # consecutive ranges of n columns that no block spans: images, planes and strips
    repeats: int = 1  # consecutive multiplications with their own operands: groups
    points: int = 1  # output points per column
    taps: int = 1  # taps that a step of k multiplies
    planes: int = 1  # depth planes of a kernel, one matrix-engine instruction each
    groups: int = 1  # groups held at once, one matrix-engine instruction each
    image: Image | None = None
    work: int = 0  # total multiply-accumulates; 0: computed from the sizes, exact where no block has a partial line
    results: int = 0  # bytes of all sums; 0: computed from the sizes

    @property
    def arrays(self) -> int:
        """Number of matrix engines: instances of the innermost level."""
        return self.levels[-1].instances

    @property
    def summed(self) -> int:
        """Multiply-accumulates that a step of k adds to each sum."""
        return self.taps * self.planes

    @property
    def instructions(self) -> int:
        """Matrix-engine instructions per tile."""
        return self.planes * self.groups

    @property
    def peak_cycles(self) -> float:
        """Cycles of all multipliers at peak."""
        return (self.work or self.m * self.n * self.k) / (self.macs * self.arrays)

    def blocks_m(self, rows: int) -> int:
        """Return the number of blocks of `rows` rows."""
        return -(-self.m // rows)

    def blocks_n(self, columns: int) -> int:
        """Return the number of blocks of `columns` columns."""
        return -(-self.n // columns) * self.rounds

    def bytes_a(self, rows: int, depth: int) -> int:
        """Return the bytes of a block of A."""
        return rows * depth * self.d_a

    def bytes_b(self, columns: int, depth: int) -> int:
        """Return the bytes of the block of B that `columns` result columns read."""
        return (columns * self.step + self.halo) * depth * self.d_b

    def bytes_out(self, rows: int, columns: int) -> int:
        """Return the bytes of a block of sums."""
        return rows * columns * self.d_acc

    @property
    def all_a(self) -> int:
        """Bytes of A."""
        return self.m * self.k * self.d_a

    @property
    def all_out(self) -> int:
        """Bytes of all sums."""
        return self.results or self.m * self.n * self.d_acc

    def pass_b(self, level: int, columns: int, parts: int) -> int:
        """Return the bytes of B loaded into a level when every block of `columns` columns, divided into `parts` parts,
        is loaded once."""
        if self.image is None:
            return self.n * self.k * self.d_b
        return self.image.read(level > 0, columns, parts) * self.k

    def loaded(self, b: Blocks, level: int, load_a: int, load_b: int) -> tuple[int, int]:
        """Return the bytes of A and of B that are loaded into a level, given the number of loads of each."""
        return load_a * self.all_a, load_b * self.pass_b(level, b.columns_at(level), b.across_n[level])

    def read(self, b: Blocks, load_a: int, load_b: int) -> int:
        """Return the bytes of both operands read from external memory."""
        return sum(self.loaded(b, 0, load_a, load_b)) * self.repeats

    def product_cycles(self, rows: int, columns: int, depth: int) -> int:
        """Return the cycles of a tile's instructions on all engines together."""
        if self.block_cycles is None:
            work = rows * columns * depth * self.points * self.taps
            return self.instructions * (self.fill + math.ceil(work / (self.macs * self.arrays) * (1 - 1e-14)))
        sizes = rows, columns * self.points, depth * self.taps
        full = ceil_div(sizes[0], self.block[0]) * ceil_div(sizes[1], self.block[1]) * ceil_div(sizes[2], self.block[2])
        return self.instructions * (self.fill + self.block_cycles * ceil_div(full, self.arrays))


class Blocks(NamedTuple):
    """A configuration.

    `rows` and `columns` are the blocks of levels 0 .. s, `orders` the order of their two loops ("mn": m outside).
    `depth` is a step of K, all of it if s is past the last level. `across_m` and `across_n` count the instances over
    which rows and columns are spread, cumulatively down to each level. `sums` blocks of sums are held in the innermost
    level at once.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    orders: tuple[str, ...]
    depth: int
    across_m: tuple[int, ...]
    across_n: tuple[int, ...]
    sums: int

    @property
    def split(self) -> int:
        """s: the index of the level where K is split; the number of levels if K is not split."""
        return len(self.rows) - 1

    def rows_at(self, level: int) -> int:
        return self.rows[min(level, self.split)]

    def columns_at(self, level: int) -> int:
        return self.columns[min(level, self.split)]

    def depth_at(self, level: int, k: int) -> int:
        return k if level < self.split else min(self.depth, k)


class Traffic(NamedTuple):
    """Loads into one level: how often all of A and of B are loaded, whether each operand stays resident as one block,
    and whether a block of A is loaded before one of B (it stays longer, or equally long and is not larger)."""

    load_a: int
    load_b: int
    stays_a: bool
    stays_b: bool
    a_first: bool


class Held(NamedTuple):
    """What one instance of a level holds: bytes of a block of A, of B and of results, and the number of blocks of
    each."""

    a: int
    b: int
    out: int
    slots_a: int
    slots_b: int
    slots_out: int


def spreads(p: LevelProduct) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the ways to spread the instances over rows and columns: the cumulative counts of each level for both
    axes."""
    own = [
        [(over, storage.fan_out // over) for over in range(1, storage.fan_out + 1) if storage.fan_out % over == 0]
        for storage in p.levels
    ]
    for pairs in itertools.product(*own):
        across_m = tuple(itertools.accumulate((pair[0] for pair in pairs), lambda x, y: x * y))
        across_n = tuple(itertools.accumulate((pair[1] for pair in pairs), lambda x, y: x * y))
        yield across_m, across_n


def traffic_of(p: LevelProduct, b: Blocks) -> tuple[Traffic, ...]:
    """Return the loads into every level. An operand is loaded once for each block of the other axis whose loop is
    outside the innermost loop that the operand depends on."""
    found: list[Traffic] = []
    load_a = load_b = blocks_m = blocks_n = 1
    place = place_a = place_b = 0  # number of loops so far, and up to the innermost one that changes each operand
    above_m, above_n = p.m, p.n if p.rounds == 1 else p.n + p.units[1] * b.columns[0]
    split, alone = b.split, p.repeats == 1
    for level in range(min(split + 1, len(p.levels))):
        rows, columns = b.rows[level], b.columns[level]
        for axis in b.orders[level]:
            place += 1
            if axis == "m":
                blocks_m = p.blocks_m(rows)
                if rows < above_m:
                    load_a, place_a, above_m = blocks_n, place, rows
            else:
                blocks_n = p.blocks_n(columns)
                if columns < above_n:
                    load_b, place_b, above_n = blocks_m, place, columns
        if level == split and b.depth < p.k:
            load_a, load_b, place_a, place_b = blocks_n, blocks_m, place + 1, place + 1
        if place_a != place_b:
            first = place_a < place_b
        else:
            first = p.bytes_a(min(above_m, p.m), 1) <= p.bytes_b(min(above_n, p.n), 1)
        found.append(Traffic(load_a, load_b, place_a == 0 and alone, place_b == 0 and alone, first))
    found.extend(found[-1:] * (len(p.levels) - len(found)))
    return tuple(found)


def share(size: int, whole: int, across: int, unit: int) -> int:
    """Return the rows or columns of one instance's part of a block of `size`, padded."""
    return -(-min(size, -(-whole // unit) * unit) // (across * unit)) * unit


def held_at(p: LevelProduct, b: Blocks, level: int, traffic: Traffic) -> Held | None:
    """Return what an instance of a level holds; None if that exceeds its capacity."""
    storage = p.levels[level]
    depth = round_up(b.depth_at(level, p.k), p.units[2])
    across_m, across_n, place = b.across_m[level], b.across_n[level], min(level, b.split)
    rows = share(b.rows[-1], p.m, across_m, p.units[0])
    columns = share(b.columns[-1], p.n, across_n, p.units[1])
    if b.rows[place] == b.rows[-1] and b.columns[place] == b.columns[-1]:
        a, other = p.bytes_a(rows, depth), p.bytes_b(columns, depth)
    else:
        a = p.bytes_a(share(b.rows[place], p.m, across_m, p.units[0]), depth)
        other = p.bytes_b(share(b.columns[place], p.n, across_n, p.units[1]), depth)
    tile = rows * columns
    several = b.rows[-1] < p.m or b.columns[-1] < p.n or p.rounds * p.repeats > 1
    last = level == len(p.levels) - 1
    slots_out = (b.sums if last else p.turns) if several else 1
    out = tile * p.d_acc
    need_a, need_b = a * (1 if traffic.stays_a else p.turns), other * (1 if traffic.stays_b else p.turns)
    need_out = out * slots_out + (tile * p.d_epilogue if last else 0)
    most_out = RESULT_SLOTS if several and p.turns > 1 and not last else slots_out
    if storage.capacity is None:
        if need_a > storage.capacities[0] or need_b > storage.capacities[1] or need_out > storage.capacities[2]:
            return None
        slots_a, slots_b = storage.capacities[0] // a, storage.capacities[1] // other
        slots_out = max(slots_out, min(most_out, storage.capacities[2] // out))
    else:
        if need_a + need_b + need_out > storage.capacity:
            return None
        left = storage.capacity - need_a - need_b
        slots_out = max(slots_out, min(most_out, left // out, storage.capacity // (RESULT_PART * out)))
        left = storage.capacity - out * slots_out
        moving = (0 if traffic.stays_a else a) + (0 if traffic.stays_b else other)
        left -= a + other - moving
        slots_a = slots_b = left // max(moving, 1)
    most = MOST_SLOTS if p.turns > 1 else 1
    slots_a = 1 if traffic.stays_a else min(most, slots_a)
    slots_b = 1 if traffic.stays_b else min(most, slots_b)
    return Held(a, other, out, slots_a, slots_b, slots_out)


def load_cycles(p: LevelProduct, b: Blocks, level: int, bytes_a: float, bytes_b: float) -> tuple[float, float]:
    """Return the cycles to load these bytes of A and of B into a level, with a multicast counted once."""
    rate = p.levels[level].rate
    a, other = bytes_a / (rate * b.across_m[level]), bytes_b / (rate * b.across_n[level])
    if level == 0:
        a, other = max(a, bytes_a / p.rates[0]), max(other, bytes_b / p.rates[1])
    return a, other


def store_cycles(p: LevelProduct, level: int, size: float) -> float:
    """Return the cycles to store `size` bytes of results out of a level."""
    rate = p.levels[level].rate * p.levels[level].instances
    return size / (min(rate, p.rates[2]) if level == 0 else rate)
