"""Costs of different shapes on this CPU, to be held against each other: proportionality is a ratio of such costs.

Cuts of one shape are compared by paired runs, but shapes cannot be run in turns for as long as a reduction takes, and a
core that somebody else has for a second doubles a cost. Nothing makes a program faster than it is, so the cheapest
configuration of each shape is timed several times with pauses between, and the least counts.
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
from .simulator import SimulatorMeasurer

ROUNDS = 3
PAUSE = 0.25  # seconds between rounds


def measurer_for_shapes(hardware: Hardware) -> Measurer:
    """What measures for a database of shapes on `hardware`: this CPU steadily, or the simulator."""
    return SimulatorMeasurer() if hardware.cpu is None else SteadyMeasurer()


class SteadyMeasurer:
    """The Measurer of this CPU for a database of shapes."""

    def __init__(self, local: LocalMeasurer | None = None, *, rounds: int = ROUNDS, pause: float = PAUSE) -> None:
        self._local = local or LocalMeasurer()
        self._rounds, self._pause = rounds, pause

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        """One Measured for each of `jobs`, in their order. Cuts of one shape that stand behind each other are held
        against each other."""
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
        """The least of what a job took and what it takes in further rounds."""
        for _ in range(self._rounds - 1):
            time.sleep(self._pause)
            try:
                seconds = min(seconds, self._local.alone(job))
            except TrialFailed:  # it ran before, and its cost stays
                break
        self._local.bench.release(job)
        return seconds
