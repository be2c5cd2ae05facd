"""Floating-point arithmetic protected from TVM's simplifier.

TVM simplifies floats like real numbers: x - x and x * 0 become 0, (x + y) - y becomes x, x == x true and not (x < y)
becomes y <= x. None of this holds for infinities, NaN and rounded sums. During scheduling, these operations are hidden
from the simplifier. In the final code they are written in a form that it does not know and that LLVM, which conforms to
IEEE 754, folds back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call

Expr: TypeAlias = tirx.Expr

_ORDERS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)

# ---- during scheduling ----------------------------------------------------------------------------------------------

# By the name of the function that hides an operation. Greater is less with swapped operands.
_HIDDEN: dict[str, Callable[[Expr, Expr], Expr]] = {
    f"tvm_tiling.{kind.__name__}": kind for kind in (tirx.Sub, tirx.Mul, tirx.Div, tirx.LT, tirx.LE, tirx.EQ, tirx.NE)
}
_TURNED = {tirx.GT: tirx.LT, tirx.GE: tirx.LE}


def simplified_around(expr: Expr, simplify: Callable[[Expr], Expr]) -> Expr:
    """Apply `simplify` to an expression without simplifying any floating-point operation."""
    return tvm_ffi.structural_map(simplify(_with_hidden(expr)), (Call, _shown))


def _with_hidden(expr: Expr) -> Expr:
    kinds = (tirx.Sub, tirx.Mul, tirx.Div, tirx.EQ, tirx.NE, *_ORDERS)
    return tvm_ffi.structural_map(expr, (kinds, _as_call))


def _as_call(expr: Any) -> Expr:
    if not _is_float(expr.a) or (isinstance(expr, tirx.Mul | tirx.Div) and not _has_zero(expr)):
        return expr
    kind = _TURNED.get(type(expr), type(expr))
    operands = (expr.b, expr.a) if type(expr) in _TURNED else (expr.a, expr.b)
    return tirx.call_pure_extern(str(expr.ty), f"tvm_tiling.{kind.__name__}", *operands)


def _has_zero(expr: Any) -> bool:
    return any(isinstance(side, tirx.FloatImm) and side.value == 0 for side in (expr.a, expr.b))


def _shown(call: Any) -> Expr:
    if getattr(call.op, "name", "") != "tirx.call_pure_extern":
        return call
    kind = _HIDDEN.get(str(call.args[0].value))
    return call if kind is None else kind(call.args[1], call.args[2])


# ---- in the final code ----------------------------------------------------------------------------------------------


_REINTERPRET = tvm.ir.Op.get("tirx.reinterpret")


def exact(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """`func` with protected float differences, comparisons and products with 0. The result can only be built: it is no
    longer recognised by any matcher."""
    zeros: list[Expr] = []
    visits = [
        (tirx.FloatImm, lambda value: zeros.append(value) if value.value == 0 else None),
        (Call, lambda call: zeros.append(call) if _is_of_bits_0(call) else None),
    ]
    tvm_ffi.structural_walk(func.body, visits)
    edits: list[Any] = [(tirx.Sub, _difference), (_ORDERS, _order), (tirx.EQ, _equation)]
    if zeros:
        func = tvm_ffi.structural_map(func, (Call, _of_bits))
        edits += [(tirx.Mul, _product), (tirx.Div, _product)]
    return tvm_ffi.structural_map(func, tuple(edits))


def with_zeros(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """`func` with 0 in place of bit casts of 0, which the simplifier may leave."""
    found: list[Expr] = []
    tvm_ffi.structural_walk(func.body, (Call, lambda call: found.append(call) if _is_of_bits_0(call) else None))
    return tvm_ffi.structural_map(func, (Call, _of_bits)) if found else func


def _is_float(expr: Expr) -> bool:
    return str(expr.ty).startswith(("float", "bfloat"))


def _is_of_bits_0(call: Call) -> bool:
    """Return whether a call is a bit cast of 0: code generation turns it into a null pointer, which is intended only
    for handles."""
    if call.op != _REINTERPRET or not isinstance(call.args[0], tirx.IntImm) or int(call.args[0]) != 0:
        return False
    return "handle" not in str(call.ty)


def _of_bits(call: Call) -> Expr:
    return tirx.const(0, str(call.ty)) if _is_of_bits_0(call) else call


def _with_kind(dtype: str, kind: str) -> str:
    """A type with another element type and the same number of lanes: float32x4 as int8 is int8x4."""
    _, _, lanes = dtype.partition("x")
    return f"{kind}x{lanes}" if lanes else kind


def _difference(expr: Any) -> Expr:
    if not _is_float(expr):
        return expr
    right, dtype = expr.b, str(expr.ty)
    if isinstance(right, tirx.FloatImm):
        return expr.a + tirx.const(-right.value, dtype)
    return expr.a + right * tirx.const(-1.0, dtype)


def _hidden(truth: Expr) -> Expr:
    """A truth value as a comparison of a number with 0."""
    dtype = _with_kind(str(truth.ty), "int8")
    return tirx.NE(tirx.Cast(dtype, truth), tirx.const(0, dtype))


def _order(expr: Any) -> Expr:
    return _hidden(expr) if _is_float(expr.a) else expr


def _equation(expr: Any) -> Expr:
    if not _is_float(expr.a):
        return expr
    left, right = (_wide(side) for side in (expr.a, expr.b))
    return _hidden(tirx.EQ(left, _veiled(right)))


def _wide(value: Expr) -> Expr:
    dtype = str(value.ty)
    return value if dtype.startswith(("float32", "float64")) else tirx.Cast(_with_kind(dtype, "float32"), value)


def _veiled(value: Expr) -> Expr:
    """The value via its bits."""
    dtype = str(value.ty)
    bits = tirx.reinterpret(dtype.replace("float", "int"), value)
    return tirx.reinterpret(dtype, bits)


def _product(expr: Any) -> Expr:
    if not _is_float(expr):
        return expr
    return type(expr)(*(_without_zero(side) for side in (expr.a, expr.b)))


def _without_zero(value: Expr) -> Expr:
    """A constant 0 via the bits of -0; anything else unchanged."""
    if isinstance(value, tirx.Broadcast):
        return tirx.Broadcast(_without_zero(value.value), value.lanes)
    if not isinstance(value, tirx.FloatImm) or value.value != 0:
        return value
    dtype = str(value.ty)
    wide = "float64" if dtype == "float64" else "float32"
    lowest = tirx.const(-(1 << (63 if wide == "float64" else 31)), wide.replace("float", "int"))
    zero = tirx.reinterpret(wide, lowest)
    if math.copysign(1, value.value) > 0:
        zero = zero * tirx.const(-1.0, wide)
    return zero if dtype == wide else tirx.Cast(dtype, zero)
