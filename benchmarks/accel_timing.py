"""Speed of the timing simulator on one core: part of python -m benchmarks.accel

The targets are 5 million instructions per second, and a sweep over 100 machine descriptions of a recorded program of
ResNet-50's size in less than a minute. The program is one layer, repeated until it has as many instructions as a whole
network. Each description differs in a bandwidth and a queue depth, so that no result can be reused from the previous
one.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from tvm_tiling.accel.program.program import Program
from tvm_tiling.accel.program.work import work
from tvm_tiling.accel.timing.cost import costs
from tvm_tiling.accel.timing.simulate import Simulation
from tvm_tiling.accel.timing.timing import ordering, time_queues
from tvm_tiling.hardware.fields import with_field
from tvm_tiling.hardware.machine import Machine

from .accel_cases import product
from .least_time import least_seconds

AIM = 5.0  # million instructions per second
NETWORK = 100_000  # instructions of a ResNet-50
DESCRIPTIONS = 100
MOST_SECONDS = 60.0


def network(instructions: int = NETWORK) -> Program:
    """Return a program of about this many instructions: one layer, repeated, with continuing token counts."""
    layer = product(256, 256, 256, 32, 32, 64).program
    times = max(1, instructions // len(layer))
    return replace(layer, instructions=np.tile(layer.instructions, times))


def measure_timing(seconds: float, instructions: int = NETWORK, descriptions: int = DESCRIPTIONS) -> dict[str, Any]:
    """Return millions of instructions per second of the compiled event loop, of the pure Python one and of a whole
    report, and the seconds that preparing the program and the sweep take. Raises AssertionError if the two event loops
    disagree. `compiled` is None if numba is not installed."""
    program = network(instructions)
    order, cost = ordering(program), costs(work(program), Machine(program.hardware))
    start = time.perf_counter()
    simulation = Simulation(program)
    prepared = time.perf_counter() - start

    def speed(compiled: bool) -> float:
        return len(program) / least_seconds(lambda: time_queues(program, order, cost, compiled), seconds) / 1e6

    try:
        fast = speed(True)
    except ImportError:
        fast = None
    if fast is not None:
        plain, quick = (time_queues(program, order, cost, compiled) for compiled in (False, True))
        np.testing.assert_array_equal(plain.start, quick.start)
        np.testing.assert_array_equal(plain.stalls, quick.stalls)
    start = time.perf_counter()
    cycles = []
    for place in range(descriptions):
        machine = with_field(program.hardware, "near_tile.bw_a", 1.0 + place / 8)
        cycles.append(simulation.on(with_field(machine, "queues.depth", 4 + place)).cycles)
    swept = time.perf_counter() - start
    assert len(set(cycles)) > 1
    return {
        "instructions": len(program),
        "compiled": fast,
        "plain": speed(False),
        "report": len(program) / least_seconds(simulation.on, seconds) / 1e6,
        "prepare_seconds": prepared,
        "descriptions": descriptions,
        "sweep_seconds": swept,
    }


def timing_table(figures: dict[str, Any]) -> str:
    """Format the figures as text."""
    compiled = "numba is not installed" if figures["compiled"] is None else f"{figures['compiled']:.1f}"
    lines = (
        f"timing simulation of {figures['instructions']} instructions, million per second (target: {AIM:g})",
        f"  event loop, compiled        {compiled}",
        f"  event loop, plain Python    {figures['plain']:.2f}",
        f"  with costs and the report   {figures['report']:.1f}",
        f"  one-time preparation        {figures['prepare_seconds']:.2f} s",
        f"  sweep, {figures['descriptions']} descriptions {figures['sweep_seconds']:.1f} s (target: {MOST_SECONDS:g})",
    )
    return "\n".join(lines)
