"""Search for the fastest configuration of a matrix multiplication through several storage levels, with few candidates.

Traffic falls as blocks grow, level by level, so few choices remain:

1. The spread of every level's instances over rows and columns: pairs of divisors.
2. The level where K is split, and the rows and columns of the sums there. They share the capacity for sums, so for each
   number of columns the search tries the most rows that fit, evened out, and a half and a quarter of them. (Blocks
   inside that level are the same.)
3. The outer levels, from the innermost outwards: the largest multiples of the inner blocks that fit. Where operands
   share a level's capacity, several divisions of it are tried.
4. The order of each level's two loops: the one whose loads take less time.

A lower bound from loads and multiplications prunes candidates that cannot win. The best few are then refined
(levels/refine.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from ..gemm.traffic import ceil_div
from .level_model import Blocks, LevelProduct, load_cycles, nested, round_up, share, spreads, store_cycles, traffic_of
from .level_time import Choice, Timed, product_cycles
from .level_walk import can_be_walked, walked_cycles, walked_instructions
from .objective import FASTEST, Objective
from .refine import refined
from .steps import deepest

MOST_COUNTS = 16  # block counts tried along an axis
MOST_GROWN = 12  # candidates per split level whose outer levels are chosen; a third of them for each spread
MOST_ALIKE = 2  # candidates per split level and spread that may be refined
MOST_REFINED = 10  # candidates that are refined
MOST_STEPS = 6000  # instructions simulated in total while choosing
MOST_WALKED = 12_000  # instructions simulated to get the cycles of a single candidate
DOUBT = 0.25  # relative margin behind the best estimate within which a candidate is still simulated
PARTS = (0.125, 0.25, 0.5, 0.75, 0.875)  # shares of a shared capacity for A


def best_blocks(p: LevelProduct, objective: Objective = FASTEST) -> Choice | None:
    """Return the best configuration, or None if none fits; the module docstring describes the candidates."""
    if objective.prefer != "utilisation" and not objective.limit:
        fastest = best_blocks(p)
        if fastest is None:
            return None
        objective = objective.within(fastest.times.cycles)
        other, own = best_blocks(p, objective), Timed(p, objective).walked(fastest, fastest.times.cycles)
        return own if other is None else min(other, own, key=lambda choice: choice.rank)
    starts = sorted((start for start in _starts(p) if start[0] < math.inf), key=lambda start: start[0])
    spread_count = sum(1 for _ in spreads(p))
    kinds: dict[tuple[object, ...], list[Choice]] = {}
    timed = Timed(p, objective)
    best = math.inf
    tried: dict[tuple[object, ...], int] = {}
    for bound, start in starts:
        kind = (start.split, start.across_m, start.across_n)
        if objective.prefer == "utilisation" and bound >= best:
            break
        if tried.setdefault(kind, 0) < max(MOST_GROWN // 3, MOST_GROWN // spread_count):
            tried[kind] += 1
            grown = _grown(p, start, timed)
            if grown is not None:
                kinds.setdefault(kind, []).append(grown)
                best = min(best, grown.times.cost)
    picks = [pick for own in kinds.values() for pick in sorted(own, key=lambda choice: choice.rank)[:MOST_ALIKE]]
    picks.sort(key=lambda choice: choice.rank)
    found = {
        choice.blocks: choice
        for choice in (_written(p, refined(p, pick, timed), timed) for pick in picks[:MOST_REFINED])
    }
    return _walked(p, sorted(found.values(), key=lambda choice: choice.rank), timed)


def _written(p: LevelProduct, choice: Choice, timed: Timed) -> Choice:
    """Return the configuration in the normal form in which its choices are recorded, with the same program: no block is
    larger than its axis, and K is not split where one step covers it."""
    b, levels = choice.blocks, len(p.levels)
    rows = nested(b.rows, p.m, p.units[0] * b.across_m[-1])
    columns = nested(b.columns, p.n, p.units[1] * b.across_n[-1])
    orders = b.orders
    if b.split < levels and b.depth >= p.k:
        more = levels - b.split
        rows, columns, orders = (
            (*rows, *rows[-1:] * more),
            (*columns, *columns[-1:] * more),
            (*orders, *orders[-1:] * more),
        )
    return timed.of(b._replace(rows=rows, columns=columns, orders=orders)) or choice


def _walked(p: LevelProduct, found: list[Choice], timed: Timed) -> Choice | None:
    """Return the best of some configurations that are sorted by estimate. Those with short enough programs are compared
    by simulated cycles; if there is none, the estimate decides where the objective allows it."""
    if not found or not can_be_walked(p):
        return found[0] if found else None
    walked: list[Choice] = []
    steps = 0
    for choice in found:
        steps += walked_instructions(p, choice.blocks)
        if walked and (steps > MOST_STEPS or choice.times.cost > found[0].times.cost * (1 + DOUBT)):
            break
        if steps <= MOST_WALKED:
            walked.append(timed.walked(choice, walked_cycles(p, choice.blocks, choice.times)))
    if not walked and timed.objective.by_estimate:
        return found[0]
    return min(walked, key=lambda choice: choice.rank, default=None)


def sizes(whole: int, unit: int) -> list[int]:
    """Return the evened-out block sizes along an axis, in multiples of `unit`: one for each distinct number of
    blocks."""
    found: list[int] = []
    units = ceil_div(whole, unit)
    count = 1
    while count <= units:
        size = ceil_div(units, count)
        found.append(size * unit)
        if size == 1:
            break
        count = ceil_div(units, size - 1)  # the next count with smaller blocks
    if len(found) > MOST_COUNTS:
        picks = {round(i * (len(found) - 1) / (MOST_COUNTS - 1)) for i in range(MOST_COUNTS)}
        powers = {2**i for i in range(units.bit_length())}
        found = [size for i, size in enumerate(found) if i in picks or size // unit in powers]
    return found


def _starts(p: LevelProduct) -> Iterator[tuple[float, Blocks]]:
    """Yield configurations with the blocks of the split level only, with a lower bound of their cycles. Some may not
    fit yet."""
    levels = len(p.levels)
    for across_m, across_n in spreads(p):
        rows_of = sizes(p.m, p.units[0] * across_m[-1])
        columns_of = sizes(p.n, p.units[1] * across_n[-1])
        for split in range(levels + 1):
            depth = min(p.units[2], p.k) if split < levels else p.k
            for sums, columns in itertools.product((1, 2), columns_of):
                blocks = _same(split, p.units[0] * across_m[-1], columns, depth, across_m, across_n, sums)
                most = _most_rows(p, blocks)
                for limit in (most, most // 2, most // 4):
                    rows = next((size for size in rows_of if size <= limit), None)
                    if rows is not None and (limit == most or rows * 2 > limit):
                        found = _same(split, rows, columns, depth, across_m, across_n, sums)
                        config = deepest(p, found)
                        yield _bound(p, config), config


def _most_rows(p: LevelProduct, b: Blocks) -> int:
    """Return the most rows for the columns of `b` such that sums and the smallest steps of K fit every level; 0 if the
    columns do not fit."""
    most = round_up(p.m, p.units[0] * b.across_m[-1])
    depth = round_up(b.depth, p.units[2])
    step = p.bytes_a(1, depth) * p.turns
    for level, storage in enumerate(p.levels):
        columns = share(b.columns[-1], p.n, b.across_n[level], p.units[1])
        other = p.bytes_b(columns, depth) * p.turns
        last = level == len(p.levels) - 1
        for_sums = columns * (p.d_acc * (b.sums if last else p.turns) + p.d_epilogue * last)
        if storage.capacity is not None:
            capacity = (storage.capacity - other) // (for_sums + step)
        elif other <= storage.capacities[1]:
            capacity = min(storage.capacities[2] // for_sums, storage.capacities[0] // step)
        else:
            capacity = 0
        most = min(most, capacity // p.units[0] * p.units[0] * b.across_m[level])
    return most


def _same(
    split: int,
    rows: int,
    columns: int,
    depth: int,
    across_m: tuple[int, ...],
    across_n: tuple[int, ...],
    sums: int,
) -> Blocks:
    """Return a configuration with the same rows and columns at all levels."""
    count = split + 1
    return Blocks((rows,) * count, (columns,) * count, ("mn",) * count, depth, across_m, across_n, sums)


def _bound(p: LevelProduct, b: Blocks) -> float:
    """Return a lower bound of the cycles for any choice of outer blocks, with the given steps of K."""
    last = len(p.levels) - 1
    down, across = p.blocks_m(b.rows[-1]), p.blocks_n(b.columns[-1])
    tiles = down * across
    products = product_cycles(p, b)
    tile = store_cycles(p, last, p.bytes_out(min(b.rows[-1], p.m), min(b.columns[-1], p.n)))
    bound = max(products, (tiles - 1) * (products / tiles + tile + p.levels[last].latency) / b.sums)
    begin, end = 0.0, 0.0
    rows, columns, depth = min(b.rows[-1], p.m), min(b.columns[-1], p.n), min(p.units[2], p.k)
    until = 0.0
    for level, storage in enumerate(p.levels):
        if level < b.split:
            often = _least_loads(p, b, level)
        elif b.depth < p.k:
            often = [(across, down)]
        else:
            often = [(1, down), (across, 1)]
        whole = p.pass_b(level, round_up(p.n, b.columns[-1]), 1) if level < b.split else p.loaded(b, level, 0, 1)[1]
        loads = (sum(load_cycles(p, b, level, a * p.all_a, n * whole)) for a, n in often)
        until = max(until, begin + min(loads, default=math.inf))
        begin += storage.latency + sum(load_cycles(p, b, level, p.bytes_a(rows, depth), p.bytes_b(columns, depth)))
        end += storage.latency + store_cycles(p, level, p.bytes_out(rows, columns))
    stores = max(store_cycles(p, level, p.all_out) for level in range(last + 1))
    return max(until, begin + bound, begin + products / tiles + stores) + end + 2 * p.latency


def _least_loads(p: LevelProduct, b: Blocks, level: int) -> list[tuple[int, int]]:
    """Return the least numbers of loads of A and B into a level that holds all of K, one pair for each loop order;
    empty if nothing fits."""
    storage, depth = p.levels[level], round_up(p.k, p.units[2])
    blocks = (
        p.bytes_a(share(b.rows[-1], p.m, b.across_m[level], 1), depth),
        p.bytes_b(share(b.columns[-1], p.n, b.across_n[level], 1), depth),
    )
    wholes = (
        p.bytes_a(ceil_div(p.m, b.across_m[level]), depth),
        p.bytes_b(ceil_div(p.n, b.across_n[level]), depth) * p.rounds,
    )
    capacities = (
        storage.capacities[:2]
        if storage.capacity is None
        else (storage.capacity - blocks[1], storage.capacity - blocks[0])
    )
    if any(
        min(whole, block * p.turns) > capacity
        for whole, block, capacity in zip(wholes, blocks, capacities, strict=True)
    ):
        return []
    most = [
        1 if whole <= capacity else ceil_div(whole * p.turns, capacity)
        for whole, capacity in zip(wholes, capacities, strict=True)
    ]
    return [(1, most[0]), (most[1], 1)]


def _grown(p: LevelProduct, b: Blocks, timed: Timed) -> Choice | None:
    """Choose the largest fitting blocks for the levels outside the split level, with the best division of a shared
    capacity."""
    best: Choice | None = None
    shared = any(storage.capacity is not None for storage in p.levels[: b.split])
    for part in PARTS if shared else PARTS[:1]:
        blocks = b
        for level in range(b.split - 1, -1, -1):
            blocks = _largest(p, blocks, level, part)
        found = _ordered(p, blocks, timed)
        if found is not None and (best is None or found.rank < best.rank):
            best = found
    return best


def _largest(p: LevelProduct, b: Blocks, level: int, part: float) -> Blocks:
    """Set the blocks of one level, and of all levels outside it, to the largest multiples of the inner blocks that
    fit."""
    storage = p.levels[level]
    depth = round_up(p.k, p.units[2])
    capacities: tuple[float, float] = storage.capacities[:2]
    if storage.capacity is not None:
        tile = share(b.rows[-1], p.m, b.across_m[level], p.units[0])
        tile *= share(b.columns[-1], p.n, b.across_n[level], p.units[1]) * p.d_acc * p.turns
        capacities = ((storage.capacity - tile) * part, (storage.capacity - tile) * (1 - part))
    for axis, capacity, across in (("m", capacities[0], b.across_m[level]), ("n", capacities[1], b.across_n[level])):
        whole, own = (p.m, b.rows) if axis == "m" else (p.n, b.columns)
        inner, fits = own[level + 1], _most(p, axis, capacity, depth * p.turns) * across
        own_part = share(whole, whole, across, p.units["mn".index(axis)])
        if (p.bytes_a if axis == "m" else p.bytes_b)(own_part, depth) <= capacity and (
            storage.capacity is None or fits >= whole
        ):
            fits = max(fits, whole)  # the whole operand stays resident and is loaded once
        count = ceil_div(whole, max(fits // inner * inner, inner))
        size = round_up(ceil_div(whole, count), inner)
        b = _with(b, axis, (*(size for _ in range(level + 1)), *own[level + 1 :]))
    return b


def _most(p: LevelProduct, axis: str, capacity: float, depth: int) -> int:
    """Return the most rows or columns with `depth` steps of K that fit the capacity."""
    if axis == "m":
        return int(capacity // p.bytes_a(1, depth))
    return max(0, int((capacity // (depth * p.d_b) - p.halo) // p.step))


def _with(b: Blocks, axis: str, own: Sequence[int]) -> Blocks:
    return b._replace(rows=tuple(own)) if axis == "m" else b._replace(columns=tuple(own))


def _ordered(p: LevelProduct, b: Blocks, timed: Timed) -> Choice | None:
    """Choose for each level the loop order whose loads take less time, comparing the next level's loads on a tie; None
    if the configuration does not fit."""
    last = len(p.levels) - 1
    for level in range(b.split + 1):
        options = []
        for order in ("mn", "nm"):
            own = b._replace(orders=(*b.orders[:level], order, *b.orders[level + 1 :]))
            traffic = traffic_of(p, own)
            busy = [
                sum(load_cycles(p, own, place, *p.loaded(own, place, traffic[place].load_a, traffic[place].load_b)))
                for place in (min(level, last), min(level + 1, last))
            ]
            options.append((busy, not traffic[min(level, last)].a_first, own))
        b = min(options, key=lambda option: option[:2])[-1]
    return timed.of(b)
