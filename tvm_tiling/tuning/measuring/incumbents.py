"""Who is the incumbent of each workload, and what every configuration costs beside it. The rule is in
paired_benchmark.py.

A cost that its form cannot have on the machine (least_cost.py) is no cost: the configuration is measured again by
itself, and fails where that is impossible too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from ...hardware.description import Hardware
from ...measure import DOUBTFUL
from ...workload import ConvWorkload, GemmWorkload
from ..least_cost import least_cost, work_of
from .measurer import Job, Measured, SideBySide
from .paired_benchmark import Alone, PairedResult, Verdict, verdict

Subject: TypeAlias = tuple[GemmWorkload | ConvWorkload, bool, str, Hardware]
Hold: TypeAlias = Callable[[Job, Job | None, bool], Alone | PairedResult]
"""hold(candidate, incumbent, thorough): run both, or the candidate alone where there is no incumbent; that one, where
`thorough`, with what it takes at least on the machine."""

AGAIN = 2  # sessions side by side that are held once more because other work disturbed them


class TrialFailed(RuntimeError):
    """A job has no cost; the message is the reason."""


@dataclass
class _Standing:
    """The best configuration of a workload so far and its cost; none before the first one is measured."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    job: Job | None = None
    cost: float = 0.0
    least: dict[int, float] = field(default_factory=dict)  # seconds by measured peak, by the multiply-adds of a form


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
            cost, spread, disturbed = self._cost(job, hold)
        except TrialFailed as error:
            return Measured(job=job, reason=str(error), seconds_spent=time.monotonic() - start)
        spent = time.monotonic() - start
        return Measured(job=job, cost=cost, spread=spread, disturbed=disturbed, seconds_spent=spent)

    def alone(self, job: Job, hold: Hold) -> Alone:
        """What a job takes by itself; TrialFailed where it cannot be run, or that is impossible."""
        found = hold(job, None, False)
        assert isinstance(found, Alone)
        return self._possible(job, found.seconds, hold) or found

    def side_by_side(self, first: Job, second: Job, hold: Hold) -> SideBySide | str:
        """Two configurations of one workload in one session, held again where other work disturbed it; or why that is
        not possible."""
        try:
            for _ in range(1 + AGAIN):
                found = paired_of(hold(second, first, True))
                if found.disturbed <= DOUBTFUL:
                    break
            for job, seconds in ((second, found.seconds), (first, found.seconds * found.ratio)):
                again = self._possible(job, seconds, hold)
                if again is not None:
                    return f"{cost_of(seconds)} beside the other one, {cost_of(again.seconds)} alone"
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
        """Cost, its spread, and how much of the session other work disturbed."""
        standing = self._standing(job)
        with standing.lock:
            # Everybody else waits for the first one, which they are to be compared with.
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
                # Another machine may have replaced it meanwhile: then that one is to be beaten.
                incumbent, cost = standing.job, standing.cost
            second = paired_of(hold(job, incumbent, True))

    def _possible(self, job: Job, seconds: float, hold: Hold) -> Alone | None:
        """None where a job can take so many seconds; else what it takes alone, by a second measurement. TrialFailed
        where that is impossible too."""
        standing = self._standing(job)
        macs = work_of(job.workload, job.config).macs
        # What the description says is least may be too much, as its clock may be: it only asks for a closer look.
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
    """Why costs that were measured twice are none."""
    work = work_of(job.workload, job.config)
    return (
        f"impossible cost: {cost_of(seconds)}, measured again {cost_of(again)}, where {work.macs} multiply-adds and "
        f"{work.bytes} bytes of form {job.config.form!r} take at least {cost_of(least)} at this machine's peak"
    )


def cost_of(seconds: float) -> str:
    """Seconds for a sentence."""
    return f"{seconds * 1e6:.4g} us"


def paired_of(found: Alone | PairedResult) -> PairedResult:
    """The result of two jobs in turns."""
    assert isinstance(found, PairedResult)
    return found
