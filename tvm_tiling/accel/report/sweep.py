"""One field of a machine over a range of values: what it costs and buys (page 06)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...errors import HardwareError
from ...hardware.description import Hardware
from ...hardware.fields import with_field
from ..program.program import Program
from ..timing.simulate import Simulation
from .html import Table, page
from .report import SimReport

SHOWN = ("cycles", "utilisation", "energy_pj")
"""What is plotted against the field."""


@dataclass(frozen=True)
class SweepPoint:
    """One value of the field: its report, or why the program does not run on such a machine."""

    value: Any
    report: SimReport | None
    refused: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Every figure as plain values for JSON."""
        return {"value": self.value, "refused": self.refused, "report": self.report and self.report.to_dict()}


def sweep(
    subject: Program | Callable[[Hardware], Program], hardware: Hardware, field: str, values: Iterable[Any]
) -> Iterator[SweepPoint]:
    """Time `subject` on `hardware` with `field` (a dotted path such as "near_tile.bw_a") at each of `values`, in turn.

    A program stays as it is; a function is asked for the program of each machine. HardwareError for a field that is
    not there or a value that it does not take; a machine on which the program does not run is a point without report.
    """
    recorded = Simulation(subject) if isinstance(subject, Program) else None
    machines = [(value, with_field(hardware, field, value)) for value in values]
    for value, machine in machines:
        try:
            simulation = recorded or Simulation(subject(machine))  # type: ignore[operator]
            yield SweepPoint(value, simulation.on(machine))
        except HardwareError as error:
            yield SweepPoint(value, None, str(error))


def sweep_table(points: list[SweepPoint], field: str) -> Table:
    """A row for each value."""
    rows: list[tuple[object, ...]] = []
    for point in points:
        report = point.report
        if report is None:
            rows.append((point.value, "", "", "", "", point.refused))
            continue
        figures = (report.cycles, f"{report.utilisation:.2%}", f"{report.energy_pj:.4g}", f"{report.roofline:.1%}")
        rows.append((point.value, *figures, report.bound))
    return Table("Sweep", (field, "cycles", "utilisation", "energy pJ", "of roofline", "bound by"), rows)


def sweep_page(points: list[SweepPoint], subject: str, hardware: Hardware, field: str) -> str:
    """The sweep as an HTML page: cycles, utilisation and energy against the field, and the table."""
    notes = [f"{subject} on {hardware.name}, {field} varied; everything else as described."]
    figures = [_figure(points, field, shown) for shown in SHOWN]
    return page(f"{field} of {hardware.name}", notes, [sweep_table(points, field)], figures)


def _figure(points: list[SweepPoint], field: str, shown: str) -> dict[str, Any]:
    served = [point for point in points if point.report is not None]
    values = [point.value for point in served]
    numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    wide = numeric and values and min(values) > 0 and max(values) >= 16 * min(values)
    axis = {"type": "log" if wide else "linear" if numeric else "category", "title": {"text": field}}
    line = {"type": "scatter", "mode": "lines+markers", "name": shown, "x": values}
    unit = {"cycles": "cycles", "utilisation": "utilisation", "energy_pj": "energy, pJ"}[shown]
    layout = {"title": {"text": unit}, "xaxis": axis, "yaxis": {"rangemode": "tozero", "title": {"text": unit}}}
    return {"data": [{**line, "y": [getattr(point.report, shown) for point in served]}], "layout": layout}
