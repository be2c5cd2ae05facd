"""Selection of the schedule rule for an operator on an accelerator."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad

from ..decide.kinds import kind_of
from ..decide.known import tiling_for
from ..decide.options import Options
from ..decide.surroundings import Surroundings
from ..decide.tiling import GemmTiling
from ..errors import HardwareError, UnsupportedOperator
from ..hardware.description import Hardware
from ..hardware.machine import Machine
from ..lowering.prim_func import ScheduledOperator
from ..lowering.wrapping import as_written
from ..match import ConvProgram, GemmProgram, match
from ..match.described import description_of
from ..match.recurrent import recurrence_of
from . import (
    accel_column,
    accel_conv,
    accel_elementwise,
    accel_gemm,
    accel_levels,
    accel_levels_conv,
    accel_wfold,
    accel_window,
)
from .accel_product import sum_types


def schedule_for_accelerator(
    func: tirx.PrimFunc, name: str, hardware: Hardware, options: Options | None = None
) -> ScheduledOperator:
    """Return the operator as TIR whose blocks are assigned to the engines of `hardware`, ready to be recorded as a
    program.

    On a machine with a W-fold engine, convolutions, and without a matrix engine matrix multiplications too, use W-fold.
    A machine with a column engine runs matrix-vector multiplications. Reductions over windows and axes run on the
    vector engine. In `options`, `mode` "seed" selects the published formulas, and a given or known configuration
    replaces the decision.

    Raises HardwareError if the machine has no engine for the operator or its types, and UnsupportedOperator if no rule
    supports it.
    """
    func = as_written(func)
    options = options or Options()
    form = options.form
    forms = (None, "wfold") if hardware.w_fold is not None else (None,)
    if form not in forms:
        raise HardwareError(f"algorithm = {form!r} on {hardware.name}; expected {', '.join(map(repr, forms))}")
    if description_of(func) is not None:
        raise UnsupportedOperator(
            f"{name}: block-quantised weights are not supported on {hardware.name}; expected a CPU"
        )
    if recurrence_of(func) is not None:
        raise UnsupportedOperator(
            f"{name}: recurrent steps in floating point are not supported on {hardware.name}; expected matrix "
            "multiplications, convolutions, element-wise operators, or recurrent layers with constant weights on a "
            "machine with a column engine"
        )
    _refuse_types(func, name, hardware)
    if not _sums(func):
        return accel_elementwise.apply(func, name, hardware)
    if accel_window.supports(func):
        return accel_window.apply(func, name, hardware)
    program = match(func, name, may_swap=False, keep_taps=hardware.near_tile is None, wraps=False)
    return SCHEDULES[kind_of(program.workload, hardware).name](program, hardware, options)


def _on_levels(program: GemmProgram | ConvProgram, hardware: Hardware, options: Options) -> ScheduledOperator:
    rule = accel_levels_conv if isinstance(program, ConvProgram) else accel_levels
    return rule.apply(program, hardware, options)


def _on_near_tile(program: GemmProgram | ConvProgram, hardware: Hardware, options: Options) -> ScheduledOperator:
    vector = program.has_epilogue or program.out_dtype != sum_types(hardware).get(program.workload.dtype)
    tiling = tiling_for(program.workload, hardware, options, Surroundings(vector=vector))
    assert isinstance(tiling, GemmTiling)
    if isinstance(program, ConvProgram):
        return accel_conv.apply(program, hardware, tiling, vector)
    return accel_gemm.apply(program, hardware, tiling, vector)


def _sums(func: tirx.PrimFunc) -> bool:
    """Return whether a block of the function reduces."""
    return any(map(_reduces, _blocks(func)))


def _blocks(func: tirx.PrimFunc) -> list[s_tir.SBlock]:
    found: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, found.append))
    return found


def _reduces(block: s_tir.SBlock) -> bool:
    return any(int(axis.iter_type) == tirx.IterVar.CommReduce for axis in block.iter_vars)


def _refuse_types(func: tirx.PrimFunc, name: str, hardware: Hardware) -> None:
    """Raise HardwareError if element-wise blocks compute with types that the vector engine does not support."""
    found = foreign_type(func, hardware)
    if found is not None:
        block, dtype = found
        raise HardwareError(
            f"{name}: block {block!r} computes with {dtype}, which the vector engine of {hardware.name} does not "
            "support; "
            f"expected {', '.join(Machine(hardware).vector.dtypes)}"
        )


def foreign_type(func: tirx.PrimFunc, hardware: Hardware) -> tuple[str, str] | None:
    """Return the name of the first element-wise block of `func` that computes with a type that the machine's vector
    engine does not support, and the type; None if there is none."""
    known = Machine(hardware).vector.dtypes
    for block in _blocks(as_written(func)) if known else ():
        if isinstance(block.body, tirx.BufferStore) and not _reduces(block):
            for dtype in (*_types(block.body.value), str(block.body.buffer.dtype)):
                if dtype not in known:
                    return block.name_hint, dtype
    return None


def _types(value: tirx.Expr) -> Iterator[str]:
    """Yield the types of the elements that an expression reads and of its intermediate results, except indices."""
    if isinstance(value, tirx.Var | tirx.IntImm | tirx.FloatImm):
        return
    yield str(value.ty)
    if isinstance(value, Call):
        chooses = str(getattr(value.op, "name", "")).endswith("if_then_else")
        parts = list(value.args)[1:] if chooses else list(value.args)
    elif isinstance(value, tirx.Select):
        parts = [value.true_value, value.false_value]
    else:
        parts = [getattr(value, part) for part in ("a", "b", "value") if hasattr(value, part)]
    for part in parts:
        if not isinstance(value, TensorLoad) and isinstance(part, tirx.Expr):
            yield from _types(part)


# Schedules of matrix multiplications and convolutions by machine kind (decide/kinds.py).
SCHEDULES: dict[str, Callable[[GemmProgram | ConvProgram, Hardware, Options], ScheduledOperator]] = {
    "w-fold": accel_wfold.apply,
    "levels": _on_levels,
    "near-tile": _on_near_tile,
    "column": accel_column.apply,
}
