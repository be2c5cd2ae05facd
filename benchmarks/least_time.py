"""The least of several times: what else the computer does can only add to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def least_seconds(work: Callable[[], Any], seconds: float) -> float:
    """The least time that `work` takes, called at least twice and for `seconds` in all."""
    least, calls, end = float("inf"), 0, time.perf_counter() + seconds
    while calls < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - start)
        calls += 1
    return least
