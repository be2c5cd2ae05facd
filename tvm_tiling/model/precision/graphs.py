"""Conversion of a model's graph to the types of a precision: "float32", "bfloat16", "float16" or "int8"."""

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
    """A model in the types of a precision. `left`: nodes with float matrix multiplications or convolutions, because
    their inputs lose too much accuracy in 8 bits."""

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

    `calibration` is required for "int8", for which the model is executed with kernels from `cache`, or newly compiled
    ones. Raises WorkloadError if it does not match the model, or the model has nothing to quantise in float32.
    """
    if precision == "float32":
        return Written(imported)
    mod = straight(imported.module)
    if precision in HALVES:
        engine = None if hardware.cpu is None else fastest(hardware.cpu, precision, precision, "float32")
        dots = engine is not None and not engine.in_place
        return Written(replace(imported, module=in_half(with_integers_on_cpu(mod), precision, dots=dots)))
    if holds_quantised(mod):
        raise WorkloadError(
            "precision = 'int8': the model is already quantised; expected 'float32', which keeps it as it is"
        )
    if not any(is_product(binding.value) for block in mod["main"].body.blocks for binding in block.bindings):
        raise WorkloadError(
            "precision = 'int8': the model has no matrix multiplications or convolutions by float32 weights; "
            "expected a model that has, or 'float32'"
        )
    if calibration is None:
        raise WorkloadError(
            "precision = 'int8' requires calibration=[inputs] for the ranges of tensors; expected one or more inputs"
        )
    quantised, left = with_quantised_products(imported, mod, calibration, cache)
    return Written(replace(imported, module=quantised), left)
