"""Which thread of the column engine does which step when (page 04, Pipeline threads).

Every task has a thread. A step takes its cycles of product; its h columns wait for the drain of the step before. The
engine goes to the next thread in turn that has no stall; where all have one, to the one that can start first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import HardwareError
from .step import StepCycles


@dataclass(frozen=True)
class SequenceTask:
    """`steps` steps of `cycles` each, there from cycle `arrival` on."""

    cycles: StepCycles
    steps: int
    arrival: int = 0

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("arrival", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise HardwareError(f"thread plan: {name} = {value!r}, accepted: a whole number of at least {least}")


@dataclass(frozen=True, kw_only=True)
class ThreadPlan:
    """`turns` are the tasks' numbers, 0 first, step by step; `starts` the cycle of each turn, `stalls` the cycles that
    it waits for the step before it. `cycles` until the last result is there."""

    turns: tuple[int, ...]
    starts: tuple[int, ...]
    stalls: tuple[int, ...]
    cycles: int

    @property
    def stalled(self) -> int:
        """Turns that wait."""
        return sum(stall > 0 for stall in self.stalls)


def thread_plan(tasks: Sequence[SequenceTask], threads: int) -> ThreadPlan:
    """The turns of `tasks` on one engine of `threads` threads. Those that arrive first get one first."""
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise HardwareError(f"thread plan: threads = {threads!r}, accepted: a whole number of at least 1")
    if not tasks:
        raise HardwareError("thread plan: no tasks, accepted: at least one")
    waiting = sorted(range(len(tasks)), key=lambda number: (tasks[number].arrival, number))
    running: dict[int, int] = {}  # thread -> task
    free_from = [0] * threads  # results of the thread's task before are there
    left = [task.steps for task in tasks]
    ready = [task.arrival for task in tasks]  # when the h columns of the next step may start
    turns: list[int] = []
    starts: list[int] = []
    stalls: list[int] = []
    clock, last = 0, threads - 1
    while waiting or running:
        for thread in sorted(range(threads), key=lambda number: (free_from[number], number)):
            if thread not in running and waiting:
                running[thread] = waiting.pop(0)
                ready[running[thread]] = max(ready[running[thread]], free_from[thread])
        order = sorted(running, key=lambda number: (number - last - 1) % threads)
        begins = {number: _begin(tasks[t], left[t], ready[t], clock) for number in order for t in (running[number],)}
        last = min(order, key=lambda number: sum(begins[number]))
        task, (start, stall) = running[last], begins[last]
        turns.append(task)
        starts.append(start)
        stalls.append(stall)
        clock = start + stall + tasks[task].cycles.engaged
        ready[task] = clock + tasks[task].cycles.latency
        left[task] -= 1
        if not left[task]:
            del running[last]
            free_from[last] = ready[task]
    return ThreadPlan(turns=tuple(turns), starts=tuple(starts), stalls=tuple(stalls), cycles=max(ready))


def _begin(task: SequenceTask, left: int, ready: int, clock: int) -> tuple[int, int]:
    """(start of a task's next step, cycles that its h columns wait), the engine being free at `clock`."""
    if left == task.steps:  # the first step has no state to wait for
        return max(clock, ready), 0
    return clock, max(0, ready - clock - task.cycles.cx)
