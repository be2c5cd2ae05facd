"""Detection of other processes that use the cores during a measurement."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from pathlib import Path

from .figures import percent
from .runtime.threads import usable_processors

BUSY = 0.05
"""Fraction of the cores' time above which a measurement is doubtful."""
LEAST_TICKS = 40
"""Minimum duration in ticks of the system's clock: below it, rounding dominates the fraction."""
STAT = Path("/proc/stat")
IDLE = (3, 4)  # columns of a processor's line: idle, waiting for I/O


class OtherWork:
    """A context that measures the `share` of the time of this process's cores that other processes, or other virtual
    machines on the same hardware, used meanwhile; None if the system does not report it or the time was too short."""

    def __init__(self) -> None:
        self.share: float | None = None

    def __enter__(self) -> OtherWork:
        self._busy, self._own, self._start = _busy_ticks(), time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        busy, own = _busy_ticks(), time.process_time() - self._own
        if busy is None or self._busy is None:
            return
        seconds = (time.perf_counter() - self._start) * len(usable_processors())
        ticks = os.sysconf("SC_CLK_TCK")
        if seconds * ticks >= LEAST_TICKS:
            self.share = min(1.0, max(0.0, ((busy - self._busy) / ticks - own) / seconds))


def doubt(share: float | None) -> str:
    """The warning for figures measured while other processes used this share; empty if the machine was idle enough."""
    if share is None or share <= BUSY:
        return ""
    return (
        f"Doubtful: other processes took {percent(share, 0)} of the cores' time while this was measured; repeat the "
        "measurement on an idle machine."
    )


def _busy_ticks() -> int | None:
    """Busy ticks of the processors of this process so far, by any process; None if the system does not report them."""
    try:
        text = STAT.read_text()
    except OSError:
        return None
    return busy_ticks(text, usable_processors())


def busy_ticks(text: str, processors: Collection[int]) -> int | None:
    """Busy ticks of these processors, from the text of /proc/stat; None if it lists none of them."""
    busy = [
        sum(int(ticks) for place, ticks in enumerate(columns.split()[:8]) if place not in IDLE)
        for number, columns in re.findall(r"^cpu(\d+) (.*)$", text, re.MULTILINE)
        if int(number) in processors
    ]
    return sum(busy) if busy else None
