"""Measurement shared by both parts of the demo: fewer runs of slow libraries, and the spread of speedups."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from ..errors import TilingError
from ..measure import Condition, Paired, Side, Timing

SLOW = 0.5  # seconds per call; slower libraries run once or twice more instead of until the ratio has settled
VERY_SLOW = 3.0  # seconds per call; slower libraries run once more

Progress = Callable[[str], None]


class DemoError(TilingError):
    """The demo cannot run: an option or a result is wrong."""


def few_pairs(ours: Side, rival: Side, seconds: float) -> Paired:
    """One or two paired runs, for a library whose call takes `seconds`."""
    condition, pairs = Condition(), 1 if seconds > VERY_SLOW else 2
    taken = [(condition.sample(ours, 1)[0], condition.sample(rival, 1)[0]) for _ in range(pairs)]
    return Paired(ours=Timing(seconds=tuple(o for o, _ in taken)), peer=Timing(seconds=tuple(p for _, p in taken)))


def middle_half(run: Paired) -> str:
    """The interquartile range of the ratios."""
    if len(run.ratios) < 2:
        return "one pair"
    low, _, high = statistics.quantiles(run.ratios, n=4, method="inclusive")
    return f"{low:.2f} to {high:.2f}"
