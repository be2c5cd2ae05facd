"""The clock under load, and rate and latency of the multiply-add and of dot instructions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..hardware.cpu import Cpu
from ..hardware.dot_instructions import DOT_INSTRUCTIONS, FMA_FLOAT32, DotInstruction
from ..operand_types import is_integer
from ..peak import accumulators, instruction_module
from .bench import ASSUMED_HZ, SAMPLE_SECONDS, Bench, Time, tensor

NEAR = 0.15  # relative to a whole number: a count of units that differs by more is not used


def measure_clock(bench: Bench) -> None:
    """Measure the clock directly after vector multiply-adds of full width, on one core and on all of them."""
    counts = dict.fromkeys((1, bench.cpu.cores))
    for cores in counts:
        time = _chains(bench, FMA_FLOAT32, accumulators(bench.cpu), cores)
        how = f"dependent integer operations of one cycle each, directly after multiply-adds on {cores} of the cores"
        field = "cpu.clock_mhz" if cores == bench.cpu.cores else ""
        clock = replace(time, spread=time.hertz_spread)
        bench.add(f"clock_{cores}", time.hertz / 1e6, "MHz", clock, how, field)


def measure_instructions(bench: Bench) -> None:
    """Measure the multiply-add, then dot-product instructions relative to it."""
    cpu = bench.cpu
    latency, rate = _chains(bench, FMA_FLOAT32, 1), _chains(bench, FMA_FLOAT32, accumulators(cpu))
    starts = 1 / rate.cycles
    how = f"{cpu.vector_bits}-bit float32 multiply-adds"
    waiting = f"{how}, each dependent on the previous one"
    bench.add("fma_latency", latency.cycles, "cycles", latency, waiting, "cpu.fma_latency")
    whole = starts >= 1 - NEAR and abs(starts - round(starts)) <= NEAR * starts
    if not whole:
        bench.skipped["fma_units"] = f"{starts:.2f} multiply-adds start per cycle, which is not near a whole number"
    field = "cpu.fma_units" if whole else ""
    bench.add("fma_rate", starts, "per cycle", rate, f"{how} in {accumulators(cpu)} independent chains", field)
    for row in measured_rows(bench.cpu):
        latency, own = _chains(bench, row, 1), _chains(bench, row, accumulators(cpu))
        how = f"{row.name} of {cpu.vector_bits} bits"
        waiting = f"{how}, each dependent on the previous one"
        bench.add(f"{row.name}_latency", latency.cycles, "cycles", latency, waiting, f"cpu.dot_latencies.{row.name}")
        part = rate.cycles / own.cycles
        bench.add(f"{row.name}_rate", part, "factor", own, f"{how} per multiply-add", f"cpu.dot_rates.{row.name}")


def measured_rows(cpu: Cpu) -> list[DotInstruction]:
    """Return the dot-product instructions that kernels use and this CPU has, one row per name. Excluded are those that
    do not add to the accumulator: they consist of two instructions, one of which LLVM would move out of the loop.
    """
    rows = {
        row.name: row
        for row in reversed(DOT_INSTRUCTIONS)
        if row.emitted and row.adds and row.group > 1 and row.form(cpu) is not None
    }
    return [rows[name] for name in sorted(rows)]


def _chains(bench: Bench, row: DotInstruction, chains: int, cores: int = 1) -> Time:
    """Return the time of one instruction on one core, with this many independent chains."""
    lanes = bench.cpu.vector_bits // (8 * row.acc_bytes)
    main = bench.main(instruction_module(row, bench.cpu.vector_bits, chains, cores))
    steps = max(1, int(SAMPLE_SECONDS * ASSUMED_HZ / 4 / chains))
    seed = np.array([[1], [1]] if is_integer(row.acc) else [[0.5], [1.0]])
    seed = np.repeat(seed, lanes, axis=1).astype(row.acc)
    given = tensor(seed), tensor(np.zeros((cores, chains * lanes), seed.dtype))
    return bench.time(lambda: main(*given, steps)).per(steps * chains)
