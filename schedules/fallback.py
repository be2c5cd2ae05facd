"""Operators other than matrix multiplications and convolutions: scheduled by stages if possible, else by plain parallel
loops."""

from __future__ import annotations

from collections.abc import Collection

import tvm
from tvm import tirx

from ..decide.vector.attention import AttentionTiling
from ..errors import HardwareError, UnsupportedOperator
from ..hardware.description import Cpu, Hardware
from ..lowering.named_extents import with_named_extents
from ..lowering.samples import is_open, samples_beside
from ..match.stages import size_variables, stages_of
from ..match.truth import with_logic
from . import attention_rules, elementwise, plain_loops, reduction
from .described import schedule_described


def schedule_fallback(func: tirx.PrimFunc, name: str, hardware: Hardware) -> tirx.PrimFunc:
    """Return a schedule of any function in scheduled TIR: element-wise operators, data movement, reductions, pooling,
    normalisation, attention, recurrences, and matrix multiplications with block-quantised weights.

    `name` becomes the function's global symbol. Functions that no rule supports are returned unchanged. The decision is
    stored in the attribute "tvm_tiling.decision". Raises HardwareError if the machine has no CPU.
    """
    described = schedule_described(func, name, hardware.cpu, lambda _: False) if hardware.cpu is not None else None
    if described is not None:
        return described.main
    return decide_fallback(func, name, hardware)[0]


def decide_fallback(func: tirx.PrimFunc, name: str, hardware: Hardware) -> tuple[tirx.PrimFunc, AttentionTiling | None]:
    """Return the same schedule, and the decision if it is attention, whose work is counted like that of matrix
    multiplications."""
    if hardware.cpu is None:
        raise HardwareError(f"{hardware.name} has no CPU; expected a hardware description with a [cpu] table")
    func = with_logic(func)
    numbers = size_variables(func).intersection(func.params)
    func, sizes = with_named_extents(func)
    with samples_beside(sizes):
        return _decided(func, name, hardware.cpu, numbers)


def _decided(
    func: tirx.PrimFunc, name: str, cpu: Cpu, numbers: Collection[tirx.Var]
) -> tuple[tirx.PrimFunc, AttentionTiling | None]:
    try:
        program = stages_of(func, name, numbers)
    except UnsupportedOperator:
        return plain_loops.apply(func, name, cpu), None
    plain = elementwise.apply(program, cpu)
    if plain is not None:
        return plain, None
    fused = attention_rules.apply(program, cpu)
    if fused is not None:
        return fused
    try:
        return reduction.apply(program, cpu), None
    except tvm.error.InternalError:
        if not any(is_open(extent) for parameter in func.params for extent in getattr(parameter, "shape", ())):
            raise
        # TVM's simplifier fails for some quotients of symbolic sizes, such as windows over images of any size.
        return plain_loops.apply(func, name, cpu), None
