"""Execution policy: whether model runs finish sooner concurrently, each on one core, or sequentially, each on all
cores.

If all cores together give a linear speedup for a run, concurrency gains nothing, and models that each fill a cache
lose. The better policy follows from previous latencies of runs of these models under either policy: no formula
describes how models compete for caches. The policy not chosen is tried again occasionally, so that a disturbed
measurement does not persist.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping

KEPT = 5  # most recent latencies
LEAST = 3  # minimum number of latencies, each of one call, for a decision
AGAIN = 32  # calls after which the other policy is tried once
TIMED = 4  # one call in TIMED is timed once both policies are known: timing costs small models a tenth

_calls = itertools.count(1)


class Times:
    """The most recent latencies, in seconds. `known`: there are enough of them; `usual`: their median."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=KEPT)
        self.known, self.usual = False, math.inf

    def add(self, seconds: float) -> None:
        self._latest.append(seconds)
        self.known = len(self._latest) >= LEAST
        self.usual = sorted(self._latest)[len(self._latest) // 2]


class ExecutionPolicy:
    """The latency per run of one model: sequentially, and concurrently as a share of the total."""

    def __init__(self) -> None:
        self.sequential, self.concurrent = Times(), Times()


def next_way(runs: Mapping[ExecutionPolicy, int]) -> tuple[bool, bool]:
    """Whether the given runs execute concurrently now, by the better policy or the one with fewer measurements, and
    whether they are timed. `runs`: number of runs per model."""
    if not all(policy.sequential.known for policy in runs):
        return False, True
    if not all(policy.concurrent.known for policy in runs):
        return True, True
    sequential = sum(count * policy.sequential.usual for policy, count in runs.items())
    concurrent = sum(count * policy.concurrent.usual for policy, count in runs.items())
    call = next(_calls)
    return (concurrent < sequential) != (call % AGAIN == 0), call % TIMED == 0


def note_concurrent(runs: Mapping[ExecutionPolicy, int], seconds: float) -> None:
    """Record that these runs took `seconds` concurrently. A model's share is proportional to its sequential latency."""
    if not all(policy.sequential.known for policy in runs):
        return
    share = seconds / max(sum(count * policy.sequential.usual for policy, count in runs.items()), 1e-9)
    for policy in runs:
        policy.concurrent.add(share * policy.sequential.usual)
