"""Comparable costs of different shapes on this CPU, as needed to test proportionality.

Configurations of one shape are compared by paired runs, but different shapes cannot alternate for as long as a
reduction takes, and a core that is preempted for a second doubles the measured time. Interference never makes a program
faster, so the cheapest configuration of each shape is timed several times with pauses in between, and the minimum
counts.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterator, Sequence

from ...hardware.description import Hardware
from .incumbents import TrialFailed
from .local import LocalMeasurer
from .measurer import Job, Measured, Measurer
from .runner import refuse_other_cpu
from .simulator import SimulatorMeasurer

ROUNDS = 3
PAUSE = 0.25  # seconds between rounds


def measurer_for_shapes(hardware: Hardware) -> Measurer:
    """Return the measurer for a database of shapes on `hardware`: this CPU with repeated timing, or the simulator.
    HardwareError for another CPU."""
    refuse_other_cpu(hardware, "this CPU or an accelerator")
    return SimulatorMeasurer() if hardware.cpu is None else SteadyMeasurer()


class SteadyMeasurer:
    """The Measurer of this CPU for a database of shapes."""

    def __init__(self, local: LocalMeasurer | None = None, *, rounds: int = ROUNDS, pause: float = PAUSE) -> None:
        self._local = local or LocalMeasurer()
        self._rounds, self._pause = rounds, pause

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        """Yield one Measured for each of `jobs`, in order. Consecutive configurations of one shape are compared with
        each other."""
        for _, configs in itertools.groupby(
            jobs, key=lambda job: (job.workload, job.prepacked, job.epilogue, job.hardware)
        ):
            results = list(self._local.measure(list(configs)))
            costs = {result.job: result.cost for result in results if result.cost is not None}
            scale = 1.0
            if costs:
                best = min(costs, key=lambda job: costs[job])
                scale = self._least(best, costs[best]) / costs[best]
            for result in results:
                yield result if result.cost is None else dataclasses.replace(result, cost=result.cost * scale)

    def close(self) -> None:
        """End all processes and remove all builds."""
        self._local.close()

    def _least(self, job: Job, seconds: float) -> float:
        """Return the minimum of what a job took and of further rounds."""
        for _ in range(self._rounds - 1):
            time.sleep(self._pause)
            try:
                seconds = min(seconds, self._local.alone(job))
            except TrialFailed:  # it ran before, so its cost remains valid
                break
        self._local.bench.release(job)
        return seconds
