"""A model's graph in the types of a precision: "float32", "bfloat16", "float16" or "int8"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import WorkloadError
from ...frontend import ImportedModel
from ...hardware import Hardware
from ...hardware.dot_instructions import fastest
from ...operand_types import HALVES
from ..kernel_cache import KernelCache
from ..pipeline import straight
from ..quantise.graph import is_product, with_quantised_products
from ..quantise.integers import holds_quantised, with_integers_on_cpu
from .half import in_half


@dataclass(frozen=True)
class Written:
    """A model in the types of a precision. `left`: nodes that multiply by weights in floats, since 8 bits keep too
    little of what they take."""

    model: ImportedModel
    left: tuple[str, ...] = ()


def in_precision(
    imported: ImportedModel,
    precision: str,
    hardware: Hardware,
    calibration: Sequence[Any] | None,
    cache: KernelCache | None = None,
) -> Written:
    """`imported` for a machine; its inputs and outputs keep their types.

    `calibration` is needed for "int8", for which the model is run with kernels that `cache` holds, or that are
    compiled. WorkloadError where it is no input of the model, or the model has nothing in float32 to quantise.
    """
    if precision == "float32":
        return Written(imported)
    mod = straight(imported.module)
    if precision in HALVES:
        engine = None if hardware.cpu is None else fastest(hardware.cpu, precision, precision, "float32")
        dots = engine is not None and not engine.in_place
        return Written(replace(imported, module=in_half(with_integers_on_cpu(mod), precision, dots=dots)))
    if holds_quantised(mod):
        raise WorkloadError("precision = 'int8': the model is quantised already; accepted: 'float32', as it is then")
    if not any(is_product(binding.value) for block in mod["main"].body.blocks for binding in block.bindings):
        raise WorkloadError(
            "precision = 'int8': the model multiplies nothing by float32 weights; accepted: one that does, 'float32'"
        )
    if calibration is None:
        raise WorkloadError(
            "precision = 'int8' takes the ranges of tensors from calibration=[inputs]; accepted: one or more inputs"
        )
    quantised, left = with_quantised_products(imported, mod, calibration, cache)
    return Written(replace(imported, module=quantised), left)
