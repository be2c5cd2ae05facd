"""What both parts of the demo are measured by: few runs for slow rivals, and how their ratios are told."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from ..errors import TilingError
from ..measure import Condition, Paired, Side, Timing

SLOW = 0.5  # seconds a call; such a rival runs once or twice more, not until its ratio is settled
VERY_SLOW = 3.0  # seconds a call; once more

Progress = Callable[[str], None]


class DemoError(TilingError):
    """The demonstration cannot be given: its option is wrong, or a result is."""


def few_pairs(ours: Side, rival: Side, seconds: float) -> Paired:
    """One or two pairs, for a rival whose call takes so many seconds."""
    condition, pairs = Condition(), 1 if seconds > VERY_SLOW else 2
    taken = [(condition.sample(ours, 1)[0], condition.sample(rival, 1)[0]) for _ in range(pairs)]
    return Paired(ours=Timing(seconds=tuple(o for o, _ in taken)), peer=Timing(seconds=tuple(p for _, p in taken)))


def middle_half(run: Paired) -> str:
    """Where the middle half of the ratios lies."""
    if len(run.ratios) < 2:
        return "one pair"
    low, _, high = statistics.quantiles(run.ratios, n=4, method="inclusive")
    return f"{low:.2f} to {high:.2f}"
