"""The results of a timed program as data, text and tables: cycles, utilisation, stall causes, bytes, energy."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...figures import column, percent, quantity, scaled, size
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
    """A table with its title."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[object]]


def aligned(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the table as lines of text with aligned columns, words to the left, numbers to the right."""
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
    """Cycles of one queue of the machine, which add up to all cycles.

    `busy` cycles execute; `stalls` are cycles with work left, by cause (data: a result of another queue that it reads;
    space: a buffer that it overwrites; token: a token in transit, or one that no data requires; latency: a result of
    its own queue still in the pipeline; port; dispatch: nothing in the queue yet); `idle` cycles follow its last
    instruction.
    """

    instructions: int
    busy: int
    idle: int
    stalls: dict[str, int]


@dataclass(frozen=True)
class MemoryUse:
    """Use of a memory: bytes that transfers `read` and have `written`; `peak`, one past the last byte the program
    touches; `capacity`, None without limit, counting both halves of a double buffer (`doubled`); `busy` cycles of its
    ports, None if their number is unlimited."""

    read: int
    written: int
    peak: int
    capacity: int | None
    busy: int | None
    doubled: bool = False


@dataclass(frozen=True)
class SimReport:
    """The timing of a program on the machine `hardware`: its number of `instructions` and of multiply-accumulates
    (`macs`), the `cycles` that it takes, and where they go.

    `engines` has the time of each queue, `memories` the use of each memory, by name.

    `utilisation` is the cycles that the multiplier arrays need at peak over the cycles taken. `bytes` are those moved
    between the chip and the external and internal memory, by operand: a, b, out. `lower_bound` is the roofline, the
    cycles of the busiest resource (`bound`: an engine, "port NAME" or "dispatch"); `upper_bound` has everything in
    series; `transfer_cycles` are those of the queue or port that is busiest with transfers. `energy` is in pJ by
    component. `clock_mhz` is None if unknown. `free` is the work that took no time because the description gives no
    rate for it: the amount, by kind of work.
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
        """Time at the machine's clock, None if the clock is unknown."""
        return self.cycles / (self.clock_mhz * 1e6) if self.clock_mhz else None

    @property
    def energy_pj(self) -> float:
        """Energy of the whole run, in pJ."""
        return sum(self.energy.values())

    @property
    def stalls(self) -> dict[str, dict[str, int]]:
        """Stall cycles of each engine, by cause."""
        return {name: engine.stalls for name, engine in self.engines.items()}

    @property
    def roofline(self) -> float:
        """Fraction of the roofline reached: lower bound over cycles."""
        return self.lower_bound / self.cycles if self.cycles else 1.0

    @property
    def intensity(self) -> float | None:
        """Multiply-accumulates per byte moved (arithmetic intensity); None if nothing is moved."""
        moved = sum(self.bytes.values())
        return self.macs / moved if moved else None

    @functools.cached_property
    def overlap(self) -> float:
        """The fraction of busy cycles in which two or more engines are busy."""
        times = np.concatenate([self.timing.start, self.timing.end])
        steps = np.repeat([1, -1], len(self.timing.start))
        order = np.argsort(times, kind="stable")
        lasting = np.diff(times[order])
        at_once = np.cumsum(steps[order])[:-1]
        some = int(lasting[at_once >= 1].sum())
        return int(lasting[at_once >= 2].sum()) / some if some else 0.0

    @functools.cached_property
    def regions(self) -> tuple[RegionTime, ...]:
        """The operators of the source in order."""
        return region_times(self.program, self.timing)

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline in the Chrome trace format: a row per engine. One cycle is shown as one microsecond."""
        save_trace(self.program, self.timing, path)

    def to_dict(self) -> dict[str, Any]:
        """Return every figure as plain values for JSON."""
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
        """Return the report as text: a headline and the limiting resource, then engines, memories and energy as
        tables."""
        lines = headline(self)
        for table in tables(self):
            lines += ["", *aligned(table.headings, table.rows)]
        return "\n".join(lines)


def headline(report: SimReport) -> list[str]:
    """Return the key figures in three lines, and one more for work that the description gives no rate for."""
    time = "" if report.seconds is None else f", {scaled(report.seconds, 's')}"
    moved = ", ".join(f"{name} {count}" for name, count in report.bytes.items())
    lines = [
        f"{report.hardware}: {report.cycles} cycles{time}, utilisation {report.utilisation:.1%}, "
        f"{report.overlap:.1%} of the busy cycles overlapped",
        f"{report.roofline:.1%} of the roofline ({report.lower_bound} cycles of {report.bound}); {report.upper_bound} "
        "cycles without overlap",
        f"{quantity(report.instructions, 'instruction')}, {report.macs} multiply-accumulates, bytes moved: {moved}",
    ]
    return [*lines[:1], *free_work(report), *lines[1:]]


def free_work(report: SimReport) -> list[str]:
    """Return a line that names the work that took no time; empty if the description is complete."""
    if not report.free:
        return []
    work = ", ".join(f"{what} ({amount})" for what, amount in report.free.items())
    return [f"incomplete machine description: it gives no rate for {work}, which took no cycles"]


def tables(report: SimReport) -> list[Table]:
    """Return tables of engines, memories and energy, and of operators if there are several."""
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
    """Return the capacity as shown in the table: a double buffer as 2 x its half, empty without a limit."""
    if use.capacity is None:
        return ""
    return f"2 x {size(use.capacity // 2)}" if use.doubled else size(use.capacity)


def _or_blank(value: int | None) -> int | str:
    return "" if value is None else value
