"""The operations that an operator executes, and the peak rate of the multipliers for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model.report import OperatorRecord
from ..workload import ConvWorkload
from .timed_model import workload_of

BYTE_TYPES = ("int8", "uint8")


def executed_flops(record: OperatorRecord) -> int:
    """Operations that all calls in one run execute: `flops` as defined by the model, but for a Winograd convolution
    those of its transformed matrix multiplications, which are fewer. Its transforms are not counted."""
    winograd = (record.decision or {}).get("winograd") if record.form == "winograd" else None
    workload = workload_of(record) if winograd else None
    if not winograd or not isinstance(workload, ConvWorkload):
        return record.flops
    m, points = winograd["m"], winograd["points"]
    tiles = workload.n * -(-workload.ho // m) * -(-workload.wo // m)
    return 2 * points * points * tiles * workload.ci * workload.co * record.calls


def peak_of(peak: Mapping[str, Any] | None, dtype: str) -> float | None:
    """Peak operations per second of the multipliers for this operand type, as measured; None if it was not measured."""
    if peak is None:
        return None
    found = peak.get("gops_int8") if dtype in BYTE_TYPES else peak.get("gflops_half", {}).get(dtype, peak["gflops"])
    return None if not found else 1e9 * float(found)


def type_of(record: OperatorRecord) -> str:
    """Type of the operands; float32 for operators without a workload."""
    return str((record.workload or {}).get("dtype", "float32"))


def peak_seconds(record: OperatorRecord, peak: Mapping[str, Any] | None) -> float | None:
    """Seconds that the operator's executed operations take at the peak of their type; None if that is unknown."""
    most = peak_of(peak, type_of(record))
    return None if most is None else executed_flops(record) / most
