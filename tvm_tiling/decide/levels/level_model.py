"""What a configuration through several storage levels reads, keeps and takes (pages 01 and 02), evaluated and not yet
chosen.

A configuration is a nest of loops over blocks, one pair of loops for each level from the outermost inwards:

    rows and columns of level 1 in its order, K whole | ... | rows and columns of level s | steps of K | one product

Levels outside level s, where K is split, hold blocks with all of K; from s inwards they hold steps of K, and the sums
of a block of rows x columns stay in the innermost level until they are complete. `s` behind the last level is a
configuration that never splits K; its last rows and columns are those of one product. No other nest keeps sums in their
place: a loop over K outside a loop over rows or columns would have them leave, so blocks there are those of level s.

Instances of a level share a block: `across_m` of them take rows of their own, `across_n` columns. Who has the same rows
as another gets them in the same transfer (multicast). A block is the one of all instances together.

A convolution is such a product too (levels/level_conv.py): rows are output channels, steps of k input channels, and a
column is a line of output points. Neighbouring lines share lines of the image: a block of c columns holds c * step +
halo of them, and so does the part of each instance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..gemm.traffic import ceil_div

MOST_SLOTS = 4  # blocks of an operand that a level holds at once
RESULT_SLOTS = 16  # blocks of results on their way out
RESULT_PART = 8  # part of a shared level that results may take beyond two blocks


def round_up(size: int, unit: int) -> int:
    """The least multiple of `unit` that is at least `size`."""
    return ceil_div(size, unit) * unit


def nested(sizes: tuple[int, ...], whole: int, unit: int) -> tuple[int, ...]:
    """Sizes clipped to an axis, each a multiple of the next and the last of `unit`."""
    found: list[int] = []
    inner = unit
    for size in reversed(sizes):
        inner = min(max(1, size // inner) * inner, round_up(whole, inner))
        found.append(inner)
    return tuple(reversed(found))


@dataclass(frozen=True)
class Storage:
    """One level: how many instances there are in one of the level above and in all, what one of them holds (`room` for
    a, b and out together, or `rooms` for each), gets in bytes per cycle, and how many cycles later."""

    name: str
    fan_out: int
    instances: int
    capacity: int | None
    capacities: tuple[int, int, int]
    rate: float
    latency: int


class Image(Protocol):
    """What lines of a convolution read of its image."""

    def read(self, bordered: bool, lines: int, parts: int) -> int:
        """Bytes of all blocks of so many lines for each step of k, each over so many parts; with the border of the
        image, or what lies inside."""
        ...


@dataclass(frozen=True)
class LevelProduct:
    """C[m, n] = A[m, k] * B[k, n] on a machine with storage levels: sizes in elements, `d_a`, `d_b` and `d_acc` bytes
    of an element of A, of B and of the sums, rates of external memory in bytes per cycle, `turns` blocks of an operand
    at once (2: double buffering). Where columns are lines of a convolution, `image` counts what they read of B."""

    m: int
    n: int
    k: int
    d_a: int
    d_b: int
    d_acc: int
    units: tuple[int, int, int]  # what blocks of m, n and k are padded up to
    block: tuple[int, int, int]  # of the matrix engine
    block_cycles: int | None  # of a block of one engine that need not be full; None: partial blocks cost what they are
    macs: float  # per cycle of one instance
    fill: int
    drain: int
    levels: tuple[Storage, ...]
    rates: tuple[float, float, float]  # of external memory for a, b and out
    latency: int  # of external memory
    turns: int
    store_queues: tuple[str, ...] = ()  # of the stores out of each level
    issue: int = 0  # cycles between two instructions
    token: int = 0  # cycles of a token
    ports: int | None = None  # of external memory
    pj: tuple[float, ...] = ()  # of a multiply-accumulate, of a byte of external memory, and of each level
    d_epilogue: int = 0  # bytes that the innermost level holds for each sum besides it: operands and results behind it
    step: int = 1  # columns of B from one column of the result to the next
    halo: int = 0  # columns of B that a block reads beyond those steps; below 0 where it leaves some out
    rounds: int = 1  # ranges of n columns, one behind the other, that no block spans: images, planes and strips
    repeats: int = 1  # such products one behind the other, of operands of their own: groups
    points: int = 1  # of the result in one column
    taps: int = 1  # that a step of k multiplies
    planes: int = 1  # of a kernel, an instruction of the matrix engine each
    groups: int = 1  # there at once, likewise
    image: Image | None = None
    work: int = 0  # multiply-adds of all of it, 0: what the sizes give, as where no block is ragged in its points
    results: int = 0  # bytes of all sums, likewise

    @property
    def arrays(self) -> int:
        """Matrix engines: instances of the innermost level."""
        return self.levels[-1].instances

    @property
    def summed(self) -> int:
        """Products that a step of k adds to each sum."""
        return self.taps * self.planes

    @property
    def instructions(self) -> int:
        """Of the matrix engine for a tile."""
        return self.planes * self.groups

    @property
    def peak_cycles(self) -> float:
        """What all multipliers need at their peak."""
        return (self.work or self.m * self.n * self.k) / (self.macs * self.arrays)

    def blocks_m(self, rows: int) -> int:
        """How many blocks of so many rows there are."""
        return -(-self.m // rows)

    def blocks_n(self, columns: int) -> int:
        """How many blocks of so many columns there are."""
        return -(-self.n // columns) * self.rounds

    def bytes_a(self, rows: int, depth: int) -> int:
        """Bytes of a block of A."""
        return rows * depth * self.d_a

    def bytes_b(self, columns: int, depth: int) -> int:
        """Bytes of a block of B that so many columns of the result read."""
        return (columns * self.step + self.halo) * depth * self.d_b

    def bytes_out(self, rows: int, columns: int) -> int:
        """Bytes of a block of sums."""
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
        """Bytes of B that come into a level when every block of so many columns comes once, over so many parts."""
        if self.image is None:
            return self.n * self.k * self.d_b
        return self.image.read(level > 0, columns, parts) * self.k

    def loaded(self, b: Blocks, level: int, load_a: int, load_b: int) -> tuple[int, int]:
        """Bytes of A and of B that come into a level whose blocks come so often."""
        return load_a * self.all_a, load_b * self.pass_b(level, b.columns_at(level), b.across_n[level])

    def read(self, b: Blocks, load_a: int, load_b: int) -> int:
        """Bytes of both operands that come from external memory."""
        return sum(self.loaded(b, 0, load_a, load_b)) * self.repeats

    def product_cycles(self, rows: int, columns: int, depth: int) -> int:
        """Cycles of the instructions of a tile on all engines together."""
        if self.block_cycles is None:
            work = rows * columns * depth * self.points * self.taps
            return self.instructions * (self.fill + math.ceil(work / (self.macs * self.arrays) * (1 - 1e-14)))
        sizes = rows, columns * self.points, depth * self.taps
        full = ceil_div(sizes[0], self.block[0]) * ceil_div(sizes[1], self.block[1]) * ceil_div(sizes[2], self.block[2])
        return self.instructions * (self.fill + self.block_cycles * ceil_div(full, self.arrays))


class Blocks(NamedTuple):
    """A configuration: `rows` and `columns` of the levels 0 .. s, `orders` of their two loops ("mn": m outside), the
    `depth` of a step of K (all of it where s is behind the last level), and at each level over how many instances in
    all its rows and columns are spread. `sums` blocks of sums lie in the innermost level at once."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    orders: tuple[str, ...]
    depth: int
    across_m: tuple[int, ...]
    across_n: tuple[int, ...]
    sums: int

    @property
    def split(self) -> int:
        """s: the level where K is split, counted from 0; the number of levels where it is not."""
        return len(self.rows) - 1

    def rows_at(self, level: int) -> int:
        return self.rows[min(level, self.split)]

    def columns_at(self, level: int) -> int:
        return self.columns[min(level, self.split)]

    def depth_at(self, level: int, k: int) -> int:
        return k if level < self.split else min(self.depth, k)


