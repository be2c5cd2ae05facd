"""The products and convolutions of a model that run on an accelerator, as what cuts are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from ...frontend import ImportedModel
from ...hardware.description import Hardware
from ...schedule import Options
from ...workload import ConvWorkload, GemmWorkload
from ..known_cuts import Asked
from ..passes.dataflow import is_op
from .compile import functions_for
from .partition import recorded_operator


@dataclass(frozen=True)
class AcceleratedOperator:
    """A PrimFunc of a model, how often it is called, and the workload that its cut is asked for."""

    name: str
    calls: int
    workload: GemmWorkload | ConvWorkload


def accelerated_operators(
    imported: ImportedModel, hardware: Hardware, calibration: Sequence[Any] | None
) -> list[AcceleratedOperator]:
    """Those of the model in the order of their first calls; errors as those of compile_for_accelerator."""
    mod = functions_for(imported, hardware, calibration)
    values = [binding.value for block in mod["main"].body.blocks for binding in block.bindings]
    calls = Counter(value.args[0] for value in values if is_op(value, "call_tir"))
    found = []
    for variable, count in calls.items():
        asked, func = Asked(), mod[variable]
        if not isinstance(func, tirx.PrimFunc):
            continue
        recorded = recorded_operator(func, variable.name_hint, hardware, Options(cuts=asked))
        if recorded.program is not None and asked.workloads:
            found.append(AcceleratedOperator(variable.name_hint, count, next(iter(asked.workloads))))
    return found
