"""Binary arithmetic operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, tirx
from tvm.relax import op
from tvm.script.ir_builder import tirx as tir

from ....lowering.divisors import checked_divisors
from ...integer_power import LARGEST_CHAIN, integer_power, repeated
from ..translation import Converter, Translation, Unsupported, Value, converter, dtype_of
from ..types import computed_in, is_float
from .elementwise import (
    binary,
    elementwise,
    in_libm,
    is_zero,
    kernel,
    number,
    operand,
    real,
    signed_infinity,
    unrounded,
)
from .loops import looped

# ---- sums and products ----------------------------------------------------------------------------------------------


def _sum(t: Translation, left: Value, right: Value, alpha: float, negative: bool) -> relax.Expr:
    """left +- alpha * right; for bools, logical or."""
    if t.dtype == "bool":
        right = t.cast(right, "bool") if alpha else t.cast(False, "bool")
        return binary(t, op.logical_or, left, right)
    left, right = operand(t, left, t.dtype), operand(t, right, t.dtype)
    if alpha != 1:
        right = t.emit(op.multiply(right, operand(t, alpha, t.dtype)))
    return t.cast(t.emit((op.subtract if negative else op.add)(left, right)), t.dtype)


@converter("add.Tensor", "add.Scalar")
def _add(t: Translation, self: Value, other: Value, alpha: float) -> relax.Expr:
    return _sum(t, self, other, alpha, negative=False)


@converter("sub.Tensor", "sub.Scalar")
def _sub(t: Translation, self: Value, other: Value, alpha: float) -> relax.Expr:
    return _sum(t, self, other, alpha, negative=True)


@converter("rsub.Tensor", "rsub.Scalar")
def _rsub(t: Translation, self: Value, other: Value, alpha: float) -> relax.Expr:
    return _sum(t, other, self, alpha, negative=True)


@converter("mul.Tensor", "mul.Scalar")
def _mul(t: Translation, self: Value, other: Value) -> relax.Expr:
    return unrounded(t, op.logical_and if t.dtype == "bool" else op.multiply, self, other)


# ---- quotients and remainders ---------------------------------------------------------------------------------------


@converter("div.Tensor", "div.Scalar")
def _div(t: Translation, self: Value, other: Value) -> relax.Expr:
    if is_zero(other):
        # TVM rejects a division by the number 0; this product is the same for every operand.
        return unrounded(t, op.multiply, self, signed_infinity(other))
    return unrounded(t, op.divide, self, other)


@converter("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(t: Translation, self: Value, other: Value, rounding_mode: str | None) -> relax.Expr:
    if rounding_mode is None:
        return _div(t, self, other)
    if rounding_mode not in ("trunc", "floor"):
        raise Unsupported(f"rounding_mode={rounding_mode!r} is not supported; expected 'trunc', 'floor' or None")
    return _quotient(t, self, other, rounding_mode)


@converter("floor_divide.default", "floor_divide.Scalar")
def _floor_divide(t: Translation, self: Value, other: Value) -> relax.Expr:
    return _quotient(t, self, other, "floor")


def _quotient(t: Translation, left: Value, right: Value, mode: str) -> relax.Expr:
    if is_float(t.dtype):
        return elementwise(t, f"{mode}_divide", _FLOAT_QUOTIENTS[mode], left, right)
    return _by_integers(t, f"{mode}_divide", tirx.truncdiv if mode == "trunc" else tirx.floordiv, left, right)


def _by_integers(t: Translation, name: str, element: Callable[..., tirx.Expr], left: Value, right: Value) -> relax.Expr:
    """A quotient or remainder of integers; a divisor of 0 is rejected, here or at run time."""
    if is_zero(right):
        raise Unsupported("an integer division by 0; expected a nonzero divisor")
    return elementwise(t, name, element, left, checked_divisors(t.builder, operand(t, right, t.dtype), name))


def _float_trunc(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    return tirx.trunc(a / b)


def _apart(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """Return whether two numbers have different signs and neither is 0."""
    zero = real(0, a)
    return tirx.any(tirx.all(a < zero, b > zero), tirx.all(a > zero, b < zero))


def _float_floor(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """Like Python's //: by the remainder, so that a quotient just below an integer is not rounded up to it."""
    zero, one = real(0, a), real(1, a)
    rest = in_libm("fmod")(a, b)
    exact = (a - rest) / b
    exact = tirx.Select(_apart(rest, b), exact - one, exact)
    whole = tirx.floor(exact)
    whole = tirx.Select(exact - whole > real(0.5, a), whole + one, whole)
    whole = tirx.Select(tirx.EQ(exact, zero), in_libm("copysign")(zero, a / b), whole)
    return tirx.Select(tirx.EQ(b, zero), a / b, whole)


