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
from .report import SimReport, Table


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
    subject: Program | Callable[[Hardware], Program],
    hardware: Hardware,
    field: str,
    values: Iterable[Any],
    *,
    check: bool = True,
) -> Iterator[SweepPoint]:
    """Time `subject` on `hardware` with `field` (a dotted path such as "near_tile.bw_a") at each of `values`, in turn.

    A program stays as it is, and is refused by SimulationError if it has hazards, unless `check=False`; a function is
    asked for the program of each machine. HardwareError for a field that is
    not there or a value that it does not take; a machine on which the program does not run is a point without report.
    """
    recorded = Simulation(subject, check=check) if isinstance(subject, Program) else None
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
