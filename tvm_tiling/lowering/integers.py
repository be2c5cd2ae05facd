"""Integer arithmetic that is defined for all values, as in NumPy and PyTorch.

A CPU terminates the process if a divisor is 0 or the lowest number is divided by -1. LLVM leaves both undefined, as
well as shifts by negative amounts or by at least the number of bits. Here, the lowest number divided by -1 is itself
with remainder 0; such shifts give 0, or -1 for right shifts of negative numbers. Quotient and remainder by 0 are 0, a
fallback for kernels whose divisors are not checked (divisors.py).

Sums and products wrap around (wrapping.py). Addresses are unchanged unless they depend on data, and so are operations
proved to be defined.

Division towards zero: for a vector of consecutive dividends TVM divides the first one and the step, which is wrong if
the sign changes, as in (1 - 2 * i) / 2. The dividends of such quotients and remainders are hidden from it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.ir.prim.expr import LShift, RShift

from .known import Known
from .wrapping import hidden, wrapping

Expr: TypeAlias = tirx.Expr

_DIVISIONS = (tirx.Div, tirx.FloorDiv, tirx.Mod, tirx.FloorMod)
_SHIFTS = (LShift, RShift)
_MAKE = {tirx.Div: tirx.truncdiv, tirx.Mod: tirx.truncmod, tirx.FloorDiv: tirx.floordiv, tirx.FloorMod: tirx.floormod}

# TVM's op_pattern of a kernel that is never fused: an integer division is replaced by an expression that repeats its
# operands, so a chain of divisions in one expression would grow exponentially.
_OPAQUE = 8


def defined(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with integer arithmetic that is defined for all values."""
    func = wrapping(func)  # first, since what is known of a divisor must remain true
    found: list[Expr] = []
    tvm_ffi.structural_walk(func.body, ((*_DIVISIONS, *_SHIFTS), found.append))
    if not any(_is_integer(expr) for expr in found):
        return func
    if any(isinstance(expr, tirx.Div | tirx.Mod) for expr in found):
        func = _towards_zero(func)
    known = _Defined(func)
    result = tvm_ffi.structural_map(func, ((_DIVISIONS, known.division), (_SHIFTS, known.shift)))
    return result if result.same_as(func) else result.with_attr("op_pattern", _OPAQUE)


def shifted(shift: type, value: Expr, places: Expr) -> Expr:
    """Return `value` shifted by `places`, both integers of one type; `shift` is LShift or RShift."""
    dtype = str(value.ty)
    bits, signed = _bits(dtype), dtype.startswith("int")
    zero = tirx.const(0, dtype)
    outside = places >= tirx.const(bits, dtype)
    if signed:
        outside = tirx.any(outside, places < zero)
    if shift is RShift and signed:
        return value >> tirx.Select(outside, tirx.const(bits - 1, dtype), places)
    inside = tirx.Select(outside, zero, places)
    return tirx.Select(outside, zero, hidden(value << inside) if shift is LShift else value >> inside)


def _towards_zero(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with the possibly negative dividends of divisions towards zero by constants hidden."""
    analyzer = Known(func).analyzer

    def hide(expr: Any) -> Expr:
        in_steps = _is_integer(expr) and isinstance(expr.b, tirx.IntImm) and not isinstance(expr.a, TensorLoad)
        if not in_steps or analyzer.const_int_bound(expr.a).min_value >= 0:
            return expr
        return _MAKE[type(expr)](hidden(expr.a), expr.b)

    return tvm_ffi.structural_map(func, ((tirx.Div, tirx.Mod), hide))


def _is_integer(expr: Expr) -> bool:
    return str(expr.ty).startswith(("int", "uint")) and "x" not in str(expr.ty)


def _bits(dtype: str) -> int:
    return int(dtype.removeprefix("u").removeprefix("int"))


class _Defined(Known):
    """The operations of one function."""

    def __init__(self, func: tirx.PrimFunc) -> None:
        super().__init__(func)
        self._addresses = self.addresses((*_DIVISIONS, *_SHIFTS))

    def _stays(self, expr: Expr) -> bool:
        return not _is_integer(expr) or expr in self._addresses

    def division(self, expr: Any) -> Expr:
        dividend, divisor = expr.a, expr.b
        if self._stays(expr):
            return expr
        dtype = str(expr.ty)
        one, zero = tirx.const(1, dtype), tirx.const(0, dtype)
        bound = self.analyzer.const_int_bound(divisor)
        never_zero = bound.min_value > 0 or bound.max_value < 0
        never_minus = bound.min_value >= 0 or bound.max_value < -1
        if never_zero and never_minus:
            return expr
        unsafe = []
        if not never_minus:
            # Not an equality: TVM assumes that no int32 equals the lowest one.
            is_lowest = dividend < tirx.const(int(tirx.min_value(dtype).value) + 1, dtype)
            unsafe.append(tirx.all(tirx.EQ(divisor, tirx.const(-1, dtype)), is_lowest))
        if not never_zero:
            is_zero = tirx.EQ(divisor, zero)
            unsafe.append(is_zero)
            # In a choice between 0 and a quotient, TVM simplifies the quotient for a divisor of 0, and fails.
            dividend = tirx.Select(is_zero, zero, dividend)
        # The lowest number divided by 1 equals the defined result of its division by -1.
        return _MAKE[type(expr)](dividend, tirx.Select(tirx.any(*unsafe), one, divisor))

    def shift(self, expr: Any) -> Expr:
        if self._stays(expr):
            return expr
        bound = self.analyzer.const_int_bound(expr.b)
        if bound.min_value >= 0 and bound.max_value < _bits(str(expr.ty)):
            return hidden(expr) if isinstance(expr, LShift) else expr
        return shifted(type(expr), expr.a, expr.b)
