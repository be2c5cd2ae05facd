"""The page of a sweep: cycles, utilisation and energy against one field of a machine."""

from __future__ import annotations

from ..accel.report.sweep import SweepPoint, sweep_table
from ..hardware.description import Hardware
from .markup import Html
from .page import Section, page, side_by_side, table
from .plot import Axis, Series, plot

SHOWN = (("cycles", "cycles"), ("utilisation", "utilisation"), ("energy_pj", "energy, pJ"))
WIDE = 16
"""From the least to the largest value: from here on the axis is logarithmic."""


def sweep_page(points: list[SweepPoint], subject: str, hardware: Hardware, field: str) -> str:
    """The whole page; values that the machine refuses are in the table alone, with the reason."""
    note = f"{subject} on {hardware.name}, {field} varied; everything else as described."
    plots = [_plot(points, field, name, unit) for name, unit in SHOWN]
    values = sweep_table(points, field)
    rows = [[cell if isinstance(cell, (str, int, float)) else str(cell) for cell in row] for row in values.rows]
    sections = [Section("Plots", side_by_side(*plots)), Section("Values", table(values.headings, rows))]
    return page(f"{field} of {hardware.name}", [note], [], sections)


def _plot(points: list[SweepPoint], field: str, name: str, unit: str) -> Html | None:
    served = [(point.value, float(getattr(point.report, name))) for point in points if point.report is not None]
    values = [value for value, _ in served]
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        wide = bool(values) and min(values) > 0 and max(values) >= WIDE * min(values)
        axis, places = Axis(field, log=wide), [float(value) for value in values]
    else:
        axis, places = Axis(field, names=[str(value) for value in values]), [float(n) for n in range(len(values))]
    spots = [(place, y) for place, (_, y) in zip(places, served, strict=True)]
    told = [f"{value}: {y:.6g}" for value, y in served]
    return plot(unit, axis, Axis(unit, from_zero=True), [Series(unit, spots, line=True, told=told)])
