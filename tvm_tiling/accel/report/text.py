"""A simulation report in words and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..timing.event_loop import CAUSES
from .table import Table

if TYPE_CHECKING:
    from .report import SimReport


def headline(report: SimReport) -> list[str]:
    """What matters most, in three lines."""
    time = "" if report.seconds is None else f", {report.seconds * 1e6:.6g} us"
    moved = ", ".join(f"{name} {count}" for name, count in report.bytes.items())
    return [
        f"{report.hardware}: {report.cycles} cycles{time}, utilisation {report.utilisation:.1%}, "
        f"{report.overlap:.1%} of the busy cycles overlapped",
        f"{report.roofline:.1%} of the roofline ({report.lower_bound} cycles of {report.bound}); {report.upper_bound} "
        "cycles in series",
        f"{report.instructions} instructions, {report.macs} multiply-accumulates, bytes moved: {moved}",
    ]


def summary(report: SimReport) -> str:
    """See :meth:`tvm_tiling.accel.report.report.SimReport.summary`."""
    lines = headline(report)
    for table in tables(report):
        lines += ["", *aligned(table.headings, table.rows)]
    return "\n".join(lines)


def tables(report: SimReport) -> list[Table]:
    """Engines, memories, energy, and operators where there are several."""
    engines = [
        (name, time.instructions, time.busy, *(time.stalls[cause] for cause in CAUSES), time.idle)
        for name, time in report.engines.items()
    ]
    memories = [
        (name, use.read, use.written, use.peak, _or_blank(use.capacity), _or_blank(use.busy))
        for name, use in report.memories.items()
    ]
    waits = tuple(f"waits: {cause}" for cause in CAUSES)
    found = [
        Table("Engines, in cycles", ("engine", "instructions", "busy", *waits, "idle"), engines),
        Table(
            "Memories",
            ("memory", "bytes read", "bytes written", "peak bytes", "capacity", "port busy"),
            memories,
        ),
    ]
    total = report.energy_pj
    if total:
        shares = [(name, f"{spent:.4g}", f"{spent / total:.1%}") for name, spent in report.energy.items()]
        found.append(Table("Energy", ("energy", "pJ", "share"), [*shares, ("all", f"{total:.4g}", "100.0%")]))
    if len(report.regions) > 1:
        rows = [(r.name, r.workload, r.instructions, r.start, r.end, r.macs) for r in report.regions]
        found.append(Table("Operators", ("operator", "workload", "instructions", "from", "to", "MAC"), rows))
    return found


def _or_blank(value: int | None) -> int | str:
    return "" if value is None else value


def aligned(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Columns of equal width, words to the left, numbers to the right."""
    cells = [[str(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(headings))]
    words = [not any(isinstance(row[place], (int, float)) for row in rows) for place in range(len(headings))]
    return [
        "  ".join(
            cell.ljust(width) if word else cell.rjust(width)
            for cell, width, word in zip(row, widths, words, strict=True)
        ).rstrip()
        for row in cells
    ]
