"""The timing of a program by operator of its source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..program.isa import QUEUES
from ..program.program import Program
from ..program.work import work
from ..report.trace import region_spans
from .timing import Timing


@dataclass(frozen=True)
class RegionTime:
    """An operator of the source: cycles from its first start to its last result, and its multiply-accumulates."""

    name: str
    workload: str
    instructions: int
    start: int
    end: int
    busy: dict[str, int]  # cycles by engine
    macs: int


def region_times(program: Program, timing: Timing) -> tuple[RegionTime, ...]:
    """Return one entry for each region that has instructions, in table order."""
    rows = program.instructions
    count = len(program.regions)
    region = rows["region"].astype(np.int64)
    # Sums below 2^53 are exact in the float64 of bincount.
    queue = region * QUEUES + rows["queue"]
    busy = np.bincount(queue, weights=timing.end - timing.start, minlength=count * QUEUES)
    sizes = np.bincount(region, minlength=count)
    macs = np.zeros(max(count, 1))
    for batch in work(program).of("sums"):
        macs += np.bincount(region[batch.number], weights=batch.macs, minlength=len(macs))
    return tuple(
        RegionTime(
            name=program.regions[place].name,
            workload=program.regions[place].workload,
            instructions=int(sizes[place]),
            start=first,
            end=last,
            busy={name: int(busy[place * QUEUES + number]) for number, name in enumerate(program.queues)},
            macs=int(macs[place]),
        )
        for place, first, last in region_spans(program, timing)
    )
