"""A profile of one run: the start and end of each operator, its threads, and hardware counters."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..atomic_file import atomic_file
from ..figures import quantity, scaled
from ..runtime.profiler import Profiler, Recorded
from .report import OperatorRecord, nodes_text

MOST_TASKS = 4096  # capacity per run, in addition to 64 per step


@dataclass(frozen=True)
class ProfiledStep:
    """A call of an operator's kernel from `start` to `end`, seconds since the start of the run, with the counters of
    the calling thread.
    """

    operator: str
    start: float
    end: float
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ProfiledTask:
    """A task of a step's parallel loop from `start` to `end` on a thread, where 0 is the caller. Times and counters are
    as in steps.
    """

    step: int
    thread: int
    start: float
    end: float
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The run with the median duration among `runs` profiled ones: its `steps`, the `tasks` of their parallel loops,
    and the number of `threads`.

    `seconds`: duration from its first step to its last. `unprofiled`: median duration of runs without profiling, in
    seconds; the difference is the overhead of profiling. `counters`: names of the counters; `refused`: why hardware
    counters are not available. `nodes`: the model's nodes by operator.
    """

    steps: tuple[ProfiledStep, ...]
    tasks: tuple[ProfiledTask, ...]
    threads: int
    seconds: float
    unprofiled: float
    runs: int
    counters: tuple[str, ...] = ()
    refused: str = ""
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def busy(self) -> list[tuple[int, int, float, float]]:
        """(thread, step, start, end) of all work of the threads: tasks, and whole steps without tasks."""
        parallel = {task.step for task in self.tasks}
        alone = [(0, n, step.start, step.end) for n, step in enumerate(self.steps) if n not in parallel]
        return sorted([*alone, *((task.thread, task.step, task.start, task.end) for task in self.tasks)])

    def operators(self) -> dict[str, OperatorProfile]:
        """All calls of each operator, aggregated, slowest operator first."""
        found: dict[str, OperatorProfile] = {}
        for step in self.steps:
            found.setdefault(step.operator, OperatorProfile([0.0] * self.threads)).add(step)
        for thread, number, start, end in self.busy():
            found[self.steps[number].operator].busy[thread] += end - start
        parallel = {task.step for task in self.tasks}
        for number, step in enumerate(self.steps):
            if number not in parallel:
                found[step.operator].count(step.counters)
        for task in self.tasks:
            found[self.steps[task.step].operator].count(task.counters)
        return dict(sorted(found.items(), key=lambda item: -item[1].seconds))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Profile:
        """The profile for the result of to_dict() after a JSON round trip. Raises KeyError or TypeError for anything
        else."""
        return cls(
            **{
                **plain,
                "steps": tuple(ProfiledStep(**step) for step in plain["steps"]),
                "tasks": tuple(ProfiledTask(**task) for task in plain["tasks"]),
                "counters": tuple(plain["counters"]),
                "nodes": {name: tuple(nodes) for name, nodes in plain["nodes"].items()},
            }
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline in the Chrome trace format, as read by Perfetto: a row for each thread, and one for the
        operators.

        Raises OSError with the reason if it cannot be written.
        """
        with atomic_file(path) as file:
            file.write(json.dumps({"displayTimeUnit": "ns", "traceEvents": list(self.events())}).encode())

    def events(self) -> Iterator[dict[str, Any]]:
        """The events of the trace, in microseconds since the start of the run."""
        yield _named("process_name", "run", 0)
        yield _named("thread_name", "operators", 0)
        for thread in range(self.threads):
            yield _named("thread_name", thread_name(thread), 1 + thread)
            yield {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": 1 + thread, "args": {"sort_index": thread}}
        for number, step in enumerate(self.steps):
            args = {"step": number, "nodes": ", ".join(self.nodes.get(step.operator, ())), **step.counters}
            yield _event(step.operator, "operator", 0, step.start, step.end, args)
        counted = {(task.thread, task.step, task.start): task.counters for task in self.tasks}
        for thread, number, start, end in self.busy():
            step = self.steps[number]
            args = {"step": number, **counted.get((thread, number, start), step.counters)}
            yield _event(step.operator, "task", 1 + thread, start, end, args)

    def __str__(self) -> str:
        lines = [
            f"a run of {scaled(self.seconds, 's')} on {quantity(self.threads, 'thread')}, "
            f"{scaled(self.unprofiled, 's')} without profiling; the median of {self.runs}"
        ]
        if self.refused:
            lines.append(f"no hardware counters: {self.refused}")
        lines += ["", f"{'operator':<44} {'calls':>5} {'µs':>10} {'threads busy':>13}  nodes"]
        for name, each in self.operators().items():
            nodes = nodes_text(self.nodes.get(name, ()))
            line = f"{name[:44]:<44} {each.calls:>5} {each.seconds * 1e6:>10.1f} {each.efficiency:>13.0%}  {nodes}"
            lines.append(line.rstrip())
        return "\n".join(lines)


@dataclass
class OperatorProfile:
    """All calls of an operator in the run: `busy` seconds of each thread, counters summed over all threads."""

    busy: list[float]
    calls: int = 0
    seconds: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)

    def add(self, step: ProfiledStep) -> None:
        """Add a call."""
        self.calls += 1
        self.seconds += step.end - step.start

    def count(self, counters: Mapping[str, int]) -> None:
        """Add counter values."""
        for name, value in counters.items():
            self.counters[name] = self.counters.get(name, 0) + value

    @property
    def efficiency(self) -> float:
        """Fraction of the threads' time spent in tasks while the operator ran."""
        return sum(self.busy) / (len(self.busy) * self.seconds) if self.seconds else 0.0


def thread_name(thread: int) -> str:
    """The name of a thread in timelines."""
    return "thread 0 (caller)" if thread == 0 else f"thread {thread}"


def profile_of(
    runs: Sequence[Recorded],
    names: Sequence[str],
    profiler: Profiler,
    *,
    threads: int,
    unprofiled: float,
    operators: Sequence[OperatorRecord],
) -> Profile:
    """The profile of the run with the median duration. `names`: operators of the steps."""
    runs = sorted(runs, key=lambda run: int(run.steps[-1, 1, 0] - run.steps[0, 0, 0]))
    run = runs[len(runs) // 2]
    start = int(run.steps[0, 0, 0])
    counters = [counter.name for counter in profiler.counters]
    # A task belongs to the last step that started before it.
    owners = np.searchsorted(run.steps[:, 0, 0], run.tasks[:, 0, 0], side="right") - 1
    tasks = [
        ProfiledTask(int(step), int(thread), *_times(samples, start), _counted(samples, counters))
        for step, thread, samples in zip(owners, run.threads, run.tasks, strict=True)
        if step >= 0
    ]
    steps = [
        ProfiledStep(name, *_times(samples, start), _counted(samples, counters))
        for name, samples in zip(names, run.steps, strict=True)
    ]
    return Profile(
        steps=tuple(steps),
        tasks=tuple(tasks),
        threads=max(threads, 1 + max((task.thread for task in tasks), default=0)),
        seconds=steps[-1].end,
        unprofiled=unprofiled,
        runs=len(runs),
        counters=tuple(counters),
        refused=profiler.refused,
        nodes={operator.name: operator.nodes for operator in operators},
    )


def recorded_runs(profiler: Profiler, steps: int, run: Callable[[], np.ndarray], runs: int) -> list[Recorded]:
    """Recorded runs, each with the tasks recorded by launch.c; `run` returns the samples of its steps."""
    found = []
    for _ in range(runs):
        profiler.begin(MOST_TASKS + 64 * steps)
        samples = run()
        found.append(profiler.end(samples))
    return found


def _times(samples: np.ndarray, start: int) -> tuple[float, float]:
    return (int(samples[0, 0]) - start) * 1e-9, (int(samples[1, 0]) - start) * 1e-9


def _counted(samples: np.ndarray, names: Sequence[str]) -> dict[str, int]:
    """Counter differences between two samples; empty if a thread had no counters."""
    return {
        name: int(samples[1, place] - samples[0, place])
        for place, name in enumerate(names, start=1)
        if samples[0, place] >= 0 and samples[1, place] >= 0
    }


def _named(kind: str, name: str, thread: int) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": 0, "tid": thread, "args": {"name": name}}


def _event(name: str, kind: str, thread: int, start: float, end: float, args: Mapping[str, Any]) -> dict[str, Any]:
    times = {"ts": start * 1e6, "dur": (end - start) * 1e6}
    return {"ph": "X", "name": name, "cat": kind, "pid": 0, "tid": thread, **times, "args": args}
