"""Whether a candidate is faster than the incumbent: alternating runs, until it is sure (page 10).

On a shared machine the quickest of many noisy times is rarely the quickest program. So a time is never compared with
another one taken earlier: candidate and incumbent alternate (A B A B ...), and a candidate takes the incumbent's place
only if two paired benchmarks, one after the other, say so with all of their 95 percent intervals. The second one alone
says by how much: the first was chosen for its outcome, so it flatters.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ...measure import Condition, Run, Status, StopRule, paired, uncertainty

HOPELESS = 8.0  # a candidate so many times as slow as the incumbent is not timed in pairs


@dataclass(frozen=True, kw_only=True)
class PairRule(StopRule):
    """As StopRule, but a candidate that is surely slower than the incumbent by `beaten` is let go at once."""

    least_pairs: int = 5
    most_pairs: int = 40
    most_seconds: float = 0.5
    spread: float = 0.01
    beaten: float = 0.01

    def reached(self, ratios: Sequence[float], elapsed: float) -> bool:
        """Whether to stop; `ratios` are the incumbent's seconds over the candidate's, pair by pair."""
        if len(ratios) >= self.least_pairs and interval(ratios)[1] < 1 - self.beaten:
            return True
        return super().reached(ratios, elapsed)


QUICK = PairRule()
THOROUGH = PairRule(least_pairs=15, most_pairs=80, most_seconds=1.0, spread=0.005)


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """The median's 95 percent interval; (0, infinite) where nothing can be said."""
    if len(ratios) < 2:
        return 0.0, math.inf
    middle, half = statistics.median(ratios), uncertainty(ratios)
    return middle * (1 - half), middle * (1 + half)


@dataclass(frozen=True, kw_only=True)
class PairedResult:
    """The incumbent's seconds over the candidate's: median, and half-width of its 95 percent interval relative to it.

    Above 1 the candidate is the faster. `seconds` are the candidate's, per call; `pairs` is 1 for a hopeless one.
    `disturbed` is the share of the samples in which other work kept threads off their cores, of the side that has more.
    """

    ratio: float
    uncertainty: float
    seconds: float
    pairs: int
    disturbed: float = 0.0

    @property
    def won(self) -> bool:
        """Whether the candidate is surely faster."""
        return self.ratio * (1 - self.uncertainty) > 1


@dataclass(frozen=True, kw_only=True)
class Alone:
    """What a configuration takes by itself: seconds per call, the half-width of their 95 percent interval, relative,
    and the share of the samples that other work disturbed. `least`: seconds below which nothing of its form is possible
    on this machine by its measured peak; 0 where that was not asked for."""

    seconds: float
    uncertainty: float
    disturbed: float = 0.0
    least: float = 0.0


class PairError(RuntimeError):
    """A side could not be run."""


def paired_benchmark(
    candidate: Run, incumbent: Run, rule: PairRule = QUICK, condition: Condition | None = None
) -> PairedResult:
    """Run both alternately until `rule` is reached. PairError where one of them raises."""
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
    """`cost` is the candidate's, `spread` its relative uncertainty; `replaces`: it takes the incumbent's place.
    `disturbed`: as a PairedResult's."""

    cost: float
    spread: float
    replaces: bool
    disturbed: float = 0.0


def verdict(incumbent_cost: float, first: PairedResult, second: PairedResult | None) -> Verdict:
    """What the paired benchmarks say of a candidate; `second` is to be held where the first was won.

    Costs are the incumbent's over the ratio, so that all costs of a workload compare as the paired runs did, however
    the machine's speed drifts. A candidate that is not surely faster never costs less than the incumbent.
    """
    last = second if first.won and second is not None else first
    replaces = first.won and last is second and last.won
    cost = incumbent_cost / last.ratio
    return Verdict(cost if replaces else max(cost, incumbent_cost), last.uncertainty, replaces, last.disturbed)
