"""Dimensions computed at run time: quotients, whose divisor may be 0, and products, which may exceed int64.

The functions that compute the sizes of a graph refuse both. A kernel computes the same sizes again as extents of its
loops and shapes of its buffers, some of them before anything is checked; there, a divisor of 0 is replaced by 1. TVM
computes the bytes of a tensor in 64 bits, so a tensor with too many bytes may be given too little memory: a kernel
refuses it before it accesses it.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import tvm_ffi
from tvm import DataType, s_tir, tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..refusal import REFUSE_SIZE, REFUSE_ZERO

Expr: TypeAlias = tirx.Expr

_DIVISIONS = (tirx.Div, tirx.FloorDiv, tirx.Mod, tirx.FloorMod)
NAMED = "a size in the model"  # name in errors
MOST = 2.0**47  # elements of an axis, bytes of a tensor: the limit of a process's address space


def with_safe_sizes(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the kernel `func` without divisions of sizes by 0, refusing tensors of more than MOST bytes."""
    func = _with_addressable_tensors(func)
    if not any(_is_by_size(expr) for expr in _divisions(func)):
        return func

    def safe(expr: Any) -> Expr:
        if not _is_by_size(expr):
            return expr
        zero, one = (tirx.const(value, str(expr.b.ty)) for value in (0, 1))
        return type(expr)(expr.a, tirx.Select(tirx.EQ(expr.b, zero), one, expr.b))

    return tvm_ffi.structural_map(func, (_DIVISIONS, safe))


def with_checked_sizes(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func`, which computes sizes, ending the run before a division by 0 or a size beyond MOST."""
    checks: list[tirx.Stmt] = []
    divisors: list[Expr] = []
    for expr in _divisions(func.body):
        divisor = expr.b
        if isinstance(divisor, tirx.IntImm) or any(tvm_ffi.structural_equal(divisor, other) for other in divisors):
            continue
        divisors.append(divisor)
        is_zero = tirx.EQ(divisor, tirx.const(0, str(divisor.ty)))
        checks.append(tirx.IfThenElse(is_zero, tirx.Evaluate(T.call_packed(REFUSE_ZERO, NAMED)), None))
    sizes: list[Expr] = []
    tvm_ffi.structural_walk(func.body, ((tirx.BufferStore, lambda store: sizes.append(store.value)),))
    computed = [size for size in sizes if _is_integer(size) and not isinstance(size, tirx.IntImm | TensorLoad)]
    checks.extend(_refused(tirx.abs(_as_real(size)) > MOST) for size in computed)
    return func.with_body(tirx.SeqStmt([*checks, func.body])) if checks else func


def _with_addressable_tensors(func: tirx.PrimFunc) -> tirx.PrimFunc:
    given = [parameter for parameter in func.params if hasattr(parameter, "shape")]
    scalars = (parameter for parameter in func.params if not hasattr(parameter, "shape"))
    known = set(scalars).union(*(_variables(tensor.shape) for tensor in given))
    if not known:
        return func  # every size is static, as in most kernels
    checks = []
    for tensor in [*given, *_allocated(func)]:
        if not all(isinstance(extent, tirx.IntImm) for extent in tensor.shape) and _variables(tensor.shape) <= known:
            elements = functools.reduce(tirx.Mul, map(_as_real, tensor.shape))
            checks.append(_refused(elements * float(DataType(tensor.dtype).itemsize) > MOST))
    return func.with_body(tirx.SeqStmt([*checks, func.body])) if checks else func


def _allocated(func: tirx.PrimFunc) -> list[tirx.Buffer]:
    found: list[tirx.Buffer] = []
    visits = (
        (s_tir.SBlock, lambda block: found.extend(block.alloc_buffers)),
        (tirx.AllocBuffer, lambda statement: found.append(statement.buffer)),
    )
    tvm_ffi.structural_walk(func.body, visits)
    return found


def _variables(part: Any) -> set[tirx.Var]:
    found: set[tirx.Var] = set()
    tvm_ffi.structural_walk(part, ((tirx.Var, found.add),))
    return found


def _refused(condition: Expr) -> tirx.Stmt:
    return tirx.IfThenElse(condition, tirx.Evaluate(T.call_packed(REFUSE_SIZE, NAMED)), None)


def _as_real(size: Expr) -> Expr:
    """Return a float64 approximation of a size's value without overflow."""
    if isinstance(size, tirx.Add | tirx.Sub | tirx.Mul | tirx.Max | tirx.Min):
        return type(size)(_as_real(size.a), _as_real(size.b))
    return tirx.Cast("float64", size)


def _is_integer(expr: Expr) -> bool:
    return str(expr.ty) in ("int32", "int64")


def _divisions(part: Any) -> list[Any]:
    """Return the integer divisions in `part`, those within another's divisor before it."""
    found: list[Any] = []

    def note(expr: Any) -> None:
        if _is_integer(expr):
            found.append(expr)

    tvm_ffi.structural_walk(part, (_DIVISIONS, note))
    return found


def _is_by_size(division: Any) -> bool:
    """Return whether the divisor depends on variables but not on a tensor."""
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(division.b, ((TensorLoad, loads.append),))
    return bool(_variables(division.b)) and not loads
