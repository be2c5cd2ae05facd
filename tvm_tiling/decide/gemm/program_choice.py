"""Choice of a matrix multiplication's configuration by the performance of its program on the whole machine.

The formulas of the analytical partition assume that nothing waits. A program also waits for its first operands and last
results, loads and results may share a port, and instructions take whole cycles. If the machine description specifies
the cost of storing results, the configuration of the formulas is one of several candidates. The cycles of each
candidate's program are simulated instruction by instruction, bytes and energy are computed in closed form, and the best
by the caller's objective is taken. Without that part of the description, the configuration of the formulas is the
fastest and is used directly.

"utilisation"  fewest cycles; a candidate that reads more bytes must save 1 percent, any other 0.2 percent
"traffic"      fewest bytes, among those at most 5 percent slower than the fastest
"energy"       least energy, by the coefficients of the machine description
"edp"          least energy-delay product
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ..tiling import GemmTiling
from .best import (
    AS_FAST,
    LEVEL,
    WORTH_BYTES,
    Prefer,
    fastest_split,
    keep_whole,
    leanest_split,
    smallest_split,
    unsplit_configs,
)
from .chunks import product_chunks
from .product_energy import product_energy
from .product_time import ProductEngines, engines_for
from .traffic import Config, Product, ceil_div, smallest_partition
from .unsplit import hasty_cycles

WORTH = 0.002  # share of cycles that another configuration must save over that of the formulas
SUMS = (1, 2, 4, 8)  # divisors of the accumulation buffer that split-K may use
HASTY = 1.03  # largest ratio to the best cycles at which a quickly found program is still examined


@dataclass(frozen=True)
class Candidate:
    """A configuration and its program: `cycles` and `pj` of one multiplication of a batch, `read` bytes of its
    operands."""

    config: Config | None  # None: the configuration of the formulas
    cycles: float
    read: int
    pj: float


def leaves_for_free(hardware: Hardware) -> bool:
    """Return whether the description has no cost for storing results, in which case the formulas are exact."""
    return Machine(hardware).rate("external", "out") is None


def best_program(p: Product, tiling: GemmTiling, hardware: Hardware, prefer: Prefer, split_order: str) -> Config | None:
    """Return the best configuration by `prefer`; None if it is that of `tiling`, found by the formulas."""
    if leaves_for_free(hardware) and prefer in ("utilisation", "traffic"):
        return None
    own = _of_tiling(p, tiling, hardware)
    engines = engines_for(p, hardware)
    best, found = own, [own]
    shown = {_choices(tiling)}
    for config in other_configs(p, split_order):
        choices = (config.partition_m, config.partition_n, config.partition_k, config.outer_order)
        if choices in shown:
            continue
        shown.add(choices)
        read = p.bytes_read(config.load_a, config.load_b)
        worth = WORTH_BYTES if read > own.read else WORTH
        if prefer == "utilisation" and _bound(p, engines, read) >= best.cycles * (1 - worth):
            continue
        other = replace(tiling, **config.choices)
        if prefer == "utilisation" and not config.split_k and hasty_cycles(p, other, hardware) > best.cycles * HASTY:
            continue
        candidate = _of_tiling(p, other, hardware, config)
        found.append(candidate)
        if candidate.cycles < best.cycles * (1 - worth):
            best = candidate
    if prefer == "traffic":
        limit = min(candidate.cycles for candidate in found) * (1 + AS_FAST)
        best = min((c for c in found if c.cycles <= limit), key=lambda c: (c.read, c.cycles))
    elif prefer == "energy":
        best = min(found, key=lambda c: (c.pj, c.cycles))
    elif prefer == "edp":
        best = min(found, key=lambda c: c.pj * c.cycles)
    return best.config


def _of_tiling(p: Product, tiling: GemmTiling, hardware: Hardware, config: Config | None = None) -> Candidate:
    chunks = product_chunks(p, tiling, hardware)
    read = p.bytes_read(tiling.load_a, tiling.load_b)
    pj = product_energy(p, chunks, hardware, tiling.load_a, tiling.load_b)
    return Candidate(config, chunks.cycles, read, pj)


def _choices(tiling: GemmTiling) -> tuple[int, int, int, str]:
    return tiling.partition_m, tiling.partition_n, tiling.partition_k, tiling.outer_order


def _bound(p: Product, engines: ProductEngines, read: int) -> float:
    """Return a lower bound of the cycles of any program that reads this many bytes in total."""
    work = float(engines.products(np.array(p.m), np.array(p.n), np.array(p.k)))
    rate = min(p.bw_a, p.bw_b) if p.bw_a == p.bw_b else math.inf
    out = p.m * p.n * engines.leaving
    return max(work, read / rate + out if engines.one_port else out)


def other_configs(p: Product, split_order: str) -> Iterator[Config]:
    """Yield configurations that may be faster or take less energy than that of the formulas, which ignore how operands
    arrive and results are stored: either operand kept whole; either loop order, with the fewest partitions that fit and
    with more; split-K for the least time, and for the fewest bytes with all or part of the accumulation buffer.
    """
    rows, columns = p.largest_rows(p.k), p.largest_columns(p.k)
    if rows > 0 and columns > 0:
        for fits, order in ((p.fits_a, "mn"), (p.fits_b, "nm")):
            if fits:
                yield keep_whole(p, rows, columns, keep_a=order == "mn")
        unsplit = [] if p.fits_a or p.fits_b else unsplit_configs(p, rows, columns)
        yield from unsplit
        for whole, fits, order in ((p.m, p.fits_b, "mn"), (p.n, p.fits_a, "nm")):
            largest, block = (rows, p.block_m) if order == "mn" else (columns, p.block_n)
            fewest = ceil_div(whole, largest)
            for count in (fewest + 1, 2 * fewest, 4 * fewest) if not fits else ():
                size = smallest_partition(whole, block, count)
                if size < largest:
                    yield _smaller(p, size if order == "mn" else rows, columns if order == "mn" else size, order)
    fastest = fastest_split(p)
    if fastest < math.inf:
        yield smallest_split(p, fastest * (1 + LEVEL), split_order, math.inf)
        for part in SUMS:
            some = replace(p, acc_max=p.acc_max // part)
            if fastest_split(some) < math.inf:
                yield leanest_split(some, math.inf, split_order, math.inf)


def _smaller(p: Product, rows: int, columns: int, order: str) -> Config:
    """Return a configuration without split-K whose resident operand has more partitions than necessary."""
    load_a, load_b = p.load_counts(rows, columns, p.k, order)
    loops, stays, passes = ("m outside n", "A", "B") if order == "mn" else ("n outside m", "B", "A")
    smaller = f"smaller than the buffer of {stays} allows, so that the first one arrives early"
    filled = f"the most that fits the buffer of {passes} with all of K"
    return Config(
        partition_m=rows,
        partition_n=columns,
        partition_k=p.k,
        outer_order=order,
        split_k=False,
        acc_bytes=0,
        load_a=load_a,
        load_b=load_b,
        why={
            "partition_m": smaller if order == "mn" else filled,
            "partition_n": filled if order == "mn" else smaller,
            "partition_k": "all of K: no split-K",
            "outer_order": f"{loops}: {stays} stays resident while {passes} streams past",
            "split_k": "the program is faster without split-K",
            "load_a": "streams past once" if load_a == 1 else f"once for each of {load_a} blocks of n",
            "load_b": "streams past once" if load_b == 1 else f"once for each of {load_b} blocks of m",
        },
    )
