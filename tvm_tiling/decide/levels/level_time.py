"""Predicted cycles of a configuration through several storage levels."""

from __future__ import annotations

import functools
from typing import NamedTuple

from ..gemm.traffic import ceil_div
from .level_model import Blocks, Held, LevelProduct, Traffic, held_at, load_cycles, store_cycles, traffic_of
from .objective import Objective

# Penalty in cycles per instruction, so that of equally fast configurations the one with fewer instructions wins.
EACH = 0.1


class Times(NamedTuple):
    """Cycles of a configuration.

    `loads` into and `stores` out of each level; `products` of the matrix engines; `begin`: when each level, and last
    the engine, can start; `end`: from the last multiplication to the last stored result; `cycles`: the total. `cost`
    ranks configurations: the total plus a penalty per instruction.
    """

    traffic: tuple[Traffic, ...]
    held: tuple[Held, ...]
    loads: tuple[float, ...]
    stores: tuple[float, ...]
    products: float
    begin: tuple[float, ...]
    end: float
    cycles: float
    cost: float


class Choice(NamedTuple):
    """A configuration, its cycles, and its rank; the smallest rank is the best."""

    blocks: Blocks
    times: Times
    rank: tuple[float, ...]


class Timed:
    """Cached cycles of the configurations of one matrix multiplication, ranked by an objective."""

    def __init__(self, p: LevelProduct, objective: Objective) -> None:
        self._p, self.objective = p, objective
        self._known: dict[Blocks, Choice | None] = {}

    def of(self, b: Blocks) -> Choice | None:
        """Return a configuration with its cycles, None if it does not fit."""
        if b not in self._known:
            found = times(self._p, b)
            self._known[b] = None if found is None else self._ranked(b, found)
        return self._known[b]

    def walked(self, choice: Choice, cycles: float) -> Choice:
        """Return the choice with `cycles`, those of its simulated program, instead of the estimate."""
        own = choice.times
        return self._ranked(choice.blocks, own._replace(cycles=cycles, cost=cycles + own.cost - own.cycles))

    def _ranked(self, b: Blocks, found: Times) -> Choice:
        return Choice(b, found, self.objective.rank(self._p, b, found.traffic, found.cycles, found.cost))


def times(p: LevelProduct, b: Blocks) -> Times | None:
    """Estimate the cycles of a configuration; None if it does not fit.

    Loads, multiplications and stores overlap, except at the start, until the first blocks have arrived, and at the end,
    while the last results are stored. A block occupies its slot of a level from the start of its transfer to the end of
    its use, so too few slots delay the transfers before it.
    """
    count = len(p.levels)
    traffic = traffic_of(p, b)
    held = []
    for level in range(count):
        capacity = held_at(p, b, level, traffic[level])
        if capacity is None:
            return None
        held.append(capacity)
    latency = [storage.latency for storage in p.levels]
    latency[0] += p.latency
    rows, columns, depth = min(b.rows[-1], p.m), min(b.columns[-1], p.n), min(b.depth, p.k)
    tiles, steps = p.blocks_m(b.rows[-1]) * p.blocks_n(b.columns[-1]), ceil_div(p.k, depth)
    products = product_cycles(p, b)

    loads = []
    begin = [0.0]
    for level, found in enumerate(traffic):
        busy = _loads(p, b, level, found)
        if level >= b.split:
            busy = max(busy, _turning(p, b, level, found, held[level], latency[level]))
        loads.append(busy)
        begin.append(begin[-1] + latency[level] + _first(p, b, level, found.a_first))

    tile = [store_cycles(p, level, p.bytes_out(rows, columns)) for level in range(count)] + [products / tiles]
    stores = []
    for level in range(count):
        busy = store_cycles(p, level, p.all_out)
        if tiles > 1:
            before = tile[level + 1] + (latency[level + 1] if level + 1 < count else p.drain)
            busy = max(busy, (tiles - 1) * (before + tile[level] + latency[level]) / held[level].slots_out)
        stores.append(busy)
    end = p.drain + sum(tile[:count]) + sum(latency)
    until = begin[-1] + products
    for level in range(count):
        until = max(until, begin[level] + loads[level], begin[-1] + tile[count] + stores[level])
    for level in range(min(b.split, count)):
        until = max(
            until, begin[level] + latency[level] + _behind_second(p, b, level, traffic[level].a_first, products)
        )
    cycles = until + end
    if p.repeats > 1:  # groups run one after another, each starting as soon as there is space for its blocks
        slots = min(b.sums, *(min(capacity.slots_a, capacity.slots_b, capacity.slots_out) for capacity in held))
        cycles += (p.repeats - 1) * max(products, *loads, *stores, cycles / slots)
    cost = cycles + EACH * tiles * steps * p.repeats * p.instructions
    return Times(traffic, tuple(held), tuple(loads), tuple(stores), products, tuple(begin), end, cycles, cost)


