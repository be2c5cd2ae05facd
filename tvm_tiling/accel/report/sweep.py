"""Sweeps over hardware parameters: the cost and benefit of each combination of values, and the Pareto front."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import HardwareError, nearest
from ...figures import column, percent, quantity
from ...hardware.description import Hardware
from ...hardware.fields import with_field
from ...hardware.machine import Machine
from ..program.program import Program
from ..timing.simulate import Simulation
from .report import SimReport, Table

OBJECTIVES = {
    "cycles": "cycles",
    "energy": "energy",
    "edp": "energy x delay",
    "area": "area, mm²",
}
"""The objectives that a machine can be chosen by, lower being better, with their names in tables."""

MOST_POINTS = 100_000


@dataclass(frozen=True)
class SweepPoint:
    """One machine of a sweep: the `values` of its fields; its `report`, or None if the program does not run on it, with
    the reason in `refused`; its area in square millimetres, or None if the description is invalid."""

    values: Mapping[str, Any]
    report: SimReport | None
    refused: str = ""
    area_mm2: float | None = None

    @property
    def value(self) -> Any:
        """The value of the swept field, or of the first one if there are several."""
        return next(iter(self.values.values()))

    def cost(self, objective: str) -> float:
        """Return the cost by one of OBJECTIVES: cycles, pJ, their product, or square millimetres. Infinite if the
        program does not run."""
        report = self.report
        if report is None or self.area_mm2 is None:
            return float("inf")
        return {
            "cycles": float(report.cycles),
            "energy": report.energy_pj,
            "edp": report.energy_pj * report.cycles,
            "area": self.area_mm2,
        }[objective]

    def to_dict(self) -> dict[str, Any]:
        """Return every figure as plain values for JSON."""
        report = self.report and self.report.to_dict()
        return {"values": dict(self.values), "refused": self.refused, "area_mm2": self.area_mm2, "report": report}


def sweep(
    subject: Program | Callable[[Hardware], Program],
    hardware: Hardware,
    fields: Mapping[str, Iterable[Any]],
    *,
    check: bool = True,
) -> Iterator[SweepPoint]:
    """Time `subject` on `hardware` with each combination of the values of `fields`, given as dotted paths such as
    "near_tile.bw_a". The last field varies fastest.

    A program is used as it is, and refused by SimulationError if it has hazards, unless `check=False`; a function is
    called for the program of each machine. HardwareError for an unknown field, for a value that a single field does not
    accept, and for more than 100,000 combinations. With several fields, an invalid combination is a point without a
    report, as is any machine on which the program does not run.
    """
    machines = [(values, _machine(hardware, values)) for values in _combinations(fields)]
    refusals = [machine for _, machine in machines if isinstance(machine, HardwareError)]
    if len(refusals) == len(machines) or (refusals and len(fields) == 1):
        raise refusals[0]
    recorded = Simulation(subject, check=check) if isinstance(subject, Program) else None
    for values, machine in machines:
        if isinstance(machine, HardwareError):
            yield SweepPoint(values, None, str(machine))
            continue
        area = sum(Machine(machine).area.values())
        try:
            simulation = recorded or Simulation(subject(machine))  # type: ignore[operator]
            yield SweepPoint(values, simulation.on(machine), area_mm2=area)
        except HardwareError as error:
            yield SweepPoint(values, None, str(error), area)


def _combinations(fields: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    ranges = {field: list(values) for field, values in fields.items()}
    count = math.prod(len(values) for values in ranges.values()) if ranges else 0
    if not 0 < count <= MOST_POINTS:
        raise HardwareError(f"sweep: {quantity(count, 'combination')} of values; expected 1 to {MOST_POINTS}")
    return [dict(zip(ranges, values, strict=True)) for values in itertools.product(*ranges.values())]


def _machine(hardware: Hardware, values: Mapping[str, Any]) -> Hardware | HardwareError:
    try:
        for field, value in values.items():
            hardware = with_field(hardware, field, value)
    except HardwareError as error:
        return error
    return hardware


def pareto(points: Sequence[SweepPoint], objectives: Sequence[str]) -> list[SweepPoint]:
    """Return the points that no other point dominates, that is, betters in one objective without being worse in any.
    HardwareError as in check_objectives()."""
    check_objectives(objectives)
    # Rounded, since equal areas that were added up in another order differ in their last bits.
    costs = [tuple(float(f"{point.cost(objective):.12g}") for objective in objectives) for point in points]
    running = sorted((cost for point, cost in zip(points, costs, strict=True) if point.report is not None))
    # In this order a point comes after every point that dominates it, and each dominated point is dominated by one of
    # the front.
    front: list[tuple[float, ...]] = []
    for cost in running:
        if not any(_beats(other, cost) for other in front):
            front.append(cost)
    best = set(front)
    return [p for p, cost in zip(points, costs, strict=True) if p.report is not None and cost in best]


def check_objectives(names: Iterable[str]) -> None:
    """Raise HardwareError for a name that is not in OBJECTIVES."""
    for name in names:
        if name not in OBJECTIVES:
            raise HardwareError(f"pareto: unknown objective {name!r}; {nearest(name, OBJECTIVES)}")


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def sweep_table(points: Sequence[SweepPoint], front: Sequence[SweepPoint] = ()) -> Table:
    """Return a table with a row for each machine; points of the `front`, if given, are marked."""
    fields = list(points[0].values) if points else []
    energies = [None if point.report is None else point.report.energy_pj * 1e-12 for point in points]
    energy, energy_cells = column("energy", energies, "J")
    rows: list[tuple[object, ...]] = []
    best = {id(point) for point in front}
    for point, energy_cell in zip(points, energy_cells, strict=True):
        marks = (("*" if id(point) in best else ""),) if front else ()
        values = (*marks, *point.values.values())
        report = point.report
        if report is None:
            rows.append((*values, "", "", "", "", "", point.refused))
            continue
        figures = (
            report.cycles,
            percent(report.utilisation, 2),
            energy_cell,
            f"{point.area_mm2:.4g}",
            percent(report.roofline),
        )
        rows.append((*values, *figures, report.bound))
    named = (*(("front",) if front else ()), *fields)
    headings = (*named, "cycles", "utilisation", energy, "area, mm²", "of roofline", "bound by")
    return Table("Sweep", headings, rows)
