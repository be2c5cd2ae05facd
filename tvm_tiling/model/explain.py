"""The decisions for a model's operators with their reasons, without compiling or running anything."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..decide.conv.winograd import TOLERANCE
from ..errors import HardwareError, WorkloadError
from ..frontend import load_model
from ..limits import Limits
from ..operand_types import HALVES
from ..schedule import Options, Target, hardware_of
from .open_sizes import Sizes, settings_of
from .operators import record_of
from .pipeline import decided
from .precision.graphs import in_precision
from .report import OperatorRecord
from .signature import Signature


@dataclass(frozen=True)
class Explanation:
    """One variant of a model: its inputs and outputs, and its operators with their decisions, in execution order.
    `parts`: a run computes the batch in this many parts, one after the other. `read_seconds` and `decide_seconds`:
    seconds to import the model and to decide."""

    signature: Signature
    operators: tuple[OperatorRecord, ...]
    parts: int = 1
    read_seconds: float = field(default=0.0, compare=False)
    decide_seconds: float = field(default=0.0, compare=False)

    @property
    def predicted_seconds(self) -> float:
        """Predicted latency of one run, from its convolutions and matrix multiplications; the others have no
        prediction."""
        return sum(operator.predicted_seconds or 0.0 for operator in self.operators)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "predicted_seconds": self.predicted_seconds,
            "signature": asdict(self.signature),
            **({"parts": self.parts} if self.parts > 1 else {}),
            "operators": [asdict(operator) for operator in self.operators],
        }


def explain_model(
    model: Any,
    target: Target = "llvm",
    params: Mapping[str, Any] | None = None,
    *,
    batch: Sizes | None = None,
    dims: Mapping[str, Sizes] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    winograd: bool = True,
    tolerance: float = TOLERANCE,
    precision: str = "float32",
    deterministic: bool = False,
    limits: Limits | None = None,
) -> list[Explanation]:
    """Decide on every operator of a model, for each of its variants; arguments and errors as in compile().

    Nothing is executed, so `precision` is "float32", "bfloat16" or "float16"; for others see the decisions of a
    compiled model.
    """
    if precision not in ("float32", *HALVES):
        raise WorkloadError(
            f"precision = {precision!r} depends on running the model; expected 'float32', {HALVES[0]!r}, "
            f"{HALVES[1]!r}, or a model compiled with it"
        )
    hardware = hardware_of(target)
    if hardware.cpu is None:
        raise HardwareError(f"{hardware.name} has no CPU; models are compiled for CPUs")
    options = Options(winograd=winograd, tolerance=tolerance, deterministic=deterministic)
    explanations = []
    for setting in settings_of(batch, dims):
        start = time.perf_counter()
        imported = load_model(
            model, shapes=shapes, batch=setting.batch, dims=setting.dims, params=params, limits=limits, leave_open=True
        )
        read = time.perf_counter()
        with imported.at_sample():
            found = decided(in_precision(imported, precision, hardware, None).model.module, hardware, options)
            records, done = tuple(map(record_of, found.operators)), time.perf_counter()
            explanations.append(Explanation(Signature.of(imported), records, found.parts, read - start, done - read))
    return explanations
