"""Content of a model's page as plain values: a report with the machine, its peaks and the spread of the times.

`tvm-tiling report --json` and `bench MODEL --json` write it, and `tvm-tiling report FILE.json` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ModelFormatError, TilingError
from ..model.graph import GraphStep
from ..model.precision.record import FLOAT32, PrecisionRecord
from ..model.profile import Profile
from ..model.report import LATENCY, Memory, OperatorRecord, Report
from ..tuning.shapes.key import Workload, workload_from_dict
from ..workload import GemmWorkload

FORMAT, VERSION, READABLE = "tvm-tiling-model", 2, (1, 2)  # operators of 1 have no nodes


@dataclass(frozen=True, kw_only=True)
class TimedModel:
    """A model's report under its name. `spread` (seconds) and `runs` are None if it was not measured, `latency`
    (percentiles in seconds, throughput in runs per second) also if an earlier version measured it. `machine` is a
    machine_record(), `peak` a Peak as plain values; `rival` is the result of onnxruntime."""

    name: str
    report: Report
    machine: Mapping[str, Any]
    peak: Mapping[str, Any] | None = None
    spread: float | None = None
    runs: int | None = None
    latency: Mapping[str, float] | None = None
    rival: Mapping[str, Any] | None = None
    profile: Profile | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.name,
            **self.report.to_dict(),
            "spread": self.spread,
            "runs": self.runs,
            **{name: (self.latency or {}).get(name) for name in LATENCY},
            "machine": self.machine,
            "peak": self.peak,
            "onnxruntime": self.rival,
            "profile": None if self.profile is None else self.profile.to_dict(),
        }


def timed_from_dict(plain: Mapping[str, Any], where: str) -> TimedModel:
    """Return the object from what `to_dict` wrote. Raises ModelFormatError with the file `where` for anything else."""
    try:
        operators = [{key: value for key, value in o.items() if key != "share"} for o in plain["operators"]]
        memory = {key: value for key, value in plain["memory"].items() if key != "total"}
        report = Report(
            operators=tuple(OperatorRecord.from_dict(operator) for operator in operators),
            seconds=plain["seconds"],
            memory=Memory(**memory),
            compile_seconds=plain["compile_seconds"],
            others=plain.get("others"),
            graph=tuple(map(GraphStep.from_dict, plain.get("graph", ()))),
            precision=PrecisionRecord.from_dict(plain["precision"]) if "precision" in plain else FLOAT32,
        )
        latency = {name: plain[name] for name in LATENCY if plain.get(name) is not None}
        return TimedModel(
            name=plain["model"],
            report=report,
            machine=plain["machine"],
            peak=plain["peak"],
            spread=plain["spread"],
            runs=plain["runs"],
            latency=latency if len(latency) == len(LATENCY) else None,
            rival=plain["onnxruntime"],
            profile=None if plain.get("profile") is None else Profile.from_dict(plain["profile"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFormatError(
            f"{where} is corrupted: {type(error).__name__} {error}; expected what `tvm-tiling report --json` wrote"
        ) from None


def workload_of(record: OperatorRecord) -> Workload | None:
    """Return the workload of a convolution or matrix multiplication; None for other operators and for records without
    one."""
    if record.workload is None:
        return None
    try:
        return workload_from_dict(record.workload)
    except TilingError:
        return None


def workload_text(workload: Workload | None) -> str:
    """Format sizes for display: "56 × 56 × 64 → 64, 3 × 3 / 2" or "128 × 768 × 3072 (m × k × n)"; empty without a
    workload."""
    if workload is None:
        return ""
    if isinstance(workload, GemmWorkload):
        many = f"{workload.batch} of " if workload.batch > 1 else ""
        return f"{many}{workload.m} × {workload.k} × {workload.n} (m × k × n)"
    w = workload
    many = f"{w.n} of " if w.n > 1 else ""
    stride = "" if set(w.stride) == {1} else f" / {w.stride[0]}"
    groups = f", {w.groups} groups" if w.groups > 1 else ""
    return f"{many}{w.h} × {w.w} × {w.ci} → {w.co}, {w.kh} × {w.kw}{stride}{groups}"
