"""Which rule writes an operator for an accelerator."""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx

from ..decide.levels import has_levels
from ..errors import HardwareError, UnsupportedOperator
from ..hardware.description import Hardware
from ..lowering.prim_func import ScheduledOperator
from ..match import GemmProgram, match
from . import accel_elementwise, accel_gemm, accel_levels


def schedule_for_accelerator(func: tirx.PrimFunc, name: str, hardware: Hardware) -> ScheduledOperator:
    """The operator as TIR whose blocks are given to the engines of `hardware`, ready to be recorded as a program.

    HardwareError for a machine without a matrix engine, UnsupportedOperator for what no rule serves.
    """
    if not _sums(func):
        return accel_elementwise.apply(func, name, hardware)
    program = match(func, name, may_swap=False)
    if not isinstance(program, GemmProgram):
        raise UnsupportedOperator(f"{name}: a convolution; accepted on accelerators: matrix products")
    if hardware.near_tile is None:
        raise HardwareError(
            f"{hardware.name} has no near_tile unit; accepted: a machine with one, which products run on"
        )
    return (accel_levels if has_levels(hardware) else accel_gemm).apply(program, hardware)


def _sums(func: tirx.PrimFunc) -> bool:
    """Whether a block of the function reduces."""
    found: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, found.append))
    return any(int(axis.iter_type) == tirx.IterVar.CommReduce for block in found for axis in block.iter_vars)
