"""Which rule writes an operator for an accelerator."""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx

from ..decide.gemm_partition import decide_partition
from ..decide.levels import has_levels
from ..decide.wfold import Mode
from ..errors import HardwareError
from ..hardware.description import Hardware
from ..lowering.prim_func import ScheduledOperator
from ..match import ConvProgram, match
from . import accel_conv, accel_elementwise, accel_gemm, accel_levels, accel_wfold


def schedule_for_accelerator(
    func: tirx.PrimFunc, name: str, hardware: Hardware, *, mode: Mode = "best", form: str | None = None
) -> ScheduledOperator:
    """The operator as TIR whose blocks are given to the engines of `hardware`, ready to be recorded as a program. On
    page 05's machine convolutions, and without a matrix engine products too, run by W-fold. `mode` "seed" takes the
    formulas as printed.

    HardwareError for a machine without an engine for it, UnsupportedOperator for what no rule serves.
    """
    forms = (None, "wfold") if hardware.w_fold is not None else (None,)
    if form not in forms:
        raise HardwareError(f"form = {form!r} on {hardware.name}; accepted: {', '.join(map(repr, forms))}")
    if not _sums(func):
        return accel_elementwise.apply(func, name, hardware)
    program = match(func, name, may_swap=False, keep_taps=hardware.near_tile is None)
    if hardware.w_fold is not None and (isinstance(program, ConvProgram) or hardware.near_tile is None):
        return accel_wfold.apply(program, hardware, mode=mode)
    if isinstance(program, ConvProgram):
        return accel_conv.apply(program, hardware, mode=mode)
    if hardware.near_tile is None:
        raise HardwareError(
            f"{hardware.name} has neither near_tile nor w_fold; accepted: a machine with one, which products run on"
        )
    if not has_levels(hardware):
        return accel_gemm.apply(program, hardware, decide_partition(program.workload, hardware, mode=mode))
    if mode != "best":
        raise HardwareError(f"mode = {mode!r} on {hardware.name}, which has several levels; accepted: 'best'")
    return accel_levels.apply(program, hardware)


def _sums(func: tirx.PrimFunc) -> bool:
    """Whether a block of the function reduces."""
    found: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, found.append))
    return any(int(axis.iter_type) == tirx.IterVar.CommReduce for block in found for axis in block.iter_vars)
