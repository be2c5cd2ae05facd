"""Calibration of this machine: every measurement in order, the check that the machine is idle, and the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from ..errors import HardwareError, TilingError
from ..figures import percent
from ..hardware.calibration import Calibration
from ..hardware.description import Hardware
from ..hardware.this_machine import machine_key
from ..other_work import BUSY, OtherWork
from ..runtime.launcher import use_all_cores
from ..schedule import llvm_target
from .arithmetic import measure_clock, measure_instructions
from .bench import Bench
from .cores import measure_edges, measure_threads, measure_transfer
from .memory import measure_levels, measure_lines_and_pages

IDLE_SECONDS = 1.0  # duration of the check before measuring

Step = tuple[str, Callable[[Bench], None]]


class BusyMachine(TilingError):
    """Other processes use the cores, which would distort the measured values."""


@dataclass(frozen=True)
class Result:
    """The calibrated machine, and what could not be measured, with the reason."""

    hardware: Hardware
    skipped: dict[str, str]

    @property
    def calibration(self) -> Calibration:
        """The measured values."""
        assert self.hardware.calibration is not None
        return self.hardware.calibration


def steps(cores: int) -> list[Step]:
    """Return the measurements with their names; those between cores only if there are several."""
    single: list[Step] = [
        ("clock under load", measure_clock),
        ("multiply-adds and dot instructions", measure_instructions),
        ("vectors across cache lines, rows across pages", measure_lines_and_pages),
        ("overhead of register tiles", measure_edges),
    ]
    several: list[Step] = [
        ("cross-core cache-line transfers", measure_transfer),
        ("start and join of threads", measure_threads),
    ]
    return [*single, *(several if cores > 1 else []), ("caches and memory", measure_levels)]


def calibrate(*, busy: bool = False, scale: float = 1.0, announce: Callable[[str], None] = lambda text: None) -> Result:
    """Measure this machine, in half a minute to a minute; `scale` multiplies the time of every sample series.

    Raises BusyMachine if other processes take more than BUSY of the cores' time before or during the measurement,
    unless `busy`. `announce` is called with the name of every step.
    """
    plain = Hardware.detect(calibrated=False)
    assert plain.cpu is not None
    if not busy:
        announce("checking that the machine is idle")
        with OtherWork() as before:
            time.sleep(IDLE_SECONDS)
        _refuse(before.share, "take")
    if use_all_cores(plain.cpu.cores) < plain.cpu.cores:
        raise HardwareError(
            f"TVM's thread pool in this process has fewer threads than the {plain.cpu.cores} usable cores; expected a "
            "process that has not run any kernel"
        )
    bench = Bench(plain.cpu, llvm_target(plain), scale)
    start = time.perf_counter()
    with OtherWork() as work:
        for name, measure in steps(plain.cpu.cores):
            announce(name)
            measure(bench)
    if not busy:
        _refuse(work.share, "took")
    calibration = Calibration(
        machine=machine_key(plain.cpu),
        date=datetime.now(timezone.utc).date().isoformat(),
        seconds=max(0.1, round(time.perf_counter() - start, 1)),
        other_work=None if work.share is None else round(work.share, 4),
        measured=bench.found,
    )
    return Result(replace(plain, cpu=calibration.apply(plain.cpu), calibration=calibration), bench.skipped)


def _refuse(share: float | None, took: str) -> None:
    """Raise BusyMachine if other processes used too much of the cores' time."""
    if share is not None and share > BUSY:
        raise BusyMachine(
            f"other processes {took} {percent(share, 0)} of the cores' time; expected at most {percent(BUSY, 0)}; "
            "use busy=True to calibrate anyway"
        )
