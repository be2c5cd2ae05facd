"""The fastest partition of a matrix multiplication that fits its buffers (analytical split-K partition, design page 01,
mode "best").

How the best configuration is found
-----------------------------------

An exhaustive search would try every partition_m, partition_n, partition_k and both orders of the outer loops. Nearly
all of these choices follow directly:

1. An operand that fits its buffer can be kept whole while the other one streams past once. Then nothing is loaded
   twice, no accumulation buffer is used, and no configuration is faster, reads less or is simpler (case 1).
2. Without split-K, load counts only fall as partitions grow, so the largest partitions that fit are the best. Two
   configurations remain: m outside n reads B repeatedly, n outside m reads A repeatedly.
3. With split-K, load_a = ceil(n / partition_n) and load_b = ceil(m / partition_m). Neither depends on partition_k, so
   feasibility can be checked at partition_k = 1. Only the accumulation buffer couples the partitions: partition_m *
   partition_n * d_acc <= acc_max. Allowing one more load of A lets the smallest partition_n shrink, the largest fitting
   partition_m grow and load_b fall. Along this line the time of A rises and the time of B falls, so their maximum is
   smallest where they cross, on one side or the other. A bisection over load_a finds the crossing. The published
   equations (product and ratio of the load counts) describe this crossing for real numbers; integers and blocks shift
   it.
4. The smallest accumulation buffer that is equally fast: a time limit T bounds the counts by T / load_a_cycles and T /
   load_b_cycles, and each count bounds its partition from below. The two smallest partitions are feasible together,
   because the fastest configuration is feasible and nowhere smaller. Their product is the minimum, and no other pair
   attains it. The published method, which halves the accumulation buffer repeatedly, ends at the same point if its
   steps are small enough.

Times within a relative `LEVEL` count as equal, so that rounding of floating-point cycles decides nothing.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from ...errors import TilingError
from ...figures import quantity, times
from .traffic import Config, Product, ceil_div, round_down, smallest_partition

LEVEL = 1e-12  # cycles whose relative difference is smaller count as equal
WORTH_BYTES = 0.01  # share of a program's cycles that reading more bytes must save
AS_FAST = 0.05  # relative slowdown accepted for fewer bytes where traffic is preferred

Prefer = Literal["utilisation", "traffic", "energy", "edp"]
PREFERRED: tuple[Prefer, ...] = get_args(Prefer)


def refuse_preference(prefer: str) -> None:
    """Raise TilingError for an unknown preference."""
    if prefer not in PREFERRED:
        raise TilingError(f"decide: prefer = {prefer!r}; expected {', '.join(map(repr, PREFERRED))}")


def best_config(p: Product, prefer: Prefer, split_order: str) -> Config | None:
    """Return the best configuration, or None if none fits; the module docstring gives the derivation."""
    rows, columns = p.largest_rows(p.k), p.largest_columns(p.k)
    unsplit_fits = rows > 0 and columns > 0
    if unsplit_fits and (p.fits_a or p.fits_b):
        return keep_whole(p, rows, columns)
    unsplit = unsplit_configs(p, rows, columns) if unsplit_fits else []
    unsplit_cycles = min((p.cycles(c.load_a, c.load_b) for c in unsplit), default=math.inf)
    if prefer == "utilisation" and unsplit_cycles <= p.floor_cycles * (1 + LEVEL):
        split_cycles = math.inf  # no configuration is faster than the lower bound
    else:
        split_cycles = fastest_split(p)
    fastest = min(unsplit_cycles, split_cycles)
    if fastest == math.inf:
        return None
    limit = fastest * (1 + LEVEL)
    level = [c for c in unsplit if p.cycles(c.load_a, c.load_b) <= limit]
    if split_cycles <= limit and (prefer == "traffic" or not level):
        smallest = prefer == "utilisation"
        level.append((smallest_split if smallest else leanest_split)(p, limit, split_order, unsplit_cycles))
    # On equal bytes, prefer no split-K; of two unsplit configurations, prefer the first, which has the published loop
    # order.
    return min(level, key=lambda c: (p.bytes_read(c.load_a, c.load_b), c.split_k))


def keep_whole(p: Product, rows: int, columns: int, *, keep_a: bool | None = None) -> Config:
    """Case 1: keep one operand whole in its buffer and stream the other past it once.

    The published rule keeps A whole if m < n and B otherwise, which is wrong if that operand does not fit. The rule is
    therefore applied only if both fit and `keep_a` is not given.
    """
    if keep_a is None:
        keep_a = p.fits_a and (p.m < p.n or not p.fits_b)
    kept, passing = ("A", "B") if keep_a else ("B", "A")
    if p.fits_a and p.fits_b:
        held = f"both operands fit their buffers; m = {p.m} {'<' if p.m < p.n else '>='} n = {p.n} keeps {kept} whole"
    else:
        held = f"only {kept} fits its buffer and is kept whole"
    filled = f"the most that fits the buffer of {passing} with all of K"
    order = "mn" if keep_a else "nm"
    return Config(
        partition_m=p.m if keep_a else rows,
        partition_n=columns if keep_a else p.n,
        partition_k=p.k,
        outer_order=order,
        split_k=False,
        acc_bytes=0,
        load_a=1,
        load_b=1,
        why={
            "partition_m": held if keep_a else filled,
            "partition_n": filled if keep_a else held,
            "partition_k": "all of K: no split-K",
            "outer_order": (
                f"{'m outside n' if keep_a else 'n outside m'}: {kept} stays resident while {passing} streams past"
            ),
            "split_k": f"{kept} fits its buffer, so nothing is loaded twice without split-K",
            "load_a": "fits its buffer" if p.fits_a else "streams past once",
            "load_b": "fits its buffer" if p.fits_b else "streams past once",
        },
    )


def unsplit_configs(p: Product, rows: int, columns: int) -> list[Config]:
    """Case 2 without split-K: return both orders of the outer loops, the published choice (by bandwidth) first."""
    again_a, again_b = ceil_div(p.n, columns), ceil_div(p.m, rows)
    cycles_mn, cycles_nm = p.cycles(1, again_b), p.cycles(again_a, 1)
    why = {
        "partition_m": "the most that fits the buffer of A with all of K",
        "partition_n": "the most that fits the buffer of B with all of K",
        "partition_k": "all of K: no split-K",
        "split_k": "neither operand fits its buffer, but split-K is not faster",
    }
    m_outside = Config(
        partition_m=rows,
        partition_n=columns,
        partition_k=p.k,
        outer_order="mn",
        split_k=False,
        acc_bytes=0,
        load_a=1,
        load_b=again_b,
        why=why
        | {
            "outer_order": f"m outside n takes {cycles_mn:.0f} cycles, n outside m {cycles_nm:.0f}",
            "load_a": "a block of A stays resident while B streams past",
            "load_b": f"once for each of {quantity(again_b, 'block')} of m",
        },
    )
    n_outside = m_outside._replace(
        outer_order="nm",
        load_a=again_a,
        load_b=1,
        why=why
        | {
            "outer_order": f"n outside m takes {cycles_nm:.0f} cycles, m outside n {cycles_mn:.0f}",
            "load_a": f"once for each of {quantity(again_a, 'block')} of n",
            "load_b": "a block of B stays resident while A streams past",
        },
    )
    return [m_outside, n_outside] if p.bw_a < p.bw_b else [n_outside, m_outside]


class _SplitCapacity:
    """Bounds of a split-K configuration: the smallest and largest partitions, and how they share the accumulation
    buffer."""

    def __init__(self, p: Product) -> None:
        self.p = p
        self.least_m, self.least_n = min(p.m, p.block_m), min(p.n, p.block_n)
        self.most_m, self.most_n = p.largest_rows(1), p.largest_columns(1)
        self.sums = p.acc_max // p.d_acc

    @property
    def empty(self) -> bool:
        return self.p.k == 1 or not self.most_m or not self.most_n or self.least_m * self.least_n > self.sums

    def rows_beside(self, columns: int) -> int:
        """Return the largest partition_m for a given partition_n, 0 if there is none."""
        return round_down(min(self.most_m, self.sums // columns), self.p.m, self.p.block_m)

    def columns_beside(self, rows: int) -> int:
        return round_down(min(self.most_n, self.sums // rows), self.p.n, self.p.block_n)


def fastest_split(p: Product) -> float:
    """Return the cycles of the fastest split-K configuration, infinity if there is none (point 3 of the derivation)."""
    room = _SplitCapacity(p)
    if room.empty:
        return math.inf
    if p.fits_a:  # A is read once for any partition_n; the smallest leaves the most room for partition_m
        return p.cycles(1, ceil_div(p.m, room.rows_beside(room.least_n)))
    if p.fits_b:
        return p.cycles(ceil_div(p.n, room.columns_beside(room.least_m)), 1)

    def times(allowed: int) -> tuple[float, float]:
        """Return the cycles of A's and of B's loads if A may be loaded `allowed` times."""
        columns = smallest_partition(p.n, p.block_n, allowed)
        rows = room.rows_beside(columns)
        time_b = ceil_div(p.m, rows) * p.load_b_cycles if rows else math.inf
        return ceil_div(p.n, columns) * p.load_a_cycles, time_b

    low, high = ceil_div(p.n, room.most_n), ceil_div(p.n, room.least_n)
    while low < high:  # find the first count at which A takes as long as B
        middle = (low + high) // 2
        time_a, time_b = times(middle)
        if time_a >= time_b:
            high = middle
        else:
            low = middle + 1
    crossing = max(times(low))
    if low > ceil_div(p.n, room.most_n):
        crossing = min(crossing, max(times(low - 1)))
    return max(p.gemm_cycles, crossing)


def smallest_split(p: Product, limit: float, order: str, unsplit_cycles: float) -> Config:
    """Return the split-K configuration with the smallest accumulation buffer that takes at most `limit` cycles (point 4
    of the derivation)."""
    room = _SplitCapacity(p)
    rows, columns = room.least_m, room.least_n
    if not p.fits_b:
        rows = smallest_partition(p.m, p.block_m, int(limit / p.load_b_cycles))
    if not p.fits_a:
        columns = smallest_partition(p.n, p.block_n, int(limit / p.load_a_cycles))
    return _split_config(p, rows, columns, order, unsplit_cycles, "smallest accumulation buffer")


def leanest_split(p: Product, limit: float, order: str, unsplit_cycles: float) -> Config:
    """Return the split-K configuration that reads the fewest bytes in at most `limit` cycles, with the smallest
    accumulation buffer.

    The search enumerates the distinct values of load_a, at most 2*sqrt(n). For each, the smallest partition_n leaves
    the most room for partition_m and so gives the fewest loads of B.
    """
    room = _SplitCapacity(p)
    fewest: tuple[int, int, int, int] | None = None
    columns, load_a = room.least_n, 1
    if not p.fits_a:
        load_a = ceil_div(p.n, room.most_n)
        columns = smallest_partition(p.n, p.block_n, load_a)
    while load_a * p.load_a_cycles <= limit:
        if fewest and p.bytes_read(load_a, 1) > fewest[0]:
            break
        rows = room.rows_beside(columns)
        if rows:
            load_b = 1 if p.fits_b else ceil_div(p.m, rows)
            if load_b * p.load_b_cycles <= limit:
                rows = room.least_m if p.fits_b else smallest_partition(p.m, p.block_m, load_b)
                found = (p.bytes_read(load_a, load_b), rows * columns, rows, columns)
                fewest = min(fewest, found) if fewest else found
        if columns == room.least_n:
            break
        load_a = ceil_div(p.n, (columns - 1) // p.block_n * p.block_n)
        columns = smallest_partition(p.n, p.block_n, load_a)
    assert fewest is not None  # the fastest split-K configuration is among those enumerated
    return _split_config(p, fewest[2], fewest[3], order, unsplit_cycles, "fewest bytes")


def _split_config(p: Product, rows: int, columns: int, order: str, unsplit_cycles: float, aim: str) -> Config:
    depth = p.largest_depth(rows, columns)
    load_a, load_b = p.load_counts(rows, columns, depth, order)
    acc_bytes = rows * columns * p.d_acc
    if unsplit_cycles == math.inf and p.largest_rows(p.k) and p.largest_columns(p.k):
        why_split = f"{p.cycles(load_a, load_b):.0f} cycles of multiplications and loads"
    elif unsplit_cycles == math.inf:
        why_split = f"no block fits a buffer with all of K = {p.k}"
    else:
        why_split = f"{p.cycles(load_a, load_b):.0f} cycles, {unsplit_cycles:.0f} without split-K"
        if p.cycles(load_a, load_b) > unsplit_cycles * (1 - LEVEL):
            why_split += (
                f", and {p.bytes_read(load_a, load_b)} bytes read, the fewest among equally fast configurations"
            )
    return Config(
        partition_m=rows,
        partition_n=columns,
        partition_k=depth,
        outer_order=order,
        split_k=True,
        acc_bytes=acc_bytes,
        load_a=load_a,
        load_b=load_b,
        why={
            "partition_m": f"reads B {times(load_b)}; {aim} among the fastest",
            "partition_n": f"reads A {times(load_a)}; {aim} among the fastest",
            "partition_k": "the most of K that fits both input buffers",
            "outer_order": "as requested, or m outside n; with split-K, both orders cost the same",
            "split_k": why_split,
            "acc_bytes": f"{rows} * {quantity(columns, 'sum')} of {p.d_acc} bytes; the machine has {p.acc_max} bytes",
            "load_a": "fits its buffer" if p.fits_a else f"once for each of {quantity(load_a, 'block')} of n",
            "load_b": "fits its buffer" if p.fits_b else f"once for each of {quantity(load_b, 'block')} of m",
        },
    )
