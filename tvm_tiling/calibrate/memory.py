"""Bandwidth and latency of every cache level and of memory, and the cost of vectors across cache lines and of rows
across pages.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..hardware.cpu import Cpu
from ..hardware.usable import read_text
from . import kernels
from .bench import Bench, Time, tensor

VECTORS = 8  # independent sums, which cover the latency of additions
TILE_VECTORS = 4  # vectors of a row of B, for the measurement of pages
PAGE_ROWS = 512
MOST_BYTES = 1 << 30
LEAST_OVER_LAST = 1.5  # minimum size of data that is read from memory, relative to the last-level cache
SAMPLE_BYTES = 40e6
CHASE_STEPS = 100_000
FIELDS = {"l2": "cpu.l2_bytes_per_cycle", "l3": "cpu.l3_bytes_per_cycle", "memory": "cpu.memory_bytes_per_cycle"}


@dataclass(frozen=True)
class Place:
    """A level of the memory hierarchy, and the bytes that stay in it: of one core that reads alone, and of each core
    when all read data of their own."""

    name: str
    one: int
    every: int | None  # None: the level cannot hold data of all cores at once


def places(cpu: Cpu, most: int) -> tuple[list[Place], dict[str, str]]:
    """Return the levels that can be measured within `most` bytes, and those that cannot, with the reason."""
    skipped = {}
    found = [Place("l1", cpu.l1_bytes // 2, cpu.l1_bytes // 2)]
    outer, last = cpu.l1_bytes, cpu.l1_bytes * cpu.cores
    for cache in cpu.caches[1:]:
        one = min(cache.size // 2, 4 * outer if cache.level > 2 else 16 * outer)
        sharing = min(cpu.cores, cache.cores)
        every = min(one, int(0.7 * cache.size / sharing))
        if one < 1.5 * outer:
            skipped[f"l{cache.level}"] = f"its {cache.size} bytes are less than three times the level before"
        else:
            found.append(Place(f"l{cache.level}", one, every if every >= 1.5 * outer else None))
        outer, last = cache.size // cache.cores, cache.size * max(1, cpu.cores // cache.cores)
    needed = int(LEAST_OVER_LAST * last)
    if needed > most:
        skipped["memory"] = f"the measurement takes {needed >> 20} MiB, and {most >> 20} MiB are available"
    else:
        total = min(max(4 * last, needed, 64 << 20), most)
        found.append(Place("memory", total, total // cpu.cores))
    return found, skipped


def available_bytes() -> int:
    """Return the maximum bytes of an array to measure with: a quarter of the machine's free memory or of the control
    group's limit, at most MOST_BYTES. Two copies of the array exist at a time.
    """
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return MOST_BYTES // 4
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        if (text := (read_text(Path(limit)) or "").strip()).isdigit():
            free = min(free, int(text))
    return min(MOST_BYTES, free // 4)


def measure_levels(bench: Bench) -> None:
    """Measure reads and dependent loads in each level, by one core and by all."""
    found, skipped = places(bench.cpu, available_bytes())
    bench.skipped.update(skipped)
    for cores in dict.fromkeys((1, bench.cpu.cores)):
        reader = bench.main(kernels.read(bench.cpu.lanes(4), VECTORS, cores))
        chaser = bench.main(kernels.chase(cores))
        for place in found:
            size = place.one if cores == 1 else place.every
            if size is None:
                continue
            who = "one core" if cores == 1 else f"each of {cores} cores at once"
            rate, time = _read(bench, reader, cores, size)
            field = FIELDS.get(place.name, "") if cores == 1 else ""
            bench.add(
                f"{place.name}_read_{cores}", rate, "bytes/cycle", time, f"{who} reads {size} bytes in order", field
            )
            wait = _chased(bench, chaser, cores, size)
            how = f"{who} follows links through {size} bytes in random order, address translation included"
            bench.add(f"{place.name}_latency_{cores}", wait.seconds * 1e9, "ns", wait, how)


def measure_lines_and_pages(bench: Bench) -> None:
    """Measure vectors that straddle two cache lines, in L1 and in L2, and rows on different pages."""
    lanes, line = bench.cpu.lanes(4), bench.cpu.caches[0].line // 4
    main = bench.main(kernels.read(lanes, VECTORS, 1))
    offsets = sorted({line // 4, line // 2, line - 1, 1})
    for size, name, field in (
        (bench.cpu.l1_bytes // 2, "split_line_l1", "cpu.costs.unaligned_loads"),
        (int(bench.cpu.l2_bytes) // 2, "split_line_l2", "cpu.costs.straddling_bytes"),
    ):
        aligned, time = _read(bench, main, 1, size)
        split = [_read(bench, main, 1, size, offset)[0] for offset in offsets]
        factor = max(1.0, aligned * sum(1 / rate for rate in split) / len(split))
        level = name[-2:].upper()
        how = f"time of unaligned vectors relative to aligned ones in {level}, mean of {len(offsets)} offsets"
        bench.add(name, factor, "factor", time, how, field)
    narrow = bench.main(kernels.read(lanes, TILE_VECTORS, 1))
    near = _rows(bench, narrow, TILE_VECTORS * lanes)
    page = os.sysconf("SC_PAGE_SIZE") // 4
    apart = _rows(bench, narrow, page + TILE_VECTORS * lanes)
    extra = apart.less(near)
    how = f"{PAGE_ROWS} rows of {TILE_VECTORS} vectors on different pages, minus adjacent rows, per row"
    bench.add("page", max(0.01, extra.cycles), "cycles", extra, how, "cpu.costs.page_step")


def _read(bench: Bench, main: Any, cores: int, size: int, offset: int = 0) -> tuple[float, Time]:
    """Return the bytes per cycle of each core that repeatedly reads `size` bytes of its own, and the time of a call."""
    row = VECTORS * bench.cpu.lanes(4)
    rows = max(1, size // 4 // row)
    source = tensor(np.ones((cores, (rows + 1) * row), "float32"))
    out = tensor(np.zeros((cores, row), "float32"))
    repeats = max(1, math.ceil(SAMPLE_BYTES / (4 * rows * row)))
    time = bench.time(lambda: main((rows + 1) * row, source, out, rows, row, offset, repeats), 0.1)
    return 4.0 * rows * row * repeats / time.cycles, time


def _rows(bench: Bench, main: Any, stride: int) -> Time:
    """Return the time of one of PAGE_ROWS rows, `stride` elements apart."""
    lanes, repeats = bench.cpu.lanes(4), 200
    source = tensor(np.ones((1, PAGE_ROWS * stride), "float32"))
    out = tensor(np.zeros((1, TILE_VECTORS * lanes), "float32"))
    time = bench.time(lambda: main(PAGE_ROWS * stride, source, out, PAGE_ROWS, stride, 0, repeats), 0.1)
    return time.per(repeats * PAGE_ROWS)


def _chased(bench: Bench, main: Any, cores: int, size: int) -> Time:
    """Return the time of one of CHASE_STEPS dependent loads from `size` bytes, one cache line each."""
    line = bench.cpu.caches[0].line // 4
    count = max(2, size // 4 // line)
    order = np.random.default_rng(0).permutation(count)
    links = np.zeros((1, count * line), "int32")
    links[0, order * line] = np.roll(order, -1) * line
    given = tensor(np.broadcast_to(links, (cores, links.shape[1]))), tensor(np.zeros(cores, "int32"))
    time = bench.time(lambda: main(count * line, *given, CHASE_STEPS), 0.05)
    return time.per(CHASE_STEPS)
