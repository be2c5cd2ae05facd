"""The name of the epilogue fused to a matched matrix multiplication or convolution."""

from __future__ import annotations

from tvm import tirx
from tvm.ir import TensorLoad

from ..decide.epilogue import BIAS, CLIP, NONE, OTHER, RELU, RESIDUAL, named
from ..lowering.samples import is_open
from ..lowering.wrapping import plain_value
from .access import variables
from .conv import ConvProgram
from .gemm import GemmProgram


def epilogue_of(program: GemmProgram | ConvProgram) -> str:
    """The steps from the accumulator to the stored value, named as in decide/epilogue.py."""
    if not program.has_epilogue:
        return NONE
    if program.out_dtype != program.workload.acc_dtype:
        return OTHER
    total = tirx.Var("sum", program.out_dtype)
    value, steps = plain_value(program.value(total)), list[str]()
    while not value.same_as(total):
        found = _last_step(value, total, program)
        if found is None:
            return OTHER
        step, value = found
        steps.append(step)
    return named(steps[::-1])


def _last_step(value: tirx.Expr, total: tirx.Var, program: GemmProgram | ConvProgram) -> tuple[str, tirx.Expr] | None:
    """The name of the outermost step of `value` and its operand; None if it has no name."""
    if not isinstance(value, tirx.Add | tirx.Max | tirx.Min):
        return None
    inner, other = (value.a, value.b) if variables(value.a, {total}) else (value.b, value.a)
    if variables(other, {total}):
        return None
    if isinstance(value, tirx.Add):
        step = _added(other, program)
        return None if step is None else (step, inner)
    if not isinstance(other, tirx.FloatImm | tirx.IntImm):
        return None
    if isinstance(value, tirx.Min):
        return CLIP, inner
    return (RELU, inner) if other.value == 0 else None


def _added(operand: tirx.Expr, program: GemmProgram | ConvProgram) -> str | None:
    """The name of an addition, by the result axes along which the added operand varies."""
    if not isinstance(operand, TensorLoad) or str(operand.ty) != program.out_dtype:
        return None
    axes = [
        {variable for variable, extent in zip(axis, extents, strict=True) if is_open(extent) or extent > 1}
        for axis, extents in zip(program.out_axes, program.out_extents, strict=True)
    ]
    every = set[tirx.Var]().union(*axes)
    used = {variable for index in operand.indices for variable in variables(index, every)}
    if used == every:
        return RESIDUAL
    return BIAS if used == axes[-1] and used else None
