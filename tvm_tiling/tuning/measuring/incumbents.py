"""Who is the incumbent of each workload, and what every configuration costs beside it. The rule is in
paired_benchmark.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from ...hardware.description import Hardware
from ...workload import ConvWorkload, GemmWorkload
from .measurer import Job, Measured
from .paired_benchmark import Alone, PairedResult, verdict

Subject: TypeAlias = tuple[GemmWorkload | ConvWorkload, bool, str, Hardware]
Hold: TypeAlias = Callable[[Job, Job | None, bool], Alone | PairedResult]
"""hold(candidate, incumbent, thorough): run both, or the candidate alone where there is no incumbent."""


class TrialFailed(RuntimeError):
    """A job has no cost; the message is the reason."""


@dataclass
class _Standing:
    """The best configuration of a workload so far and its cost; none before the first one is measured."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    job: Job | None = None
    cost: float = 0.0


class Incumbents:
    """Gives every job its cost by paired benchmarks with the incumbent of its workload; the first one measured is that.

    May be asked from several threads, each with a machine of its own to run them on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._standings: dict[Subject, _Standing] = {}

    def of(self, job: Job) -> Job | None:
        """The incumbent of the job's workload."""
        return self._standing(job).job

    def measured(self, job: Job, hold: Hold) -> Measured:
        """Measure a job by `hold`, whose TrialFailed becomes the result's reason."""
        start = time.monotonic()
        try:
            cost, spread = self._cost(job, hold)
        except TrialFailed as error:
            return Measured(job=job, reason=str(error), seconds_spent=time.monotonic() - start)
        return Measured(job=job, cost=cost, spread=spread, seconds_spent=time.monotonic() - start)

    def _standing(self, job: Job) -> _Standing:
        with self._lock:
            return self._standings.setdefault((job.workload, job.prepacked, job.epilogue, job.hardware), _Standing())

    def _cost(self, job: Job, hold: Hold) -> tuple[float, float]:
        standing = self._standing(job)
        with standing.lock:
            # Everybody else waits for the first one, which they are to be compared with.
            if standing.job is None or standing.job == job:
                alone = hold(job, None, False)
                assert isinstance(alone, Alone)
                if standing.job is None:
                    standing.job, standing.cost = job, alone.seconds
                return standing.cost, alone.uncertainty
            incumbent, cost = standing.job, standing.cost
        first = _paired(hold(job, incumbent, False))
        second: PairedResult | None = None
        while True:
            found = verdict(cost, first, second)
            with standing.lock:
                assert standing.job is not None
                if found.replaces and standing.job == incumbent:
                    standing.job, standing.cost = job, found.cost
                lost = not first.won or (second is not None and not second.won)
                if lost or (second is not None and standing.job in (job, incumbent)):
                    return found.cost, found.spread
                # Another machine may have replaced it meanwhile: then that one is to be beaten.
                incumbent, cost = standing.job, standing.cost
            second = _paired(hold(job, incumbent, True))


def _paired(found: Alone | PairedResult) -> PairedResult:
    assert isinstance(found, PairedResult)
    return found
