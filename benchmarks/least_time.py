"""Minimum of several times: other load on the machine can only increase a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def least_seconds(work: Callable[[], Any], seconds: float) -> float:
    """Return the minimum time of `work`, called at least twice and for at least `seconds` in all."""
    least, calls, end = float("inf"), 0, time.perf_counter() + seconds
    while calls < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - start)
        calls += 1
    return least