class Traffic(NamedTuple):
    """Of one level: how often all of A and of B come into it, whether that is one block that never changes, and whether
    a block of A is loaded before one of B: it stays longer, or as long and is not larger."""

    load_a: int
    load_b: int
    stays_a: bool
    stays_b: bool
    a_first: bool


class Held(NamedTuple):
    """Of one level: bytes that an instance holds of a block of A, of B and of results, and how many of each it holds at
    once."""

    a: int
    b: int
    out: int
    slots_a: int
    slots_b: int
    slots_out: int


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


def traffic_of(p: LevelProduct, b: Blocks) -> tuple[Traffic, ...]:
    """The loads into every level. All of an operand comes once for each block of the other axis whose loop is outside
    the innermost loop that the operand changes with."""
    found: list[Traffic] = []
    load_a = load_b = blocks_m = blocks_n = 1
    place = place_a = place_b = 0  # loops so far, and how many of them up to the one that changes an operand
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
    """Rows or columns of one instance's part of a block of `size`, padded."""
    return -(-min(size, -(-whole // unit) * unit) // (across * unit)) * unit


def held_at(p: LevelProduct, b: Blocks, level: int, traffic: Traffic) -> Held | None:
    """What an instance of a level holds, None where it has no room for that."""
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
    """Cycles to bring so many bytes of A and of B into a level, each counted once however many instances get it."""
    rate = p.levels[level].rate
    a, other = bytes_a / (rate * b.across_m[level]), bytes_b / (rate * b.across_n[level])
    if level == 0:
        a, other = max(a, bytes_a / p.rates[0]), max(other, bytes_b / p.rates[1])
    return a, other


def store_cycles(p: LevelProduct, level: int, size: float) -> float:
    """Cycles to bring so many bytes of results out of a level."""
    rate = p.levels[level].rate * p.levels[level].instances
    return size / (min(rate, p.rates[2]) if level == 0 else rate)
