"""Costs between cores: cache-line transfers, start and join of threads; and the overhead of register tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..decide.gemm.microkernel import tallest
from . import kernels
from .bench import Bench, Time, tensor

CALLS = 20
ROUNDS = 500
DEPTHS = (16, 128)
STATE_BYTES = 512  # bytes of a recurrent layer's state that each core writes in a step
TILE_STEPS = 50_000


def measure_transfer(bench: Bench) -> None:
    """Measure bytes per cycle written to cache lines that another core wrote last."""
    size = int(min(bench.cpu.l1_bytes, bench.cpu.l2_bytes / 8)) // 2
    extra = _exchanged(bench, size, 1, CALLS).less(_exchanged(bench, size, 0, CALLS))
    how = f"{size} bytes that every core writes and another one reads, minus the time without cross-core transfers"
    bench.add("transfer", size / max(extra.cycles, 1e-9), "bytes/cycle", extra, how, "cpu.handed_over_bytes_per_cycle")


def measure_threads(bench: Bench) -> None:
    """Measure the extra time of a call on all cores over a call on a single thread, and a synchronised step of all
    cores.
    """
    lanes, cores = bench.cpu.lanes(4), bench.cpu.cores
    single, every = (bench.main(kernels.launches(lanes, count)) for count in (1, cores))
    alone, together = (tensor(np.zeros((count, lanes), "float32")) for count in (1, cores))

    def call(main: Any, out: Any, calls: int, rounds: int) -> Time:
        def run() -> None:
            for _ in range(calls):
                main(out, rounds)

        return bench.time(run).per(calls * rounds)

    start = call(every, together, CALLS, 1).less(call(single, alone, CALLS, 1))
    how = "a call of an empty kernel on all cores, directly after another one, minus a call on a single thread"
    bench.add("start", start.seconds * 1e9, "ns", start, how, "cpu.costs.parallel_start")
    loop = call(every, together, 1, ROUNDS).less(call(single, alone, 1, ROUNDS))
    bench.add("loop", loop.seconds * 1e9, "ns", loop, "one of many empty parallel loops in one kernel")
    step = _exchanged(bench, STATE_BYTES, 1, ROUNDS).less(_exchanged(bench, STATE_BYTES, 0, ROUNDS))
    how = f"an empty parallel loop, and the transfer of {STATE_BYTES} bytes that each core has written"
    bench.add("meeting", (loop.seconds + step.seconds) * 1e9, "ns", step, how, "cpu.costs.meeting")


def measure_edges(bench: Bench) -> None:
    """Measure the cycles around the loop of a register tile: the part of its time that does not grow with its depth."""
    vectors = 4 if bench.cpu.vector_registers >= 30 else 2
    rows = tallest(bench.cpu.vector_registers, vectors)
    lanes = bench.cpu.lanes(4)
    main = bench.main(kernels.tiles(lanes, rows, vectors))
    short, long = (_tile(bench, main, rows, vectors * lanes, depth) for depth in DEPTHS)
    steps = long.less(short).per((DEPTHS[1] - DEPTHS[0]) / DEPTHS[0])
    around = short.less(steps)
    how = f"tiles of {rows} x {vectors} vectors in L1, of {DEPTHS[0]} and {DEPTHS[1]} steps, extrapolated to 0 steps"
    bench.add("tile_start", around.cycles, "cycles", around, how)


def _exchanged(bench: Bench, size: int, shift: int, rounds: int) -> Time:
    """Return the time of one round in which every core writes and reads `size` bytes."""
    lanes, cores = bench.cpu.lanes(4), bench.cpu.cores
    main = bench.main(kernels.exchange(lanes, cores))
    vectors = max(1, size // 4 // lanes)
    lines = tensor(np.zeros((cores, vectors * lanes), "float32"))
    out = tensor(np.zeros((cores, lanes), "float32"))
    time = bench.time(lambda: main(vectors * lanes, lines, out, vectors, shift, rounds))
    return time.per(rounds)


def _tile(bench: Bench, main: Any, rows: int, columns: int, depth: int) -> Time:
    a, b = np.ones((rows, depth), "float32"), np.ones((depth, columns), "float32")
    given = [tensor(each) for each in (a, b, np.zeros((rows, columns), "float32"))]
    repeats = TILE_STEPS // depth
    time = bench.time(lambda: main(depth, *given, repeats))
    return time.per(repeats)
