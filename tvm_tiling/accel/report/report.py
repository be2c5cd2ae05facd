"""What a timed program shows (pages 06 and 09): cycles, utilisation, why engines stood still, bytes, energy. As data,
in words and in tables."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...figures import column, percent, size
from ..program.program import Program
from ..timing.event_loop import CAUSES
from ..timing.region_time import RegionTime, region_times
from ..timing.timing import Timing
from .trace import save_trace

OPERATORS = "Operators"
"""Title of the table of a program's operators."""

_NUMBER = re.compile(r"[-+]?[\d.\u202f]+( %)?")


@dataclass(frozen=True)
class Table:
    """A table with its heading above it."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[object]]


def aligned(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Columns of equal width, words to the left, numbers to the right."""
    cells = [[str(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(headings))]
    words = [not any(_NUMBER.fullmatch(row[place]) for row in cells[1:]) for place in range(len(headings))]
    return [
        "  ".join(
            cell.ljust(width) if word else cell.rjust(width)
            for cell, width, word in zip(row, widths, words, strict=True)
        ).rstrip()
        for row in cells
    ]


@dataclass(frozen=True)
class EngineTime:
    """Cycles of one queue of the machine: `busy` executing, `stalls` standing still with something left to do, by cause
    (data: a result of another queue that it reads; space: a buffer that it overwrites; token: a token on its way, or
    one that no data ask for; latency: a result of its own queue that is still in the pipeline; port; dispatch: nothing
    in the queue yet), `idle` after its last instruction. They add up to all cycles."""

    instructions: int
    busy: int
    idle: int
    stalls: dict[str, int]


@dataclass(frozen=True)
class MemoryUse:
    """A memory: bytes that transfers `read` from it and have `written` to it; `peak`, the first byte behind all that
    the program touches; `capacity`, None without limit, both halves of a buffer that the description has twice
    (`doubled`) counted; `busy` cycles of its ports, None where it has any number."""

    read: int
    written: int
    peak: int
    capacity: int | None
    busy: int | None
    doubled: bool = False


@dataclass(frozen=True)
class SimReport:
    """A program on a machine.

    `utilisation` is the cycles that the multiplier arrays need at peak over the cycles taken. `bytes` are those moved
    between the chip and the external and internal memory, by operand: a, b, out. `lower_bound` is the roofline, the
    cycles of whatever is busiest (`bound`: an engine, "port NAME" or "dispatch"); `upper_bound` has everything in
    series; `transfer_cycles` are those of the queue or port that is busiest with transfers. `energy` in pJ by where it
    goes. `clock_mhz` None: unknown. `free` is the work that the machine does in no time, because its description gives
    no rate for it: how much, by what it is.
    """

    hardware: str
    instructions: int
    cycles: int
    clock_mhz: float | None
    macs: int
    utilisation: float
    lower_bound: int
    upper_bound: int
    bound: str
    transfer_cycles: int
    engines: dict[str, EngineTime]
    bytes: dict[str, int]
    memories: dict[str, MemoryUse]
    energy: dict[str, float]
    free: dict[str, str]
    program: Program = field(repr=False, compare=False)
    timing: Timing = field(repr=False, compare=False)

    @property
    def seconds(self) -> float | None:
        """Time at the machine's clock, None where it is unknown."""
        return self.cycles / (self.clock_mhz * 1e6) if self.clock_mhz else None

    @property
    def energy_pj(self) -> float:
        """Energy of the whole run, in pJ."""
        return sum(self.energy.values())

    @property
    def stalls(self) -> dict[str, dict[str, int]]:
        """Cycles that each engine stood still, by cause."""
        return {name: engine.stalls for name, engine in self.engines.items()}

    @property
    def roofline(self) -> float:
        """Share of the roofline that is reached: lower bound over cycles."""
        return self.lower_bound / self.cycles if self.cycles else 1.0

    @property
    def intensity(self) -> float | None:
        """Multiply-accumulates per byte moved, the place along the roofline; None where nothing is moved."""
        moved = sum(self.bytes.values())
        return self.macs / moved if moved else None

    @functools.cached_property
    def overlap(self) -> float:
        """Of the cycles in which any engine is busy, the share in which two or more are."""
        times = np.concatenate([self.timing.start, self.timing.end])
        steps = np.repeat([1, -1], len(self.timing.start))
        order = np.argsort(times, kind="stable")
        lasting = np.diff(times[order])
        at_once = np.cumsum(steps[order])[:-1]
        some = int(lasting[at_once >= 1].sum())
        return int(lasting[at_once >= 2].sum()) / some if some else 0.0

    @functools.cached_property
    def regions(self) -> tuple[RegionTime, ...]:
        """The operators of the source in their order."""
        return region_times(self.program, self.timing)

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline in the Chrome trace format: a row per engine, a cycle as a microsecond."""
        save_trace(self.program, self.timing, path)

    def to_dict(self) -> dict[str, Any]:
        """Every figure as plain values for JSON."""
        return {
            "hardware": self.hardware,
            "instructions": self.instructions,
            "cycles": self.cycles,
            "seconds": self.seconds,
            "macs": self.macs,
            "utilisation": self.utilisation,
            "lower_bound": self.lower_bound,
            "upper_bound": self.upper_bound,
            "bound": self.bound,
            "transfer_cycles": self.transfer_cycles,
            "free": self.free,
            "roofline": self.roofline,
            "intensity": self.intensity,
            "overlap": self.overlap,
            "engines": {name: vars(engine) for name, engine in self.engines.items()},
            "bytes": self.bytes,
            "memories": {name: vars(memory) for name, memory in self.memories.items()},
            "energy_pj": self.energy_pj,
            "energy": self.energy,
            "regions": [vars(region) for region in self.regions],
        }

    def summary(self) -> str:
        """The report as text: a headline and what limits it, then engines, memories and energy as tables."""
        lines = headline(self)
        for table in tables(self):
            lines += ["", *aligned(table.headings, table.rows)]
        return "\n".join(lines)


def headline(report: SimReport) -> list[str]:
    """What matters most, in three lines, and what costs nothing on this machine in one more."""
    time = "" if report.seconds is None else f", {report.seconds * 1e6:.6g} us"
    moved = ", ".join(f"{name} {count}" for name, count in report.bytes.items())
    lines = [
        f"{report.hardware}: {report.cycles} cycles{time}, utilisation {report.utilisation:.1%}, "
        f"{report.overlap:.1%} of the busy cycles overlapped",
        f"{report.roofline:.1%} of the roofline ({report.lower_bound} cycles of {report.bound}); {report.upper_bound} "
        "cycles in series",
        f"{report.instructions} instructions, {report.macs} multiply-accumulates, bytes moved: {moved}",
    ]
    return [*lines[:1], *free_work(report), *lines[1:]]


def free_work(report: SimReport) -> list[str]:
    """A line that names what the machine did in no time; none where it is a whole one."""
    if not report.free:
        return []
    work = ", ".join(f"{what} ({amount})" for what, amount in report.free.items())
    return [f"not a whole machine: its description gives no rate for {work}, which took no cycles"]


def tables(report: SimReport) -> list[Table]:
    """Engines, memories, energy, and operators where there are several."""
    engines = [
        (name, time.instructions, time.busy, *(time.stalls[cause] for cause in CAUSES), time.idle)
        for name, time in report.engines.items()
    ]
    uses = report.memories.values()
    read, reads = column("read", [use.read for use in uses], binary=True)
    written, writes = column("written", [use.written for use in uses], binary=True)
    peak, peaks = column("peak usage", [use.peak for use in uses], binary=True)
    memories = [
        (name, *moved, capacity_text(use), _or_blank(use.busy))
        for (name, use), *moved in zip(report.memories.items(), reads, writes, peaks, strict=True)
    ]
    waits = tuple(f"waits: {cause}" for cause in CAUSES)
    found = [
        Table("Engines, in cycles", ("engine", "instructions", "busy", *waits, "idle"), engines),
        Table(
            "Memories",
            ("memory", read, written, peak, "capacity", "port busy, cycles"),
            memories,
        ),
    ]
    total = report.energy_pj
    if total:
        spent = {**report.energy, "all": total}
        heading, cells = column("energy", [each * 1e-12 for each in spent.values()], "J")
        shares = [(name, cell, percent(each / total)) for (name, each), cell in zip(spent.items(), cells, strict=True)]
        found.append(Table("Energy", ("where", heading, "share"), shares))
    if len(report.regions) > 1:
        rows = [(r.name, r.workload, r.instructions, r.start, r.end, r.macs) for r in report.regions]
        found.append(Table(OPERATORS, ("operator", "workload", "instructions", "from", "to", "MAC"), rows))
    return found


def capacity_text(use: MemoryUse) -> str:
    """The capacity of a memory, a doubled buffer by its halves; empty without a limit."""
    if use.capacity is None:
        return ""
    return f"2 x {size(use.capacity // 2)}" if use.doubled else size(use.capacity)


def _or_blank(value: int | None) -> int | str:
    return "" if value is None else value
