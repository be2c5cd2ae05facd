"""The incumbent of each workload, and the cost of every configuration relative to it. paired_benchmark.py defines the
rule.

A cost below the lower bound of its algorithm on the machine (least_cost.py) is rejected: the configuration is measured
again by itself, and fails if that cost is impossible too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from ...figures import scaled
from ...hardware.description import Hardware
from ...measure import DOUBTFUL
from ...workload import ConvWorkload, GemmWorkload
from ..least_cost import least_cost, work_of
from .measurer import Job, Measured, SideBySide
from .paired_benchmark import Alone, PairedResult, Verdict, verdict

Subject: TypeAlias = tuple[GemmWorkload | ConvWorkload, bool, str, Hardware]
Hold: TypeAlias = Callable[[Job, Job | None, bool], Alone | PairedResult]
"""hold(candidate, incumbent, thorough): run both, or the candidate alone if there is no incumbent; alone and
`thorough`, the result includes its lower bound on the machine."""

AGAIN = 2  # repetitions of a comparison that other work disturbed


class TrialFailed(RuntimeError):
    """A job has no cost; the message is the reason."""


@dataclass
class _Standing:
    """The best configuration of a workload so far and its cost; none before the first measurement."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    job: Job | None = None
    cost: float = 0.0
    # lower bound in seconds by measured peak, by multiply-accumulates of an algorithm
    least: dict[int, float] = field(default_factory=dict)


class Incumbents:
    """Gives every job its cost by paired benchmarks with the incumbent of its workload; the first job measured becomes
    the incumbent.

    Can be used from several threads, each with a machine of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._standings: dict[Subject, _Standing] = {}

    def of(self, job: Job) -> Job | None:
        """Return the incumbent of the job's workload."""
        return self._standing(job).job

    def measured(self, job: Job, hold: Hold) -> Measured:
        """Measure a job with `hold`; a TrialFailed becomes the reason in the result."""
        start = time.monotonic()
        try:
            cost, spread, disturbed = self._cost(job, hold)
        except TrialFailed as error:
            return Measured(job=job, reason=str(error), seconds_spent=time.monotonic() - start)
        spent = time.monotonic() - start
        return Measured(job=job, cost=cost, spread=spread, disturbed=disturbed, seconds_spent=spent)

    def alone(self, job: Job, hold: Hold) -> Alone:
        """Return the time of a job by itself. TrialFailed if it cannot be run or its time is impossible."""
        found = hold(job, None, False)
        assert isinstance(found, Alone)
        return self._possible(job, found.seconds, hold) or found

    def side_by_side(self, first: Job, second: Job, hold: Hold) -> SideBySide | str:
        """Compare two configurations of one workload in one session, repeated if other work disturbed it. Return the
        result, or the reason for a failure."""
        try:
            for _ in range(1 + AGAIN):
                found = paired_of(hold(second, first, True))
                if found.disturbed <= DOUBTFUL:
                    break
            for job, seconds in ((second, found.seconds), (first, found.seconds * found.ratio)):
                again = self._possible(job, seconds, hold)
                if again is not None:
                    return f"{cost_of(seconds)} in the comparison, but {cost_of(again.seconds)} alone"
        except TrialFailed as error:
            return str(error)
        return SideBySide(
            before=found.seconds * found.ratio,
            after=found.seconds,
            spread=found.uncertainty,
            disturbed=found.disturbed,
        )

    def _standing(self, job: Job) -> _Standing:
        with self._lock:
            return self._standings.setdefault((job.workload, job.prepacked, job.epilogue, job.hardware), _Standing())

    def _cost(self, job: Job, hold: Hold) -> tuple[float, float, float]:
        """Return the cost, its spread, and the disturbed fraction of the session."""
        standing = self._standing(job)
        with standing.lock:
            # All other threads wait for the first job, which theirs are compared with.
            if standing.job is None or standing.job == job:
                alone = self.alone(job, hold)
                if standing.job is None:
                    standing.job, standing.cost = job, alone.seconds
                return standing.cost, alone.uncertainty, alone.disturbed
            incumbent, cost = standing.job, standing.cost
        first = paired_of(hold(job, incumbent, False))
        second: PairedResult | None = None
        while True:
            found = verdict(cost, first, second)
            again = self._possible(job, found.cost, hold)
            if again is not None:
                found = Verdict(again.seconds, again.uncertainty, found.replaces, again.disturbed)
            with standing.lock:
                assert standing.job is not None
                if found.replaces and standing.job == incumbent:
                    standing.job, standing.cost = job, found.cost
                lost = not first.won or (second is not None and not second.won)
                if lost or (second is not None and standing.job in (job, incumbent)):
                    return found.cost, found.spread, found.disturbed
                # Another machine may have replaced the incumbent in the meantime; then the new one must be beaten.
                incumbent, cost = standing.job, standing.cost
            second = paired_of(hold(job, incumbent, True))

    def _possible(self, job: Job, seconds: float, hold: Hold) -> Alone | None:
        """Return None if a job can take that few seconds, otherwise its time alone from a second measurement.
        TrialFailed if that is impossible too."""
        standing = self._standing(job)
        macs = work_of(job.workload, job.config).macs
        # The bound from the description may be too high, for example if its clock is too low; it only triggers a closer
        # check.
        if seconds >= standing.least.get(macs, least_cost(job.workload, job.hardware, job.config)):
            return None
        again = hold(job, None, True)
        assert isinstance(again, Alone)
        standing.least[macs] = again.least
        if seconds >= again.least:
            return None
        if again.seconds >= again.least:
            return again
        raise TrialFailed(impossible(job, seconds, again.seconds, again.least))


def impossible(job: Job, seconds: float, again: float, least: float) -> str:
    """Return why a cost that was measured twice is rejected."""
    work = work_of(job.workload, job.config)
    return (
        f"impossible cost: {cost_of(seconds)}, measured again {cost_of(again)}, but {work.macs} "
        f"multiply-accumulates and {work.bytes} bytes of algorithm {job.config.form!r} take at least "
        f"{cost_of(least)} at this machine's peak"
    )


def paired_of(found: Alone | PairedResult) -> PairedResult:
    """Return the result of a comparison of two jobs."""
    assert isinstance(found, PairedResult)
    return found


def cost_of(seconds: float) -> str:
    """Return a time for a message."""
    return scaled(seconds, "s", 4)
