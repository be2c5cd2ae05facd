"""Report of tasks on the threads of the column engine: which task ran when, and why threads stalled."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...figures import quantity, scaled
from ..report.report import aligned
from ..report.trace import event_name, instruction_names, write_events
from .thread_loop import CAUSES, Run

COLUMN, OTHERS = 0, 1  # processes of the timeline


@dataclass(frozen=True)
class TaskTime:
    """A task, in cycles: it arrives at `arrival`, runs on `thread` of `engine` from `start` and ends at `end`. Until
    its last product, its thread is `busy` with products or stalled, by cause (thread_loop.CAUSES); `drain` is the time
    after that."""

    name: str
    steps: int
    arrival: int
    engine: int
    thread: int
    start: int
    end: int
    busy: int
    stalls: dict[str, int]

    @property
    def cycles(self) -> int:
        """Cycles from the start of the thread to the last result."""
        return self.end - self.start

    @property
    def waited(self) -> int:
        """Cycles spent waiting for a thread."""
        return self.start - self.arrival

    @property
    def stalled(self) -> int:
        """Cycles of all stalls, until the last product."""
        return sum(self.stalls.values())

    @property
    def drain(self) -> int:
        """Cycles from the last product to the last result."""
        return self.cycles - self.busy - self.stalled

    def to_dict(self) -> dict[str, Any]:
        """Return every figure as plain values for JSON."""
        return {**vars(self), "cycles": self.cycles, "waited": self.waited, "drain": self.drain}


@dataclass(frozen=True)
class TaskReport:
    """Tasks that shared the column engines of a machine.

    `cycles` counts until the last result of all tasks on the machine `hardware`, which take `macs`
    multiply-accumulates; `tasks` has the times of each, in the order given; `utilisation` is the cycles that all
    multipliers of the engines need at peak over the cycles taken. `lower_bound` are the cycles of the busiest engine or
    port, `upper_bound` those of everything in series. `clock_mhz` is None if unknown.
    """

    hardware: str
    cycles: int
    clock_mhz: float | None
    macs: int
    utilisation: float
    lower_bound: int
    upper_bound: int
    engines: int
    tasks: tuple[TaskTime, ...]
    runs: tuple[Run, ...] = field(repr=False, compare=False)

    @property
    def seconds(self) -> float | None:
        """Time at the machine's clock, None if the clock is unknown."""
        return self.cycles / (self.clock_mhz * 1e6) if self.clock_mhz else None

    @property
    def busy(self) -> int:
        """Cycles in which column engines work, summed over all engines."""
        return sum(task.busy for task in self.tasks)

    @property
    def idle(self) -> int:
        """Cycles in which column engines are idle before the last result, summed over all engines."""
        return self.engines * self.cycles - self.busy

    @property
    def stalls(self) -> dict[str, int]:
        """Stall cycles of the threads by cause, summed over all tasks."""
        return {cause: sum(task.stalls[cause] for task in self.tasks) for cause in CAUSES}

    @property
    def turns(self) -> tuple[tuple[str, int], ...]:
        """(task, step) in the order in which the products of time steps ended; steps count from 1."""
        ends = []
        for task, run in zip(self.tasks, self.runs, strict=True):
            count, last = len(run.step.queue), run.step.last
            ends += [(run.start[step * count + last], task.name, step + 1) for step in range(run.steps)]
        return tuple((name, step) for _, name, step in sorted(ends, key=lambda end: end[0]))

    def to_dict(self) -> dict[str, Any]:
        """Return every figure as plain values for JSON."""
        names = ("hardware", "cycles", "seconds", "macs", "utilisation", "lower_bound", "upper_bound", "busy", "idle")
        figures = {name: getattr(self, name) for name in names}
        return {**figures, "stalls": self.stalls, "tasks": [task.to_dict() for task in self.tasks]}

    def summary(self) -> str:
        """Return the report as text: a headline, then a row for each task."""
        time = "" if self.seconds is None else f", {scaled(self.seconds, 's')}"
        head = (
            f"{self.hardware}: {self.cycles} cycles{time}, utilisation {self.utilisation:.1%}, "
            f"{quantity(self.engines, 'column engine')}, {self.idle} cycles idle"
        )
        waits = tuple(f"waits: {cause}" for cause in CAUSES)
        headings = ("task", "steps", "arrival", "engine", "thread", "start", "end", "cycles", "busy", *waits, "drain")
        rows = [
            (
                t.name,
                t.steps,
                t.arrival,
                t.engine,
                t.thread,
                t.start,
                t.end,
                t.cycles,
                t.busy,
                *t.stalls.values(),
                t.drain,
            )
            for t in self.tasks
        ]
        return "\n".join([head, "", *aligned(headings, rows)])

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline in the Chrome trace format: a row for each thread with its products, and one for each
        other engine. One cycle is shown as one microsecond."""
        write_events(self._events(), path)

    def _events(self) -> Iterator[dict[str, Any]]:
        yield event_name("process_name", f"{self.hardware}: threads", COLUMN)
        for slot in sorted({run.slot for run in self.runs}):
            thread = f"thread {slot // self.engines}"
            yield event_name(
                "thread_name", thread if self.engines == 1 else f"engine {slot % self.engines}, {thread}", COLUMN, slot
            )
        yield event_name("process_name", f"{self.hardware}: other engines", OTHERS)
        others: dict[str, int] = {}
        for run in self.runs:
            for queue, name in enumerate(run.step.program.queues):
                if queue != run.step.column and run.step.members[queue] and name not in others:
                    others[name] = len(others)
                    yield event_name("thread_name", name, OTHERS, others[name])
        for task, run in zip(self.tasks, self.runs, strict=True):
            names = instruction_names(run.step.program.instructions)
            for number, start in enumerate(run.start):
                step, place = divmod(number, len(names))
                queue = run.step.queue[place]
                column = queue == run.step.column
                yield {
                    "ph": "X",
                    "name": f"{task.name} {names[place]}",
                    "cat": "instruction",
                    "pid": COLUMN if column else OTHERS,
                    "tid": run.slot if column else others[run.step.program.queues[queue]],
                    "ts": start,
                    "dur": run.step.busy[place],
                    "args": {"task": task.name, "step": step + 1, "instruction": place, "result": run.done[number]},
                }
