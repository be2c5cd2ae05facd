"""How much of the cores' time other processes take while something is measured."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from pathlib import Path

from .figures import percent
from .runtime.threads import usable_processors

BUSY = 0.05
"""Share of the cores' time above which a measurement is doubtful."""
LEAST_TICKS = 40
"""Of the system's clock: a share of fewer is mostly rounding."""
STAT = Path("/proc/stat")
IDLE = (3, 4)  # columns of a processor's line: idle, waiting for a disk


class OtherWork:
    """Watches while it is entered. `share`: of the time of this process's cores that other processes, or other virtual
    machines on the same hardware, took meanwhile; None where the system does not say or the time was too short."""

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
    """What is said of figures that were measured beside so much other work; empty where the machine was idle enough."""
    if share is None or share <= BUSY:
        return ""
    return (
        f"Doubtful: other processes took {percent(share, 0)} of the cores' time while this was measured; repeat the "
        "measurement on an idle machine."
    )


def _busy_ticks() -> int | None:
    """Ticks that the processors of this process were busy so far, with whatever; None where the system does not say."""
    try:
        text = STAT.read_text()
    except OSError:
        return None
    return busy_ticks(text, usable_processors())


def busy_ticks(text: str, processors: Collection[int]) -> int | None:
    """Ticks that these processors were busy, from the text of /proc/stat; None where it names none of them."""
    busy = [
        sum(int(ticks) for place, ticks in enumerate(columns.split()[:8]) if place not in IDLE)
        for number, columns in re.findall(r"^cpu(\d+) (.*)$", text, re.MULTILINE)
        if int(number) in processors
    ]
    return sum(busy) if busy else None