def _loads(p: LevelProduct, b: Blocks, level: int, traffic: Traffic) -> float:
    """Return the cycles of all loads into a level, each piece rounded up to whole cycles."""
    depth, inner = min(b.depth, p.k), level + 1
    rows, columns = min(b.rows_at(inner), p.m), min(b.columns_at(inner), p.n)
    pieces = load_cycles(p, b, level, p.bytes_a(rows, depth), p.bytes_b(columns, depth))
    totals = load_cycles(p, b, level, *p.loaded(b, level, traffic.load_a, traffic.load_b))
    return sum(total * -(-each // 1) / each for total, each in zip(totals, pieces, strict=True) if each)


def _turning(p: LevelProduct, b: Blocks, level: int, traffic: Traffic, held: Held, latency: int) -> float:
    """Return the cycles in which blocks alternate in the slots of a level at or inside the split level. A block
    occupies a slot from the start of its load to the end of the load into the next level, or of the multiplication that
    uses it."""
    rows, columns, depth = min(b.rows[-1], p.m), min(b.columns[-1], p.n), min(b.depth, p.k)
    steps = ceil_div(p.k, depth)
    own = load_cycles(p, b, level, p.bytes_a(rows, depth), p.bytes_b(columns, depth))
    use: tuple[float, ...] = (p.product_cycles(rows, columns, depth),) * 2
    if level + 1 < len(p.levels):
        use = load_cycles(p, b, level + 1, p.bytes_a(rows, depth), p.bytes_b(columns, depth))
    if steps > 1:  # both operands are loaded for each step
        use_of_both = use[0] if level + 1 == len(p.levels) else sum(use)
        number = steps * p.blocks_m(rows) * p.blocks_n(columns)
        return _in_turns(number, min(held.slots_a, held.slots_b), sum(own), latency + use_of_both)
    longest = 0.0
    for often, blocks, stays, load, then, slots in (
        (traffic.load_a, p.blocks_m(rows), traffic.stays_a, own[0], use[0], held.slots_a),
        (traffic.load_b, p.blocks_n(columns), traffic.stays_b, own[1], use[1], held.slots_b),
    ):
        if not stays:
            longest = max(longest, _in_turns(often * blocks, slots, load, latency + then))
    return longest


def _in_turns(number: int, slots: int, load: float, then: float) -> float:
    """Return the cycles from the first load of `number` blocks to the last use, each occupying its slot for `load` and
    `then`."""
    turns, rest = divmod(number - 1, slots)
    return turns * max(load + then, slots * load) + rest * load + load + then


def _first(p: LevelProduct, b: Blocks, level: int, a_first: bool) -> float:
    """Return the cycles of a level's loads before the next level can begin. Loads are issued in the order of their use,
    so this is the first piece of either operand. Pieces of a convolution share input lines; there it is a whole block
    of the operand that is loaded first and the first piece of the other one."""
    depth, piece = b.depth_at(level, p.k), min(b.depth, p.k)
    inner = level + 1
    if p.image is None:
        rows, columns = min(b.rows_at(inner), p.m), min(b.columns_at(inner), p.n)
        return sum(load_cycles(p, b, level, p.bytes_a(rows, piece), p.bytes_b(columns, piece)))
    rows, columns = (
        (p.bytes_a(min(b.rows_at(level), p.m), depth), p.bytes_b(min(b.columns_at(inner), p.n), piece))
        if a_first
        else (p.bytes_a(min(b.rows_at(inner), p.m), piece), p.bytes_b(min(b.columns_at(level), p.n), depth))
    )
    return sum(load_cycles(p, b, level, rows, columns))


def _behind_second(p: LevelProduct, b: Blocks, level: int, a_first: bool, products: float) -> float:
    """Return the cycles to load the first blocks of A and B into a level that holds all of K, plus the multiplications
    left when their last piece arrives. The inner blocks consume the operand that is loaded second completely in their
    first pass over it, or one block at a time if its loop is the outer one."""
    rows, columns = min(b.rows[level], p.m), min(b.columns[level], p.n)
    own = products * rows * columns / (p.m * p.n * p.rounds)
    tiles_m, tiles_n = ceil_div(rows, b.rows[-1]), ceil_div(columns, b.columns[-1])
    second, first = (tiles_n, tiles_m) if a_first else (tiles_m, tiles_n)
    outer = b.orders[level + 1] == ("nm" if a_first else "mn")
    left = own * (1 - 1 / first) / (second if outer else 1)
    return sum(load_cycles(p, b, level, p.bytes_a(rows, p.k), p.bytes_b(columns, p.k))) + left + products - own


@functools.lru_cache(maxsize=4096)
def _pieces(size: int, block: int) -> tuple[tuple[int, int], ...]:
    """Return (count, size) of the full pieces of an axis and of the remainder."""
    full, rest = divmod(size, block)
    return tuple((count, piece) for count, piece in ((full, block), (1, rest)) if count and piece)


def product_cycles(p: LevelProduct, b: Blocks) -> float:
    """Return the cycles of all multiplications on the matrix engines."""
    total = 0
    for of_k, steps in _pieces(p.k, min(b.depth, p.k)):
        for of_m, rows in _pieces(p.m, b.rows[-1]):
            for of_n, columns in _pieces(p.n, b.columns[-1]):
                total += of_m * of_n * of_k * p.product_cycles(rows, columns, steps)
    return float(total * p.rounds)
