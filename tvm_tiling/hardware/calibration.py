"""Calibration records: measured values of a CPU, how each was measured, and the spread of its samples.

A description with a table [calibration] has them; values that replace a field of the CPU name that field. They are
checked when a description is constructed, so that a file that is corrupted, or was edited in one place only, is
refused.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import HardwareError
from ..figures import percent
from . import checks
from .cpu import Cpu
from .kernel_costs import KernelCosts

# Accepted values by unit: a value beyond the reach of any CPU of the next decades is a measurement error.
RANGES = {
    "MHz": (100.0, 20_000.0),
    "cycles": (0.01, 1e6),
    "ns": (0.01, 1e7),
    "bytes/cycle": (1e-3, 4096.0),
    "per cycle": (1e-3, 64.0),
    "factor": (1e-3, 1000.0),
}
WHOLE = ("fma_units", "fma_latency")
RATES = (
    "l2_bytes_per_cycle",
    "l3_bytes_per_cycle",
    "memory_bytes_per_cycle",
    "handed_over_bytes_per_cycle",
)
# The fields of a CPU that a calibration may replace, by path; those of tables by table and name.
FIELDS = tuple(f"cpu.{name}" for name in ("clock_mhz", *WHOLE, *RATES))
TABLES = ("cpu.costs", "cpu.dot_rates", "cpu.dot_latencies")
UNITS = {f"cpu.{name}": "bytes/cycle" for name in RATES} | {
    "cpu.clock_mhz": "MHz",
    "cpu.fma_units": "per cycle",
    "cpu.fma_latency": "cycles",
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One measured value in `unit`, the median of `samples` samples.

    `spread` is the interquartile range of the samples relative to their median; `how` says what was measured. `field`
    is the path of the field that has this value, such as "cpu.l2_bytes_per_cycle"; empty for a value that no decision
    uses.
    """

    value: float
    unit: str
    spread: float
    samples: int
    how: str
    field: str = ""

    def __post_init__(self) -> None:
        unit = checks.one_of("calibration", "unit", self.unit, RANGES)
        least, most = RANGES[unit]
        if not checks.is_finite(self.value) or not least <= self.value <= most:
            raise HardwareError(
                f"calibration: value = {self.value!r}; expected a measured number of {unit} from {least:g} to {most:g}"
            )
        checks.put(self, "spread", checks.at_least_zero("calibration", "spread", self.spread))
        checks.whole("calibration", "samples", self.samples)
        for name in ("how", "field"):
            if not checks.text("calibration", name, getattr(self, name)).isprintable():
                raise HardwareError(f"calibration: {name} = {getattr(self, name)!r}; expected printable text")
        if unit != UNITS.get(self.field, unit):
            raise HardwareError(f"calibration: unit of {self.field} = {unit!r}; expected {UNITS[self.field]!r}")
        if self.field and self.field not in FIELDS and self.field.rpartition(".")[0] not in TABLES:
            expected = ", ".join((*FIELDS, *(f"{table}.NAME" for table in TABLES)))
            raise HardwareError(f"calibration: field {self.field!r} cannot be measured; expected {expected}")


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The values `measured` on one machine by name; `machine` is its key (hardware/this_machine.py).

    The measurement took `seconds` on `date` (2026-01-31). `other_work` is the fraction of the cores' time that other
    processes took meanwhile; None: unknown.
    """

    machine: str
    date: str
    seconds: float
    other_work: float | None = None
    measured: dict[str, Measured] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{16}", checks.text("calibration", "machine", self.machine)):
            raise HardwareError(f"calibration: machine = {self.machine!r}; expected 16 hexadecimal digits")
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", checks.text("calibration", "date", self.date)):
            raise HardwareError(f"calibration: date = {self.date!r}; expected a date such as 2026-01-31")
        checks.put(self, "seconds", checks.number("calibration", "seconds", self.seconds))
        if self.other_work is not None and not (checks.is_finite(self.other_work) and 0 <= self.other_work <= 1):
            raise HardwareError(f"calibration: other_work = {self.other_work!r}; expected a fraction from 0 to 1")
        measured = checks.table("calibration", "measured", self.measured)
        if not measured:
            raise HardwareError("calibration: measured is empty; expected at least one measured value")
        for name, value in measured.items():
            if not isinstance(value, Measured):
                raise HardwareError(f"calibration: measured.{name} = {value!r}; expected a Measured")
            if not name.isprintable():
                raise HardwareError(f"calibration: measured has the name {name!r}; expected printable text")
        given = [value.field for value in measured.values() if value.field]
        if twice := sorted(path for path in set(given) if given.count(path) > 1):
            raise HardwareError(f"calibration: {twice[0]} is measured twice; expected one entry per field")

    def apply(self, cpu: Cpu) -> Cpu:
        """Return `cpu` with the measured values in the fields that they name."""
        plain: dict[str, Any] = {}
        tables: dict[str, dict[str, Any]] = {}
        for measured in self.measured.values():
            table, _, name = measured.field.rpartition(".")
            if table == "cpu":
                plain[name] = _number(measured, name)
            elif table:
                tables.setdefault(table.removeprefix("cpu."), {})[name] = _number(measured, name)
        for name in ("dot_rates", "dot_latencies"):
            if name in tables:
                plain[name] = {**getattr(cpu, name), **tables[name]}
        if "costs" in tables:
            checks.known_fields("calibration: cpu.costs", tables["costs"], KernelCosts)
            plain["costs"] = dataclasses.replace(cpu.kernel_costs, **tables["costs"])
        replaced = {f"cpu.{name}" for name in plain}
        assumed = tuple(name for name in cpu.assumed if f"cpu.{name}" not in replaced)
        return dataclasses.replace(cpu, **plain, assumed=assumed)

    def check(self, cpu: Cpu) -> None:
        """Raise HardwareError if a field of `cpu` differs from the value that was measured for it."""
        applied = self.apply(cpu)
        for name, measured in self.measured.items():
            if measured.field and _value(cpu, measured.field) != (expected := _value(applied, measured.field)):
                raise HardwareError(
                    f"{measured.field} = {_value(cpu, measured.field)!r} differs from calibration.measured.{name}; "
                    f"expected {expected!r}, or no such entry in [calibration.measured]"
                )

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the name and text of every measured value, with its spread and how it was measured."""
        yield "machine", f"{self.machine}, {self.date}, {self.seconds:g} s"
        if self.other_work is not None:
            yield "other_work", percent(self.other_work, 1)
        for name, found in self.measured.items():
            text = f"{found.value:g} {found.unit}, spread {percent(found.spread, 0)}: {found.how}"
            yield name, f"{text}; {found.field}" if found.field else text

    @property
    def label(self) -> str:
        """Return the calibration in a few words, for reports."""
        return f"calibrated {self.date}"


def _number(measured: Measured, name: str) -> float | int:
    return max(1, round(measured.value)) if name in WHOLE else measured.value


def _value(cpu: Cpu, path: str) -> Any:
    found: Any = cpu
    for word in path.split(".")[1:]:
        if word == "costs":
            found = found.kernel_costs
        else:
            found = found.get(word) if isinstance(found, dict) else getattr(found, word)
    return found
