"""Cost of the configurations of one workload, run in turn (A B C ... A B C ...) by one process on all cores.

A paired benchmark tells which of two sides is faster; here many configurations are to be ranked. A disturbance of the
machine then affects all of them equally. The minimum over the rounds counts: if other processes compete with all of
them, the median includes the competition. Where the clock varies by more than the configurations differ, the minimum
ranks them by luck; `relative` compares the times of each round with the median of that round instead.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_tiling.measure import Condition, Side, inner_repetitions, quickest_call
from tvm_tiling.runtime.launcher import use_all_cores
from tvm_tiling.runtime.threads import own_core
from tvm_tiling.temporary import TemporaryFolder
from tvm_tiling.tuning.measuring.builders import Builders
from tvm_tiling.tuning.measuring.child import Child, ChildFailed
from tvm_tiling.tuning.measuring.measurer import Build, Job, Subject
from tvm_tiling.tuning.measuring.template import BUILDING, Template

TIMING = f"{__name__}:answer"
RUN_SECONDS = 120.0
LEAST_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Turns(Subject):
    """Builds to be run in turn: `rounds` times, or as often as `seconds` allow, but at least LEAST_ROUNDS times. This
    is repeated `passes` times, each time with all of them reloaded, because the placement of arrays makes a kernel
    faster or slower."""

    builds: tuple[Build, ...]
    passes: int
    rounds: int
    seconds: float
    relative: bool = False


class SideBySide:
    """Builds the configurations of a workload and runs them in turn in separate processes."""

    def __init__(self) -> None:
        self._template = Template.of(BUILDING, TIMING)
        self._template.start()
        self._builders = Builders(self._template)
        self._timer = Child(TIMING, "they ran", self._template)

    def measure(
        self, jobs: Sequence[Job], passes: int, rounds: int, seconds: float, *, relative: bool = False
    ) -> dict[Job, list[float]]:
        """Return the seconds of each job of one workload in each pass; jobs that cannot be built or give wrong results
        are left out. `relative` is as in in_turn(). Raises ChildFailed if none can be built, and ChildLost if a kernel
        ends the process."""
        with contextlib.closing(TemporaryFolder()) as folder:
            begun = [self._builders.submit(job, folder.piece()) for job in jobs]
            found = [(job, build.get()) for job, build in zip(jobs, begun, strict=True)]
            built = [(job, build) for job, build in found if isinstance(build, Build)]
            if not built:
                raise ChildFailed(f"no configuration can be built: {found[0][1]}")
            cpu = jobs[0].hardware.cpu
            turns = Turns(
                workload=jobs[0].workload,
                cores=cpu.cores if cpu else 1,
                builds=tuple(build for _, build in built),
                passes=passes,
                rounds=rounds,
                seconds=seconds,
                relative=relative,
            )
            times = self._timer.ask(turns, RUN_SECONDS)
        return {job: row for (job, _), row in zip(built, times, strict=True) if row}

    def close(self) -> None:
        """End all processes."""
        self._timer.close()
        self._builders.close()
        self._template.close()


# ---- in the timing process -------------------------------------------------------------------------------------------


def answer(turns: Turns) -> list[list[float]]:
    """Return the seconds of each build in each pass; an empty list if its result is wrong."""
    from tvm_tiling.tuning.measuring.timing import Bench, Loaded, WrongResult

    use_all_cores(turns.cores)
    bench = Bench(turns.workload, turns.epilogue)
    right: list[int] = []
    with own_core():
        for place, build in enumerate(turns.builds):
            with contextlib.suppress(WrongResult):
                bench.check(Loaded(build, bench))
                right.append(place)
        found: list[list[float]] = [[] for _ in turns.builds]
        for number in range(turns.passes):
            order = random.Random(number).sample(right, len(right))
            sides = [Side(Loaded(turns.builds[place], bench).run) for place in order]
            for place, seconds in zip(
                order, in_turn(sides, turns.rounds, turns.seconds, relative=turns.relative), strict=True
            ):
                found[place].append(seconds)
    return found


def in_turn(
    sides: Sequence[Side], rounds: int, seconds: float, condition: Condition | None = None, *, relative: bool = False
) -> list[float]:
    """Return the seconds per call of each of `sides`, run in turn: the minimum over the rounds, or with `relative` the
    median over the rounds of its time relative to the median of the round, times the median of all."""
    condition = condition or Condition(switches=lambda: 0)  # a disturbed sample is not the minimum
    inner = [inner_repetitions(quickest_call(side, condition.clock)) for side in sides]
    found: list[list[float]] = []
    until = condition.clock() + seconds
    while len(found) < rounds and (len(found) < LEAST_ROUNDS or condition.clock() < until):
        found.append([])
        for side, calls in zip(sides, inner, strict=True):
            side.run()  # warms up: the caches hold data of the previous side
            found[-1].append(condition.sample(side, calls)[0])
    times = np.array(found)
    if not relative:
        return list(times.min(axis=0).tolist())
    return list((np.median(times / np.median(times, axis=1, keepdims=True), axis=0) * np.median(times)).tolist())
