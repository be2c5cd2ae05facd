"""Paired benchmark of a candidate against the incumbent: alternating runs until the result is certain.

On a shared machine, the lowest of many noisy times rarely belongs to the fastest program. So a time is never compared
with one taken earlier: candidate and incumbent alternate (A B A B ...), and a candidate replaces the incumbent only if
two consecutive paired benchmarks say so with their whole 95 percent intervals. The second one alone determines by how
much: the first was selected for its outcome, so it is biased.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ...measure import Condition, Run, Status, StopRule, paired, uncertainty

HOPELESS = 8.0  # a candidate this many times slower than the incumbent is not timed in pairs


@dataclass(frozen=True, kw_only=True)
class PairRule(StopRule):
    """A StopRule that also stops as soon as the candidate is certainly slower than the incumbent by `beaten`."""

    least_pairs: int = 5
    most_pairs: int = 40
    most_seconds: float = 0.5
    spread: float = 0.01
    beaten: float = 0.01

    def reached(self, ratios: Sequence[float], elapsed: float) -> bool:
        """Return whether to stop; `ratios` are the incumbent's seconds over the candidate's, pair by pair."""
        if len(ratios) >= self.least_pairs and interval(ratios)[1] < 1 - self.beaten:
            return True
        return super().reached(ratios, elapsed)


QUICK = PairRule()
THOROUGH = PairRule(least_pairs=15, most_pairs=80, most_seconds=1.0, spread=0.005)


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the 95 percent interval of the median; (0, infinity) with too few ratios."""
    if len(ratios) < 2:
        return 0.0, math.inf
    middle, half = statistics.median(ratios), uncertainty(ratios)
    return middle * (1 - half), middle * (1 + half)


@dataclass(frozen=True, kw_only=True)
class PairedResult:
    """The incumbent's seconds over the candidate's: the median, and the half-width of its 95 percent interval relative
    to it.

    Above 1, the candidate is faster. `seconds` are the candidate's per call; `pairs` is 1 if it was hopelessly slow.
    `disturbed` is the fraction of samples in which other work kept threads off their cores, for the side with more.
    """

    ratio: float
    uncertainty: float
    seconds: float
    pairs: int
    disturbed: float = 0.0

    @property
    def won(self) -> bool:
        """Whether the candidate is certainly faster."""
        return self.ratio * (1 - self.uncertainty) > 1


@dataclass(frozen=True, kw_only=True)
class Alone:
    """The time of a configuration by itself: seconds per call, the relative half-width of the 95 percent interval, and
    the fraction of samples that other work disturbed. `least` is the lower bound in seconds of its algorithm by the
    measured peak of this machine, or 0 if not requested."""

    seconds: float
    uncertainty: float
    disturbed: float = 0.0
    least: float = 0.0


class PairError(RuntimeError):
    """One side could not be run."""


def paired_benchmark(
    candidate: Run, incumbent: Run, rule: PairRule = QUICK, condition: Condition | None = None
) -> PairedResult:
    """Run both alternately until `rule` is satisfied. PairError if one of them raises."""
    found = paired(candidate, incumbent, rule, condition)
    if found.status is not Status.OK:
        raise PairError(found.reason)
    ratios = found.ratios
    return PairedResult(
        ratio=found.ratio,
        uncertainty=uncertainty(ratios),
        seconds=found.ours.median,
        pairs=len(ratios),
        disturbed=found.disturbed,
    )


@dataclass(frozen=True)
class Verdict:
    """`cost` is the candidate's, `spread` its relative uncertainty; `replaces`: it replaces the incumbent. `disturbed`
    is as in PairedResult."""

    cost: float
    spread: float
    replaces: bool
    disturbed: float = 0.0


def verdict(incumbent_cost: float, first: PairedResult, second: PairedResult | None) -> Verdict:
    """Return the verdict of the paired benchmarks on a candidate; `second` is to be run if the candidate won the first.

    The cost is that of the incumbent over the ratio, so that all costs of a workload compare as the paired runs did,
    however the speed of the machine drifts. A candidate that is not certainly faster never costs less than the
    incumbent.
    """
    last = second if first.won and second is not None else first
    replaces = first.won and last is second and last.won
    cost = incumbent_cost / last.ratio
    return Verdict(cost if replaces else max(cost, incumbent_cost), last.uncertainty, replaces, last.disturbed)
