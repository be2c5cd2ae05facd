"""Tasks that share the column engine as its threads: time steps of several sequences or models (design page 04)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import HardwareError, SimulationError
from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ..checks.hazards import check_order
from ..program.program import Program
from .task_report import TaskReport, TaskTime
from .thread_loop import CAUSES, Run, run_threads
from .time_step import TimeStep, time_step


@dataclass(frozen=True)
class Task:
    """A sequence of `steps` time steps that arrives at cycle `arrival`. `program` is the program of one step; a step
    reads results of the previous step where that step wrote them. Any object with a `time_step`, or else a `program`,
    is accepted in its place. A task without a `name` is called T1, T2, ... by its position. Raises SimulationError for
    other programs and for numbers out of range.
    """

    program: Any
    steps: int
    arrival: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        program = self.program
        for name in ("time_step", "program"):
            if hasattr(program, name):
                program = getattr(program, name)
                break
        if not isinstance(program, Program):
            raise SimulationError(
                f"task: program has type {type(self.program).__name__}; expected a Program, or an object with one"
            )
        object.__setattr__(self, "program", program)
        for field, least in (("steps", 1), ("arrival", 0)):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise SimulationError(f"task: {field} = {value!r}; expected a whole number of at least {least}")
        if not isinstance(self.name, str):
            raise SimulationError(f"task: name = {self.name!r}; expected a string")


def simulate_tasks(
    tasks: Sequence[Task | Sequence[Any]],
    hardware: Hardware | str | os.PathLike[str] | None = None,
    *,
    check: bool = False,
) -> TaskReport:
    """Return the timing of tasks that share the column engine of `hardware`, by default the machine that their programs
    were made for. A task is a :class:`Task` or (program, steps, arrival in cycles). At most `column.threads` run on
    each engine; the others wait for a free thread.

    SimulationError for an invalid task, for a deadlock and, with `check`, for a hazard. HardwareError if the machine
    has no column engine or lacks something else that a program needs, or if it is not given and the programs were made
    for different machines.
    """
    made = [_task(task, number) for number, task in enumerate(tasks, start=1)]
    if not made:
        raise SimulationError("simulate: no tasks; expected at least one (program, steps, arrival)")
    machine = Machine(_hardware(made, hardware))
    column = machine.hardware.column
    if column is None:
        raise HardwareError(
            f"{machine.hardware.name} has no column engine for tasks to share; expected a machine with a [column] table"
        )
    steps: dict[int, TimeStep] = {}
    for task in made:
        if id(task.program) not in steps:
            if check:
                check_order(task.program)
            steps[id(task.program)] = time_step(task.program, machine, column)
    runs = run_threads(
        [(steps[id(task.program)], task.steps, task.arrival) for task in made],
        column.threads,
        column.engines,
        [task.program.queues for task in made],
    )
    macs = sum(run.step.macs * run.steps for run in runs)
    cycles = max(run.end for run in runs)
    return TaskReport(
        hardware=machine.hardware.name,
        cycles=cycles,
        clock_mhz=machine.hardware.clock_mhz,
        macs=macs,
        utilisation=macs / (column.multipliers * column.engines * cycles) if cycles else 0.0,
        lower_bound=_lower_bound(runs, column.engines),
        upper_bound=_upper_bound(made, runs),
        engines=column.engines,
        tasks=tuple(_time(task, run, column.engines) for task, run in zip(made, runs, strict=True)),
        runs=tuple(runs),
    )


def _task(task: Any, number: int) -> Task:
    if not isinstance(task, Task):
        if not isinstance(task, (tuple, list)) or len(task) not in (2, 3):
            raise SimulationError(f"task {number} has type {type(task).__name__}; expected (program, steps, arrival)")
        task = Task(*task)
    return task if task.name else Task(task.program, task.steps, task.arrival, f"T{number}")


def _hardware(tasks: Sequence[Task], hardware: Hardware | str | os.PathLike[str] | None) -> Hardware:
    if hardware is None:
        own, *others = dict.fromkeys(task.program.hardware for task in tasks)
        if others:
            raise HardwareError(
                f"simulate: the programs of the tasks were made for different machines, {own.name!r} and "
                f"{others[0].name!r}; expected hardware= with the machine that they share"
            )
        return own  # type: ignore[no-any-return]
    if not isinstance(hardware, (Hardware, str, os.PathLike)):
        raise HardwareError(f"simulate: hardware = {hardware!r}; expected a Hardware, a preset, a TOML file or None")
    return hardware if isinstance(hardware, Hardware) else Hardware.load(hardware)


def _time(task: Task, run: Run, engines: int) -> TaskTime:
    products = run.step.members[run.step.column]
    return TaskTime(
        name=task.name,
        steps=task.steps,
        arrival=task.arrival,
        engine=run.slot % engines,
        thread=run.slot // engines,
        start=run.begin,
        end=run.end,
        busy=task.steps * sum(run.step.busy[number] for number in products),
        stalls=dict(zip(CAUSES, run.stalls, strict=True)),
    )


def _lower_bound(runs: Sequence[Run], engines: int) -> int:
    """Return the cycles of the busiest engine or port."""
    spent: dict[object, int] = {}
    servers: dict[object, int] = {None: engines}  # None: the column engines together
    for run in runs:
        for number, busy in enumerate(run.step.busy):
            queue = run.step.queue[number]
            place = None if queue == run.step.column else run.step.program.queues[queue]
            spent[place] = spent.get(place, 0) + busy * run.steps
            for port in run.step.ports[number]:
                name = ("port", run.step.costs.ports[port])
                servers[name] = run.step.costs.servers[port]
                spent[name] = spent.get(name, 0) + busy * run.steps
    return max(-(-cycles // servers.get(place, 1)) for place, cycles in spent.items())


def _upper_bound(tasks: Sequence[Task], runs: Sequence[Run]) -> int:
    """Return the cycles of everything in series after the last arrival."""
    total = max(task.arrival for task in tasks)
    for run in runs:
        costs = run.step.costs
        waiting = sum(bool(edges) for edges in run.step.edges)
        once = sum(run.step.busy) + sum(run.step.latency) + len(run.step.queue) * costs.issue + waiting * costs.token
        total += run.steps * once
    return total
