"""Parts of functions that are written as arithmetic: constants, values with names, polynomials and signs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tvm import tirx

Expr: TypeAlias = tirx.Expr


def real(value: float) -> Expr:
    return tirx.const(value, "float32")


def whole(value: int) -> Expr:
    return tirx.const(value, "int32")


def named(value: Expr, rest: Callable[[Expr], Expr]) -> Expr:
    """Bind a value to a name, so that it is computed once, and return `rest` of that name."""
    name = tirx.Var("x", str(value.ty))
    return tirx.Let(name, value, rest(name))


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Evaluate a polynomial, highest power first."""
    total: Expr = real(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + real(coefficient)
    return total


def clamped(x: Expr, least: float, most: float) -> Expr:
    """Return `x` within bounds; NaN is preserved."""
    low, high = real(least), real(most)

    def of(y: Expr) -> Expr:
        return named(tirx.Select(y < low, low, y), lambda z: tirx.Select(z > high, high, z))

    return named(x, of)


def magnitude(x: Expr) -> Expr:
    return tirx.reinterpret("float32", tirx.reinterpret("int32", x) & whole(0x7FFFFFFF))


def signed(magnitude: Expr, x: Expr) -> Expr:
    """Return the non-negative `magnitude` with the sign of `x`."""
    sign = tirx.reinterpret("int32", x) & tirx.const(-(2**31), "int32")
    return tirx.reinterpret("float32", tirx.reinterpret("int32", magnitude) | sign)
