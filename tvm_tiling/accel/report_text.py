"""A simulation report as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .event_loop import CAUSES

if TYPE_CHECKING:
    from .report import SimReport


def summary(report: SimReport) -> str:
    """See :meth:`tvm_tiling.accel.report.SimReport.summary`."""
    time = "" if report.seconds is None else f", {report.seconds * 1e6:.6g} us"
    lines = [
        f"{report.hardware}: {report.cycles} cycles{time}, utilisation {report.utilisation:.1%}, "
        f"{report.roofline:.1%} of the roofline ({report.bound}: {report.lower_bound} cycles; in series "
        f"{report.upper_bound}), {report.overlap:.1%} overlapped",
        f"{report.instructions} instructions, {report.macs} multiply-accumulates, bytes moved: "
        + ", ".join(f"{name} {count}" for name, count in report.bytes.items()),
    ]
    for headings, rows in tables(report):
        lines += ["", *_aligned(headings, rows)]
    return "\n".join(lines)


def tables(report: SimReport) -> list[tuple[Sequence[str], list[Sequence[object]]]]:
    """Headings and rows of each table: engines, memories, energy, operators where there are several."""
    engines = [
        (name, time.instructions, time.busy, *(time.stalls[cause] for cause in CAUSES), time.idle)
        for name, time in report.engines.items()
    ]
    memories = [
        (
            name,
            use.read,
            use.written,
            use.peak,
            "" if use.capacity is None else use.capacity,
            "" if use.busy is None else use.busy,
        )
        for name, use in report.memories.items()
    ]
    total = report.energy_pj
    energy = [(name, f"{spent:.4g}", f"{spent / total:.1%}") for name, spent in report.energy.items() if total]
    found: list[tuple[Sequence[str], list[Sequence[object]]]] = [
        (("engine", "instructions", "busy", *(f"waits: {cause}" for cause in CAUSES), "idle"), [*engines]),
        (("memory", "bytes read", "bytes written", "peak bytes", "capacity", "port busy"), [*memories]),
    ]
    if energy:
        found.append((("energy", "pJ", "share"), [*energy, ("all", f"{total:.4g}", "100.0%")]))
    if len(report.regions) > 1:
        rows = [(r.name, r.workload, r.instructions, r.start, r.end, r.macs) for r in report.regions]
        found.append((("operator", "workload", "instructions", "from", "to", "MAC"), [*rows]))
    return found


def _aligned(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
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
