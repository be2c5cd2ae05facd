"""Whatever is neither a product nor a convolution: by stages where it has them, else by plain parallel loops."""

from __future__ import annotations

import tvm
from tvm import tirx

from ..decide.vector.attention import AttentionTiling
from ..errors import HardwareError, UnsupportedOperator
from ..hardware.description import Hardware
from ..lowering.samples import is_open
from ..match.stages import stages_of
from ..match.truth import with_logic
from . import attention_rules, elementwise, plain_loops, reduction
from .told import schedule_told


def schedule_fallback(func: tirx.PrimFunc, name: str, hardware: Hardware) -> tirx.PrimFunc:
    """A schedule of any function of scheduled TIR: element-wise work, data movement, reductions, pooling, norms,
    attention, recurrences, products of weights in blocks.

    `name` becomes the function's global symbol. Functions that no rule serves come back as they are. The decision is
    in the attribute "tvm_tiling.decision". HardwareError where the machine has no CPU.
    """
    told = schedule_told(func, name, hardware.cpu, lambda _: False) if hardware.cpu is not None else None
    if told is not None:
        return told.main
    return decide_fallback(func, name, hardware)[0]


def decide_fallback(func: tirx.PrimFunc, name: str, hardware: Hardware) -> tuple[tirx.PrimFunc, AttentionTiling | None]:
    """The same, and the decision where it is attention, whose work is counted as that of products is."""
    if hardware.cpu is None:
        raise HardwareError(f"{hardware.name} has no cpu; operators are scheduled for CPUs")
    func = with_logic(func)
    try:
        program = stages_of(func, name)
    except UnsupportedOperator:
        return plain_loops.apply(func, name, hardware.cpu), None
    plain = elementwise.apply(program, hardware.cpu)
    if plain is not None:
        return plain, None
    fused = attention_rules.apply(program, hardware.cpu)
    if fused is not None:
        return fused
    try:
        return reduction.apply(program, hardware.cpu), None
    except tvm.error.InternalError:
        if not any(is_open(extent) for parameter in func.params for extent in getattr(parameter, "shape", ())):
            raise
        # TVM's simplifier fails at some quotients of open sizes, as of windows over images of any size.
        return plain_loops.apply(func, name, hardware.cpu), None
