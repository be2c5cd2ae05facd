"""`tvm-tiling hardware --calibrate`: measure this machine and keep the result."""

from __future__ import annotations

from pathlib import Path

import typer

from ..atomic_file import atomic_file, refuse_unwritable
from ..calibrate.calibrate import Result, calibrate, steps
from ..hardware import Hardware
from ..hardware.this_machine import VARIABLE, calibrations
from ..other_work import doubt
from .output import stepping
from .table import print_table


def run(output: Path | None, busy: bool) -> None:
    """Measure, print every value with its spread, and write `output` or the file that Hardware.detect() looks for."""
    plain = Hardware.detect(calibrated=False)
    assert plain.cpu is not None
    if output is not None:
        refuse_unwritable(output)
    else:
        calibrations().mkdir(parents=True, exist_ok=True)
    with stepping(len(steps(plain.cpu.cores)) + 1) as step:
        result = calibrate(busy=busy, announce=step)
    path = output or calibrations() / f"{result.calibration.machine}.toml"
    with atomic_file(path) as file:
        file.write(result.hardware.to_toml().encode())
    _print(result)
    if output is None:
        print(f"\nwritten to {path}; descriptions of this machine use it unless {VARIABLE} is off or names a file")
    else:
        print(f"\nwritten to {path}; {VARIABLE}={path} or --target {path} uses it")
    if warning := doubt(result.calibration.other_work):
        typer.echo(warning, err=True)


def _print(result: Result) -> None:
    rows = list(result.calibration.rows())
    rows += [(name, f"not measured: {why}") for name, why in result.skipped.items()]
    print(result.hardware.label)
    print_table(("measured", "value"), rows)
