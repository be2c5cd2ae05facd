"""A model's run with everything that its page and its JSON hold: the report, the machine and its peaks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..hardware import Hardware
from .output import working

if TYPE_CHECKING:
    from ..model.report import Benchmark, Report
    from ..report.timed_model import TimedModel


def timed_model(path: str, report: Report, measured: Benchmark, rival: Mapping[str, Any] | None = None) -> TimedModel:
    """Measures this machine's peaks, in some two seconds. `rival`: what onnxruntime took beside it."""
    from ..measure import machine_record
    from ..peak import measure_peak
    from ..report.timed_model import TimedModel
    from ..schedule import llvm_target

    machine = Hardware.detect()
    assert machine.cpu is not None
    with working("measuring this machine's peaks"):
        peak = measure_peak(machine.cpu, llvm_target()).to_dict()
    return TimedModel(
        name=Path(path).name,
        report=report,
        machine=machine_record(machine),
        peak=peak,
        spread=measured.spread,
        runs=measured.runs,
        rival=rival,
    )
