"""What a cut through several storage levels reads, keeps and takes (pages 01 and 02), evaluated and not yet chosen.

A cut is a nest of loops over blocks, one pair of loops for each level from the outermost inwards:

    rows and columns of level 1 in its order, K whole | ... | rows and columns of level s | steps of K | one product

Levels outside level s, where K is split, hold blocks with all of K; from s inwards they hold steps of K, and the sums
of a block of rows x columns stay in the innermost level until they are complete. `s` behind the last level is a cut
that never splits K; its last rows and columns are those of one product. No other nest keeps sums in their place: a loop
over K outside a loop over rows or columns would have them leave, so blocks there are those of level s.

Instances of a level share a block: `across_m` of them take rows of their own, `across_n` columns. Who has the same rows
as another gets them in the same transfer (multicast). A block is the one of all instances together.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

from .traffic import ceil_div

MOST_SLOTS = 4  # blocks of an operand that a level holds at once
RESULT_SLOTS = 16  # blocks of results on their way out
RESULT_PART = 8  # part of a shared level that results may take beyond two blocks


def round_up(size: int, unit: int) -> int:
    """The least multiple of `unit` that is at least `size`."""
    return ceil_div(size, unit) * unit


@dataclass(frozen=True)
class Storage:
    """One level: how many instances there are in one of the level above and in all, what one of them holds (`room` for
    a, b and out together, or `rooms` for each), gets in bytes per cycle, and how many cycles later."""

    name: str
    fan_out: int
    instances: int
    room: int | None
    rooms: tuple[int, int, int]
    rate: float
    latency: int


@dataclass(frozen=True)
class LevelProduct:
    """C[m, n] = A[m, k] * B[k, n] on a machine with storage levels: sizes in elements, `d_s` and `d_acc` in bytes,
    rates of external memory in bytes per cycle, `turns` blocks of an operand at once (2: double buffering)."""

    m: int
    n: int
    k: int
    d_s: int
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
    d_behind: int = 0  # bytes that the innermost level holds for each sum besides it: operands and results behind it

    @property
    def arrays(self) -> int:
        """Matrix engines: instances of the innermost level."""
        return self.levels[-1].instances

    @property
    def peak_cycles(self) -> float:
        """What all multipliers need at their peak."""
        return self.m * self.n * self.k / (self.macs * self.arrays)

    def product_cycles(self, rows: int, columns: int, depth: int) -> int:
        """Cycles of one instruction on all engines together."""
        if self.block_cycles is None:
            return self.fill + math.ceil(rows * columns * depth / (self.macs * self.arrays) * (1 - 1e-14))
        full = ceil_div(rows, self.block[0]) * ceil_div(columns, self.block[1]) * ceil_div(depth, self.block[2])
        return self.fill + self.block_cycles * ceil_div(full, self.arrays)


class Blocks(NamedTuple):
    """A cut: `rows` and `columns` of the levels 0 .. s, `orders` of their two loops ("mn": m outside), the `depth` of a
    step of K (all of it where s is behind the last level), and at each level over how many instances in all its rows
    and columns are spread. `sums` blocks of sums lie in the innermost level at once."""

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


class Times(NamedTuple):
    """Cycles of a cut: of the `loads` into each level and the `stores` out of it, of the `products`, until the first
    of them can `begin` at each level and in the engine (last), from the end of the last to the last result (`end`), and
    of it all."""

    traffic: tuple[Traffic, ...]
    held: tuple[Held, ...]
    loads: tuple[float, ...]
    stores: tuple[float, ...]
    products: float
    begin: tuple[float, ...]
    end: float
    cycles: float


def traffic_of(p: LevelProduct, b: Blocks) -> tuple[Traffic, ...]:
    """The loads into every level. All of an operand comes once for each block of the other axis whose loop is outside
    the innermost loop that the operand changes with."""
    found: list[Traffic] = []
    load_a = load_b = blocks_m = blocks_n = 1
    place = place_a = place_b = 0  # loops so far, and how many of them up to the one that changes an operand
    above_m, above_n = p.m, p.n
    for level in range(len(p.levels)):
        if level <= b.split:
            for axis in b.orders[level]:
                place += 1
                if axis == "m":
                    blocks_m = ceil_div(p.m, b.rows[level])
                    if b.rows[level] < above_m:
                        load_a, place_a, above_m = blocks_n, place, b.rows[level]
                else:
                    blocks_n = ceil_div(p.n, b.columns[level])
                    if b.columns[level] < above_n:
                        load_b, place_b, above_n = blocks_m, place, b.columns[level]
            if level == b.split and b.depth < p.k:
                load_a, load_b, place_a, place_b = blocks_n, blocks_m, place + 1, place + 1
            first = place_a < place_b if place_a != place_b else min(above_m, p.m) <= min(above_n, p.n)
            found.append(Traffic(load_a, load_b, place_a == 0, place_b == 0, first))
        else:
            found.append(found[-1])
    return tuple(found)


def share(size: int, whole: int, across: int, unit: int) -> int:
    """Rows or columns of one instance's part of a block of `size`, padded."""
    return -(-min(size, -(-whole // unit) * unit) // (across * unit)) * unit


def held_at(p: LevelProduct, b: Blocks, level: int, traffic: Traffic) -> Held | None:
    """What an instance of a level holds, None where it has no room for that."""
    storage = p.levels[level]
    depth = -(-b.depth_at(level, p.k) // p.units[2]) * p.units[2] * p.d_s
    across_m, across_n = b.across_m[level], b.across_n[level]
    a = share(b.rows_at(level), p.m, across_m, p.units[0]) * depth
    other = share(b.columns_at(level), p.n, across_n, p.units[1]) * depth
    tile = share(b.rows[-1], p.m, across_m, p.units[0]) * share(b.columns[-1], p.n, across_n, p.units[1])
    several = b.rows[-1] < p.m or b.columns[-1] < p.n
    last = level == len(p.levels) - 1
    slots_out = (b.sums if last else p.turns) if several else 1
    out = tile * p.d_acc
    need_a, need_b = a * (1 if traffic.stays_a else p.turns), other * (1 if traffic.stays_b else p.turns)
    need_out = out * slots_out + (tile * p.d_behind if last else 0)
    most_out = RESULT_SLOTS if several and p.turns > 1 and not last else slots_out
    if storage.room is None:
        if need_a > storage.rooms[0] or need_b > storage.rooms[1] or need_out > storage.rooms[2]:
            return None
        slots_a, slots_b = storage.rooms[0] // a, storage.rooms[1] // other
        slots_out = max(slots_out, min(most_out, storage.rooms[2] // out))
    else:
        if need_a + need_b + need_out > storage.room:
            return None
        left = storage.room - need_a - need_b
        slots_out = max(slots_out, min(most_out, left // out, storage.room // (RESULT_PART * out)))
        left = storage.room - out * slots_out
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


def times(p: LevelProduct, b: Blocks) -> Times | None:
    """The cycles of a cut, None where it does not fit.

    Loads, products and stores overlap but at the start, until the first blocks are there, and at the end, when the last
    results leave. What takes turns in the slots of a level is there from the begin of its transfer to the end of its
    use, so that too few slots hold up those before.
    """
    count = len(p.levels)
    traffic = traffic_of(p, b)
    held = []
    for level in range(count):
        room = held_at(p, b, level, traffic[level])
        if room is None:
            return None
        held.append(room)
    latency = [storage.latency for storage in p.levels]
    latency[0] += p.latency
    rows, columns, depth = min(b.rows[-1], p.m), min(b.columns[-1], p.n), min(b.depth, p.k)
    tiles, steps = ceil_div(p.m, b.rows[-1]) * ceil_div(p.n, b.columns[-1]), ceil_div(p.k, depth)
    step_a, step_b = rows * depth * p.d_s, columns * depth * p.d_s
    size_a, size_b = p.m * p.k * p.d_s, p.n * p.k * p.d_s
    one = p.product_cycles(rows, columns, depth)
    products = _products(p, b)

    step = [sum(load_cycles(p, b, level, step_a, step_b)) for level in range(count)] + [one]
    loads = []
    begin = [0.0]
    for level, found in enumerate(traffic):
        busy = sum(load_cycles(p, b, level, found.load_a * size_a, found.load_b * size_b))
        if level >= b.split and steps > 1:
            turning = (step[level] + latency[level] + step[level + 1]) / min(held[level].slots_a, held[level].slots_b)
            busy = max(busy, tiles * steps * turning)
        loads.append(busy)
        begin.append(begin[-1] + latency[level] + _first(p, b, level, found.a_first))

    tile = [store_cycles(p, level, rows * columns * p.d_acc) for level in range(count)] + [products / tiles]
    stores = []
    for level in range(count):
        busy = store_cycles(p, level, p.m * p.n * p.d_acc)
        if tiles > 1:
            before = tile[level + 1] + (latency[level + 1] if level + 1 < count else p.drain)
            busy = max(busy, (tiles - 1) * (before + tile[level] + latency[level]) / held[level].slots_out)
        stores.append(busy)
    end = p.drain + sum(tile[:count]) + sum(latency)
    until = begin[-1] + products
    for level in range(count):
        until = max(until, begin[level] + loads[level], begin[-1] + tile[count] + stores[level])
    return Times(traffic, tuple(held), tuple(loads), tuple(stores), products, tuple(begin), end, until + end)


def _first(p: LevelProduct, b: Blocks, level: int, a_first: bool) -> float:
    """Cycles of a level's loads before the next level can begin: a block of the operand that comes first, and the first
    piece of the other."""
    depth, piece = b.depth_at(level, p.k) * p.d_s, min(b.depth, p.k) * p.d_s
    inner = level + 1
    rows, columns = (
        (min(b.rows_at(level), p.m) * depth, min(b.columns_at(inner), p.n) * piece)
        if a_first
        else (min(b.rows_at(inner), p.m) * piece, min(b.columns_at(level), p.n) * depth)
    )
    return sum(load_cycles(p, b, level, rows, columns))


@functools.lru_cache(maxsize=4096)
def _pieces(size: int, block: int) -> tuple[tuple[int, int], ...]:
    """(how many, size) of the pieces of an axis: the full ones and the rest."""
    full, rest = divmod(size, block)
    return tuple((count, piece) for count, piece in ((full, block), (1, rest)) if count and piece)


def _products(p: LevelProduct, b: Blocks) -> float:
    total = 0
    for of_k, steps in _pieces(p.k, min(b.depth, p.k)):
        for of_m, rows in _pieces(p.m, b.rows[-1]):
            for of_n, columns in _pieces(p.n, b.columns[-1]):
                total += of_m * of_n * of_k * p.product_cycles(rows, columns, steps)
    return float(total)
