"""Whether runs of models are sooner done beside each other, each on one core, or in turn, each on all.

Where all cores together serve a run as many times as fast as one, there is nothing to be gained, and models of which
each fills a cache lose. Which way is the better one follows from what runs of these models took before, either way: no
formula knows what models do to each other's caches. The way not chosen is tried again now and then, so that a disturbed
measurement is not believed for ever.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping

KEPT = 5  # latest times
LEAST = 3  # of them, each of a call, before they are believed
AGAIN = 32  # calls, behind which the other way is tried once
TIMED = 4  # calls, of which one is timed where both ways are known: times cost small models a tenth

_calls = itertools.count(1)


class Times:
    """The latest of some times, in seconds. `known`: enough to be believed; `usual`: their median."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=KEPT)
        self.known, self.usual = False, math.inf

    def add(self, seconds: float) -> None:
        self._latest.append(seconds)
        self.known = len(self._latest) >= LEAST
        self.usual = sorted(self._latest)[len(self._latest) // 2]


class ExecutionPolicy:
    """What a run of one model took, on average of each call: in turn, and beside others as a share of the whole."""

    def __init__(self) -> None:
        self.in_turn, self.beside = Times(), Times()


def next_way(runs: Mapping[ExecutionPolicy, int]) -> tuple[bool, bool]:
    """Whether runs, so many of each model, are beside each other now: the better way, or the one of which less is
    known. And whether they are timed."""
    if not all(policy.in_turn.known for policy in runs):
        return False, True
    if not all(policy.beside.known for policy in runs):
        return True, True
    in_turn = sum(count * policy.in_turn.usual for policy, count in runs.items())
    beside = sum(count * policy.beside.usual for policy, count in runs.items())
    call = next(_calls)
    return (beside < in_turn) != (call % AGAIN == 0), call % TIMED == 0


def note_beside(runs: Mapping[ExecutionPolicy, int], seconds: float) -> None:
    """That these runs took so many seconds beside each other. A model's part is as large as it is in turn."""
    if not all(policy.in_turn.known for policy in runs):
        return
    share = seconds / max(sum(count * policy.in_turn.usual for policy, count in runs.items()), 1e-9)
    for policy in runs:
        policy.beside.add(share * policy.in_turn.usual)
