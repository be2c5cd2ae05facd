"""The page of a sweep: cycles, utilisation, energy and area over one field of a machine description; for several fields
the costs of the variants against each other, with the Pareto front."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..accel.report.report import SimReport
from ..accel.report.sweep import OBJECTIVES, SweepPoint, sweep_table
from ..figures import scaled
from ..hardware.description import Hardware
from .markup import Html
from .page import Section, page, side_by_side, table
from .plot import Axis, Series, plot

SHOWN: tuple[tuple[Axis, Callable[[SimReport], float]], ...] = (
    (Axis("cycles", from_zero=True), lambda report: report.cycles),
    (Axis("utilisation", from_zero=True, unit="%"), lambda report: 100 * report.utilisation),
    (Axis("energy", from_zero=True, unit="J"), lambda report: report.energy_pj * 1e-12),
)
JOULES = {"energy": 1e-12, "edp": 1e-12}
"""Factors of objectives that are in pJ."""
WIDE = 16
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


def sweep_page(
    points: Sequence[SweepPoint],
    subject: str,
    hardware: Hardware,
    objectives: Sequence[str] = (),
    front: Sequence[SweepPoint] = (),
) -> str:
    """Return the whole page. Machines that cannot run the program are in the table only, with the reason.

    `objectives`: the names of OBJECTIVES by which pareto() found the `front`, if any.
    """
    fields = " and ".join(points[0].values)
    note = f"{subject} on {hardware.name}, with {fields} varied."
    one = len(points[0].values) == 1
    sections = []
    if one:
        plots = [_against_the_field(points, axis, value_of) for axis, value_of in SHOWN]
        sections.append(Section("Plots", side_by_side(*plots)))
    if objectives:
        first, *others = objectives
        pairs = [_against_each_other(points, front, first, other) for other in others]
        sections.append(Section("Costs against each other", side_by_side(*pairs) if pairs else None))
        named = ", ".join(OBJECTIVES[name] for name in objectives)
        note += (
            f" {len(front)} of {len(points)} machines are on the Pareto front of {named}: no other machine is better "
            "in one of these and worse in none."
        )
        sections.append(Section("The front", _values(front, ())))
    sections.append(Section("Values", _values(points, front)))
    return page(f"{fields} of {hardware.name}", [note], [], sections)


def _values(points: Sequence[SweepPoint], front: Sequence[SweepPoint]) -> Html | None:
    values = sweep_table(points, front)
    return table(values.headings, values.rows) if values.rows else None


def _against_each_other(points: Sequence[SweepPoint], front: Sequence[SweepPoint], across: str, up: str) -> Html | None:
    """Plot two costs of each machine, with those on the front connected."""
    running = [point for point in points if point.report is not None]
    best = sorted(front, key=lambda point: point.cost(across))
    series = []
    for name, shown, line in (("all", running, False), ("front", best, True)):
        spots = [(_cost(point, across), _cost(point, up)) for point in shown]
        hover = [", ".join(f"{field} {value}" for field, value in point.values.items()) for point in shown]
        series.append(Series(name, spots, line=line, hover=hover))
    x, y = (
        Axis(
            OBJECTIVES[name],
            log=_wide([_cost(point, name) for point in running]),
            unit={"energy": "J", "edp": "J cycles"}.get(name, ""),
        )
        for name in (across, up)
    )
    return plot(f"{y.title} against {x.title}", x, y, series)


def _cost(point: SweepPoint, objective: str) -> float:
    """Convert to joules if it is an energy."""
    return point.cost(objective) * JOULES.get(objective, 1.0)


def _wide(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) >= WIDE * min(values)


def _against_the_field(points: Sequence[SweepPoint], up: Axis, value_of: Callable[[SimReport], float]) -> Html | None:
    supported = [(point.value, value_of(point.report)) for point in points if point.report is not None]
    values = [value for value, _ in supported]
    (field,) = points[0].values
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        axis, places = Axis(field, log=_wide(values)), [float(value) for value in values]
    else:
        axis, places = Axis(field, names=[str(value) for value in values]), [float(n) for n in range(len(values))]
    spots = [(place, y) for place, (_, y) in zip(places, supported, strict=True)]
    hover = [f"{value}: {f'{y:.4g}%' if up.unit == '%' else scaled(y, up.unit, 4)}" for value, y in supported]
    return plot(up.title, axis, up, [Series(up.title, spots, line=True, hover=hover)])
