"""Arithmetic of integers that is defined for all values, as NumPy and PyTorch define it.

A processor ends the process where a divisor is 0, or where the lowest number is divided by -1; LLVM defines neither,
nor shifts by negative numbers of places or by as many as there are bits. Here the lowest number divided by -1 is itself
and leaves no remainder; such shifts give 0, and to the right -1 of negative numbers. Quotient and remainder by 0 are 0:
a net under the kernels whose divisors nobody has checked (divisors.py).

Sums and products wrap around (wrapping.py). Addresses are left alone, but for those that data decides; so is what is
proved to be defined.

Quotients towards zero: of a vector of dividends one step apart TVM divides the first one and the step, which is wrong
where their sign changes, as in (1 - 2 * i) / 2. It does not see the dividends of such quotients and their remainders.
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

# TVM's mark of a kernel that is fused to no other: operands occur several times in what becomes of a division, and a
# chain of divisions in one expression would grow exponentially.
_OPAQUE = 8


def defined(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """`func` with arithmetic of integers that is defined whatever values it meets."""
    func = wrapping(func)  # first: what is known of a divisor has to hold
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
    """`value` by `places`, both integers of one type; `shift`: LShift or RShift."""
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
    """`func` with the dividends hidden that a number divides towards zero, where they may be negative."""
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
            # Not an equation: TVM holds that no int32 equals the lowest one.
            is_lowest = dividend < tirx.const(int(tirx.min_value(dtype).value) + 1, dtype)
            unsafe.append(tirx.all(tirx.EQ(divisor, tirx.const(-1, dtype)), is_lowest))
        if not never_zero:
            is_zero = tirx.EQ(divisor, zero)
            unsafe.append(is_zero)
            # Of a choice between 0 and a quotient TVM simplifies the quotient for a divisor of 0, and fails.
            dividend = tirx.Select(is_zero, zero, dividend)
        # By 1 the lowest number is what it is by -1.
        return _MAKE[type(expr)](dividend, tirx.Select(tirx.any(*unsafe), one, divisor))

    def shift(self, expr: Any) -> Expr:
        if self._stays(expr):
            return expr
        bound = self.analyzer.const_int_bound(expr.b)
        if bound.min_value >= 0 and bound.max_value < _bits(str(expr.ty)):
            return hidden(expr) if isinstance(expr, LShift) else expr
        return shifted(type(expr), expr.a, expr.b)