_FLOAT_QUOTIENTS = {"trunc": _float_trunc, "floor": _float_floor}


@converter("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def _remainder(t: Translation, self: Value, other: Value) -> relax.Expr:
    """The remainder with the sign of the divisor."""
    if not is_float(t.dtype):
        return _by_integers(t, "remainder", tirx.floormod, self, other)

    def element(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        rest = in_libm("fmod")(a, b)
        return tirx.Select(_apart(rest, b), rest + b, rest)

    return elementwise(t, "remainder", element, self, other)


@converter("fmod.Tensor", "fmod.Scalar")
def _fmod(t: Translation, self: Value, other: Value) -> relax.Expr:
    """The remainder with the sign of the dividend."""
    if not is_float(t.dtype):
        return _by_integers(t, "fmod", tirx.truncmod, self, other)
    return elementwise(t, "fmod", in_libm("fmod"), self, other)


# ---- powers ---------------------------------------------------------------------------------------------------------

# Powers that PyTorch computes by products and roots.
_ROOTS = {
    0.5: op.sqrt,
    -0.5: op.rsqrt,
    1: lambda x: op.multiply(x, relax.const(1, x.ty.dtype)),
    2: lambda x: op.multiply(x, x),
    3: lambda x: op.multiply(op.multiply(x, x), x),
    -1: lambda x: op.divide(relax.const(1, x.ty.dtype), x),
    -2: lambda x: op.divide(relax.const(1, x.ty.dtype), op.multiply(x, x)),
}


@converter("pow.Tensor_Scalar")
def _pow_number(t: Translation, self: Value, exponent: float) -> relax.Expr:
    dtype = computed_in(t.dtype)
    if exponent == 0:
        return t.emit(op.full(relax.ShapeExpr(t.shape), t.cast(1, t.dtype), t.dtype))
    if is_float(t.dtype) and exponent in _ROOTS:
        return t.cast(t.emit(_ROOTS[exponent](t.cast(self, dtype))), t.dtype)
    return _power(t, self, exponent)


@converter("pow.Scalar", "pow.Tensor_Tensor")
def _pow(t: Translation, self: Value, exponent: Value) -> relax.Expr:
    return _power(t, self, exponent)


def _power(t: Translation, base: Value, exponent: Value) -> relax.Expr:
    if is_float(t.dtype):
        return elementwise(t, "power", in_libm("pow"), base, exponent)
    if t.dtype == "bool":
        return binary(t, lambda a, b: op.logical_or(a, op.logical_not(b)), base, exponent)
    if number(exponent) and 0 <= exponent <= LARGEST_CHAIN:
        return repeated(t.builder, t.cast(base, t.dtype), int(exponent))
    return integer_power(t.builder, t.cast(base, t.dtype), t.cast(exponent, t.dtype))


# ---- other binary operators -----------------------------------------------------------------------------------------


def _register(function: Callable[..., relax.Expr], of_bools: Callable[..., relax.Expr], *names: str) -> Converter:
    """A converter to a Relax operator, and to another one for bools."""

    @converter(*names)
    def convert(t: Translation, self: Value, other: Value) -> relax.Expr:
        return binary(t, of_bools if t.dtype == "bool" else function, self, other)

    return convert


_maximum = _register(op.maximum, op.logical_or, "maximum.default")
_minimum = _register(op.minimum, op.logical_and, "minimum.default")
for _name, _function, _of_bools in (
    ("and", op.bitwise_and, op.logical_and),
    ("or", op.bitwise_or, op.logical_or),
    ("xor", op.bitwise_xor, op.logical_xor),
):
    _register(_function, _of_bools, *(f"bitwise_{_name}.{kinds}" for kinds in ("Tensor", "Scalar", "Scalar_Tensor")))


def _register_in_libm(function: str, *names: str, of_integers: Converter | None = None) -> None:
    @converter(*names)
    def convert(t: Translation, self: Value, other: Value) -> relax.Expr:
        if of_integers is not None and not is_float(t.dtype):
            return of_integers(t, self, other)
        return elementwise(t, function, in_libm(function), self, other)


_register_in_libm("fmax", "fmax.default", of_integers=_maximum)  # if one operand is NaN, the other one
_register_in_libm("fmin", "fmin.default", of_integers=_minimum)
_register_in_libm("atan2", "atan2.default")
_register_in_libm("hypot", "hypot.default")
_register_in_libm("copysign", "copysign.Tensor", "copysign.Scalar")


@converter("nextafter.default")
def _nextafter(t: Translation, self: Value, other: Value) -> relax.Expr:
    if t.dtype not in ("float32", "float64"):
        raise Unsupported(f"type {t.dtype} is not supported; expected float32 or float64")
    return elementwise(t, "nextafter", in_libm("nextafter"), self, other)


def _register_divisor(name: str, *, multiple: bool) -> None:
    @converter(f"{name}.default")
    def convert(t: Translation, self: Value, other: Value) -> relax.Expr:
        """The greatest common divisor by Euclid's algorithm, or the least common multiple."""
        count = math.prod(t.shape)
        operands = [
            t.emit(op.reshape(op.broadcast_to(t.cast(x, t.dtype), relax.ShapeExpr(t.shape)), (count,)))
            for x in (self, other)
        ]
        zero = tirx.const(0, t.dtype)

        def size(x: tirx.Expr) -> tirx.Expr:
            return x if "uint" in t.dtype else tirx.Select(x < zero, zero - x, x)

        def body(left: Any, right: Any, found: Any, rest: Any, last: Any) -> None:
            with tir.parallel(0, count) as i:
                found[i], rest[i] = size(left[i]), size(right[i])
                with tir.While(tirx.NE(rest[i], zero)):
                    last[i] = tirx.truncmod(found[i], rest[i])
                    found[i] = rest[i]
                    rest[i] = last[i]
                found[i] = size(found[i])
                if multiple:
                    none = tirx.EQ(found[i], zero)
                    share = tirx.truncdiv(left[i], tirx.Select(none, tirx.const(1, t.dtype), found[i]))
                    found[i] = tirx.Select(none, zero, size(share * right[i]))

        found = looped(t, name, operands, [((count,), t.dtype)] * 3, body)[0]
        return t.emit(op.reshape(found, relax.ShapeExpr(t.shape)))


_register_divisor("gcd", multiple=False)
_register_divisor("lcm", multiple=True)


@converter("ldexp.Tensor")
def _ldexp(t: Translation, self: Value, other: Value) -> relax.Expr:
    """self * 2^other, with the power rounded to its own type."""
    kind = "float32" if number(other) or not is_float(dtype_of(other)) else dtype_of(other)
    wide = computed_in(kind)
    power = kernel(t, "power_of_2", lambda x: in_libm("exp2")(x), t.cast(t.cast(other, kind), wide))
    return unrounded(t, op.multiply, self, t.cast(power, kind))


@converter("clamp.default", "clamp.Tensor")
def _clamp(t: Translation, self: Value, min: Value, max: Value) -> relax.Expr:
    x: Value = self
    if min is not None:
        x = _maximum(t, x, min)
    if max is not None:
        x = _minimum(t, x, max)
    return t.cast(x, t.dtype)


@converter("hardtanh.default")
def _hardtanh(t: Translation, self: Value, min_val: float, max_val: float) -> relax.Expr:
    return _clamp(t, self, min_val, max_val)


# ---- bits -----------------------------------------------------------------------------------------------------------


@converter("bitwise_not.default")
def _bitwise_not(t: Translation, self: relax.Expr) -> relax.Expr:
    return t.emit((op.logical_not if t.dtype == "bool" else op.bitwise_not)(self))


def _register_shift(direction: str, short: str, element: Callable[..., tirx.Expr]) -> None:
    long = f"bitwise_{direction}_shift"

    @converter(f"{long}.Tensor", f"{long}.Tensor_Scalar", f"{long}.Scalar_Tensor", f"{short}.Tensor", f"{short}.Scalar")
    def convert(t: Translation, self: Value, other: Value) -> relax.Expr:
        if is_float(t.dtype) or t.dtype == "bool":
            raise Unsupported(f"a shift of {t.dtype} is not supported; expected integers")
        return elementwise(t, "shift", element, self, other)


_register_shift("left", "__lshift__", lambda a, b: a << b)
_register_shift("right", "__rshift__", lambda a, b: a >> b)
