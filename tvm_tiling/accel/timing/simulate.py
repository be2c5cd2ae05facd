"""Timing of programs: `simulate` for one machine, :class:`Simulation` for many."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from ...errors import HardwareError, SimulationError
from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ...hardware.memory import OFF_CHIP
from ..checks.hazards import check_order
from ..program.program import Program
from ..program.work import CLASSES, Work, work
from ..recurrent.task_report import TaskReport
from ..recurrent.tasks import Task, simulate_tasks
from ..report.report import EngineTime, MemoryUse, SimReport
from .cost import capacity, costs
from .energy import energy_by_level
from .event_loop import CAUSES
from .timing import Costs, Timing, bounds, ordering, port_busy, queue_busy, time_queues


@overload
def simulate(
    program: Program, hardware: Hardware | str | os.PathLike[str] | None = None, *, check: bool = True
) -> SimReport: ...


@overload
def simulate(
    program: Sequence[Task | Sequence[Any]],
    hardware: Hardware | str | os.PathLike[str] | None = None,
    *,
    check: bool = True,
) -> TaskReport: ...


def simulate(
    program: Program | Sequence[Task | Sequence[Any]],
    hardware: Hardware | str | os.PathLike[str] | None = None,
    *,
    check: bool = True,
) -> SimReport | TaskReport:
    """Return the timing of `program` on `hardware` as a SimReport: a machine, the name of a preset or a TOML file; by
    default, the machine that the program was made for. Nothing is executed; :func:`tvm_tiling.accel.functional.run.run`
    computes results.

    A list of tasks, each (program of one time step, steps, arrival in cycles), shares the column engine, and gives a
    TaskReport: :func:`tvm_tiling.accel.recurrent.tasks.simulate_tasks`.

    SimulationError for a deadlock, for a hazard and for an operand outside its memory, since the timing of such a
    program is meaningless; `check=False` times it anyway and skips the search for hazards. HardwareError if the machine
    lacks an engine, a memory or the capacity.
    """
    if isinstance(program, (list, tuple)):
        return simulate_tasks(program, hardware, check=check)
    return Simulation(program, check=check).on(hardware)  # type: ignore[arg-type]


class Simulation:
    """A program prepared for timing on many machines: everything that does not depend on the machine is computed once.

    SimulationError for a deadlock and, with `check`, for a hazard; programs from the builder have neither.
    """

    def __init__(self, program: Program, *, check: bool = False) -> None:
        if not isinstance(program, Program):
            raise SimulationError(
                f"simulate: program has type {type(program).__name__}; expected a Program, such as from Program.load"
            )
        if check:
            check_order(program)
        self.program = program
        self._order = ordering(program)
        self._work = work(program)

    def on(
        self, hardware: Hardware | str | os.PathLike[str] | None = None, *, compiled: bool | None = None
    ) -> SimReport:
        """Return the report for one machine, given as in :func:`simulate`. `compiled` False selects plain Python, True
        requires machine code (extra `sim`); the results are equal."""
        if hardware is None:
            hardware = self.program.hardware
        if not isinstance(hardware, (Hardware, str, os.PathLike)):
            raise HardwareError(
                f"simulate: hardware = {hardware!r}; expected a Hardware, a preset, a TOML file or None"
            )
        machine = Machine(hardware if isinstance(hardware, Hardware) else Hardware.load(hardware))
        cost = costs(self._work, machine)
        timing = time_queues(self.program, self._order, cost, compiled)
        lower, upper, bound = bounds(self.program, self._order, cost)
        return SimReport(
            hardware=machine.hardware.name,
            instructions=len(self.program),
            cycles=timing.cycles,
            clock_mhz=machine.hardware.clock_mhz,
            macs=self._work.macs,
            utilisation=_peak_cycles(self._work, machine) / timing.cycles if timing.cycles else 0.0,
            lower_bound=lower,
            upper_bound=upper,
            bound=bound,
            transfer_cycles=self._transfer_cycles(cost),
            engines=self._engines(cost, timing),
            bytes=_moved(self._work),
            memories=_memories(self._work, machine, cost),
            energy=energy_by_level(self._work, machine),
            free=_free(self._work, cost),
            program=self.program,
            timing=timing,
        )

    def _transfer_cycles(self, cost: Costs) -> int:
        busy = np.zeros(len(self.program.queues))
        for batch in self._work.of("bytes"):
            busy += np.bincount(self._order.queue[batch.number], cost.busy[batch.number], len(busy))
        ports = (port_busy(cost, port) // servers for port, servers in enumerate(cost.servers))
        return max(0, *busy.astype(np.int64).tolist(), *ports)

    def _engines(self, cost: Costs, timing: Timing) -> dict[str, EngineTime]:
        busy = queue_busy(self._order, cost).tolist()
        sizes = np.diff(self._order.member_first).tolist()
        stalls = timing.stalls.tolist()
        return {
            name: EngineTime(
                instructions=sizes[queue],
                busy=busy[queue],
                idle=timing.cycles - busy[queue] - sum(stalls[queue]),
                stalls=dict(zip(CAUSES, stalls[queue], strict=True)),
            )
            for queue, name in enumerate(self.program.queues)
        }


def _peak_cycles(work: Work, machine: Machine) -> float:
    """Return the cycles that the multiply-accumulates need if every multiplier of the machine works in every cycle."""
    return sum(
        float(batch.macs[same].sum()) / machine.macs(element)
        for batch in work.of("sums")
        for element, same in batch.each(batch.element)
    )


def _free(work: Work, cost: Costs) -> dict[str, str]:
    """Return the work that took no cycles, by kind: transfers by their ends, vector functions."""
    amounts: dict[tuple[str, str], int] = {}
    for batch in (*work.of("bytes"), *work.of("elements")):
        moves = batch.row.work == "bytes"
        amount = batch.bytes if moves else batch.elements
        nothing = int(amount[cost.busy[batch.number] == 0].sum())
        if nothing:
            ends = f"transfers from {batch.source} to {batch.target}" if batch.source else f"fills of {batch.target}"
            what = (ends, "bytes") if moves else ("vector functions", "elements")
            amounts[what] = amounts.get(what, 0) + nothing
    return {what: f"{amount} {unit}" for (what, unit), amount in amounts.items()}


def _moved(work: Work) -> dict[str, int]:
    """Return the bytes moved between the chip and off-chip memories, by operand."""
    moved = dict.fromkeys(CLASSES, 0)
    for batch in work.of("bytes"):
        if batch.source in OFF_CHIP or batch.target in OFF_CHIP:
            moved[batch.operand] += int((batch.read if batch.source in OFF_CHIP else batch.bytes).sum())
    return moved


def _memories(work: Work, machine: Machine, cost: Costs) -> dict[str, MemoryUse]:
    read = dict.fromkeys(work.peak, 0)
    written = dict.fromkeys(work.peak, 0)
    for batch in work.of("bytes"):
        written[batch.target] += int(batch.bytes.sum())
        if batch.source:
            read[batch.source] += int(batch.read.sum())
    return {
        name: MemoryUse(
            read=read[name],
            written=written[name],
            peak=peak,
            capacity=capacity(machine, name),
            busy=port_busy(cost, cost.ports.index(name)) if name in cost.ports else None,
            doubled=machine.is_doubled(name),
        )
        for name, peak in work.peak.items()
    }
