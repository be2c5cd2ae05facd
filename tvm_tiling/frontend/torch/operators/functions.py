"""Unary functions: roots, logarithms, trigonometry, rounding, signs."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax, tirx
from tvm.relax import op

from ..translation import Translation, Value, converter, dtype_of
from ..types import is_float
from .elementwise import elementwise, in_libm, real, unary


def _register(name: str, function: Callable[[relax.Expr], relax.Expr]) -> None:
    @converter(f"{name}.default")
    def convert(t: Translation, self: relax.Expr) -> relax.Expr:
        return unary(t, function, self)


# Functions for which the lowerings of TVM and of this package are accurate in float32 and float64.
for _name, _function in {
    "acos": op.acos,
    "acosh": op.acosh,
    "asin": op.asin,
    "asinh": op.asinh,
    "atan": op.atan,
    "cos": op.cos,
    "erf": op.erf,
    "exp": op.exp,
    "log": op.log,
    "neg": op.negative,
    "rsqrt": op.rsqrt,
    "sigmoid": op.sigmoid,
    "sin": op.sin,
    "sqrt": op.sqrt,
    "tan": op.tan,
}.items():
    _register(_name, _function)


def _register_by_type(name: str, function: Callable[[relax.Expr], relax.Expr]) -> None:
    """In float32, Relax's operator, which is vectorised; in float64, where TVM loses digits, the C library."""

    @converter(f"{name}.default")
    def convert(t: Translation, self: relax.Expr) -> relax.Expr:
        return elementwise(t, name, in_libm(name), self) if t.dtype == "float64" else unary(t, function, self)


for _name, _function in {"cosh": op.cosh, "sinh": op.sinh, "tanh": op.tanh}.items():
    _register_by_type(_name, _function)


# ---- accurate near 0 and near 1, and from the C library -------------------------------------------------------------


def expm1(x: tirx.Expr) -> tirx.Expr:
    """e^x - 1, accurate near 0, where e^x is close to 1: there by tanh."""
    if str(x.ty) == "float64":
        return in_libm("expm1")(x)
    one = real(1, x)
    half = tirx.tanh(x * real(0.5, x))
    return tirx.Select(tirx.abs(x) < one, (half + half) / (one - half), tirx.exp(x) - one)


def log1p(x: tirx.Expr) -> tirx.Expr:
    """log(1 + x), accurate near 0, where 1 + x loses digits of x: there by the series of 2 artanh(x/(2+x))."""
    if str(x.ty) == "float64":
        return in_libm("log1p")(x)
    ratio = x / (x + real(2, x))
    square = ratio * ratio
    series = real(0, x)
    for power in range(17, 0, -2):
        series = series * square + real(2 / power, x)
    near = tirx.abs(x) < real(0.4, x)
    return tirx.Select(near, ratio * series, tirx.log(x + real(1, x)))


def _register_element(name: str, element: Callable[..., tirx.Expr]) -> None:
    @converter(f"{name}.default")
    def convert(t: Translation, self: relax.Expr) -> relax.Expr:
        return elementwise(t, name, element, self)


_register_element("expm1", expm1)
_register_element("log1p", log1p)
for _name in ("atanh", "erfc", "exp2", "lgamma", "log10", "log2"):
    _register_element(_name, in_libm(_name))


# ---- signs and whole numbers ----------------------------------------------------------------------------------------


@converter("abs.default")
def _abs(t: Translation, self: relax.Expr) -> relax.Expr:
    return self if "uint" in t.dtype or t.dtype == "bool" else unary(t, op.abs, self)


@converter("sign.default")
def _sign(t: Translation, self: relax.Expr) -> relax.Expr:
    if "uint" in t.dtype or t.dtype == "bool":
        return t.cast(t.cast(self, "bool"), t.dtype)
    return unary(t, op.sign, self)


@converter("reciprocal.default")
def _reciprocal(t: Translation, self: relax.Expr) -> relax.Expr:
    return unary(t, lambda x: op.divide(relax.const(1, dtype_of(x)), x), self)


@converter("angle.default")
def _angle(t: Translation, self: relax.Expr) -> relax.Expr:
    """Pi for negative numbers, NaN for NaN, 0 otherwise."""

    def element(x: tirx.Expr) -> tirx.Expr:
        return tirx.Select(tirx.isnan(x), x, tirx.Select(x < real(0, x), real(math.pi, x), real(0, x)))

    return elementwise(t, "angle", element, self)


def _register_rounding(name: str, function: Callable[[relax.Expr], relax.Expr]) -> None:
    """Register a rounding function; integers stay unchanged."""

    @converter(f"{name}.default")
    def convert(t: Translation, self: relax.Expr) -> relax.Expr:
        return unary(t, function, self) if is_float(dtype_of(self)) else self


for _name, _function in {"ceil": op.ceil, "floor": op.floor, "round": op.round, "trunc": op.trunc}.items():
    _register_rounding(_name, _function)


@converter("round.decimals")
def _round_decimals(t: Translation, self: relax.Expr, decimals: int) -> relax.Expr:
    """Round halves to even at a digit after the decimal point or, if negative, before it."""

    def rounded(x: Value) -> relax.Expr:
        scale = relax.const(10.0 ** abs(decimals), dtype_of(x))
        if decimals < 0:
            return op.multiply(t.emit(op.round(t.emit(op.divide(x, scale)))), scale)
        return op.divide(t.emit(op.round(t.emit(op.multiply(x, scale)))), scale)

    return unary(t, rounded, self) if is_float(dtype_of(self)) else self
