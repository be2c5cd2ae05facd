"""Gamma-related functions and the Hurwitz zeta function, computed in float64 for all operand types."""

from __future__ import annotations

import math
from math import prod
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as tir

from ..translation import Translation, Value, converter
from .elementwise import in_libm, kernel
from .loops import looped
from .views import expanded, reshaped

Expr = Any
_WIDE = "float64"
_LEAST = 1.2e-16  # relative size below which a term is negligible
_log, _exp, _pow, _sin, _tan, _lgamma, _floor = (
    in_libm(name) for name in ("log", "exp", "pow", "sin", "tan", "lgamma", "floor")
)

# Coefficients of the sum over k of B_2k / (2k)! f^(2k-1): Bernoulli numbers over factorials.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)


def n(value: float) -> Expr:
    return tirx.const(float(value), _WIDE)


# ---- digamma and polygamma -------------------------------------------------------------------------------------------


def _of_positive(x: Expr) -> Expr:
    """digamma by its asymptotic expansion at x + 10."""
    far = x + n(10)
    square = n(1) / (far * far)
    series = n(0)
    for k in range(7, 0, -1):
        series = (series + n(_BERNOULLI[k - 1] / (2 * k))) * square
    found = _log(far) - n(0.5) / far - series
    for k in range(10):
        found = found - n(1) / (x + n(k))
    return found


def _digamma_of(x: Expr) -> Expr:
    positive = x > n(0)
    whole = tirx.EQ(x, _floor(x))
    rest = x - tirx.trunc(x)
    size = tirx.Select(positive, x, n(1) - x)
    found = _of_positive(size)
    turned = found - n(math.pi) / _tan(n(math.pi) * tirx.Select(whole, n(0.5), rest))
    found = tirx.Select(positive, found, tirx.Select(whole, n(math.nan), turned))
    found = tirx.Select(tirx.EQ(x, n(0)), in_libm("copysign")(n(math.inf), n(0) - x), found)
    return tirx.Select(tirx.EQ(x, n(math.inf)), x, found)


@converter("digamma.default", "special_digamma.default", "special_psi.default")
def _digamma(t: Translation, self: relax.Expr) -> relax.Expr:
    return t.cast(kernel(t, "digamma", _digamma_of, t.cast(self, _WIDE)), t.dtype)


@converter("polygamma.default", "special_polygamma.default")
def _polygamma(t: Translation, n: int, self: relax.Expr) -> relax.Expr:
    """The n-th derivative of digamma."""
    if n == 0:
        return _digamma(t, self)
    if n == 1:
        return t.cast(kernel(t, "trigamma", _trigamma, t.cast(self, _WIDE)), t.dtype)
    x = t.cast(self, _WIDE)
    order = t.cast(float(n + 1), _WIDE)
    factor = math.factorial(n) * (1 if n % 2 else -1) if n < 170 else math.inf * (1 if n % 2 else -1)
    zeta = _zeta_of(t, order, x)
    return t.cast(kernel(t, "polygamma", lambda z: tirx.const(float(factor), _WIDE) * z, zeta), t.dtype)


def _trigamma(x: Expr) -> Expr:
    below = x < n(0.5)
    size = tirx.Select(below, n(1) - x, x)
    far = size + n(10)
    inverse = n(1) / far
    square = inverse * inverse
    series = n(0)
    for k in range(7, 0, -1):
        series = (series + n(_BERNOULLI[k - 1])) * square
    found = inverse + n(0.5) * square + series * inverse
    for k in range(10):
        found = found + n(1) / ((size + n(k)) * (size + n(k)))
    sine = _sin(n(math.pi) * x)
    return tirx.Select(below, n(math.pi**2) / (sine * sine) - found, found)


# ---- zeta ------------------------------------------------------------------------------------------------------------


def _lined(t: Translation, value: Value, shape: tuple[int, ...]) -> relax.Expr:
    return reshaped(t, expanded(t, t.cast(value, _WIDE), shape), (prod(shape),))


@converter("special_zeta.default", "special_zeta.self_scalar", "special_zeta.other_scalar")
def _zeta(t: Translation, self: Value, other: Value) -> relax.Expr:
    return t.cast(_zeta_of(t, self, other), t.dtype)


def _zeta_of(t: Translation, order: Value, start: Value) -> relax.Expr:
    """The sum of (start + k)^-order over k = 0, 1, ...: terms up to 9, then the Euler-Maclaurin expansion."""
    count = prod(t.shape)

    def body(x: Any, q: Any, total: Any, at: Any, term: Any, left: Any) -> None:
        with tir.parallel(0, count) as i:
            total[i] = _pow(q[i], n(0) - x[i])
            at[i], term[i], left[i] = q[i], n(1), n(9)
            # At least 9 terms, and then until they are negligible.
            with tir.While(
                tirx.all(tirx.any(left[i] > n(0), at[i] <= n(9)), tirx.abs(term[i]) > n(_LEAST) * tirx.abs(total[i]))
            ):
                at[i] = at[i] + n(1)
                left[i] = left[i] - n(1)
                term[i] = _pow(at[i], n(0) - x[i])
                total[i] = total[i] + term[i]
            with tir.If(tirx.abs(term[i]) > n(_LEAST) * tirx.abs(total[i])), tir.Then():
                total[i] = total[i] + term[i] * at[i] / (x[i] - n(1)) - n(0.5) * term[i]
                # left is x (x+1) ... over a factorial
                left[i] = x[i]
                for k, bernoulli in enumerate(_BERNOULLI, 1):
                    term[i] = term[i] / at[i]
                    total[i] = total[i] + n(bernoulli) * left[i] * term[i] / n(math.factorial(2 * k))
                    term[i] = term[i] / at[i]
                    left[i] = left[i] * (x[i] + n(2 * k - 1)) * (x[i] + n(2 * k))
            whole = tirx.EQ(q[i], _floor(q[i]))
            pole = tirx.Select(whole, n(math.inf), n(math.nan))
            undefined = tirx.all(q[i] <= n(0), tirx.any(whole, tirx.Not(tirx.EQ(x[i], _floor(x[i])))))
            total[i] = tirx.Select(undefined, pole, total[i])
            total[i] = tirx.Select(x[i] < n(1), n(math.nan), total[i])
            total[i] = tirx.Select(tirx.EQ(x[i], n(1)), n(math.inf), total[i])

    operands = [_lined(t, order, t.shape), _lined(t, start, t.shape)]
    found = looped(t, "zeta", operands, [((count,), _WIDE)] * 4, body)[0]
    return reshaped(t, found, t.shape)


# ---- incomplete gamma ------------------------------------------------------------------------------------------------

_MOST = 2000  # terms
_HUGE = 4503599627370496.0


def _register(name: str, *, upper: bool) -> None:
    @converter(f"{name}.default", f"special_{name.replace('igamma', 'gammainc')}.default")
    def convert(t: Translation, self: relax.Expr, other: relax.Expr) -> relax.Expr:
        count = prod(t.shape)
        rooms = [((count,), _WIDE)] * 8
        operands = [_lined(t, self, t.shape), _lined(t, other, t.shape)]
        found = looped(t, name, operands, rooms, lambda *buffers: _incomplete(count, upper, *buffers))[0]
        return t.cast(reshaped(t, found, t.shape), t.dtype)


def _incomplete(
    count: int,
    upper: bool,
    a: Any,
    x: Any,
    result: Any,
    term: Any,
    k: Any,
    p0: Any,
    p1: Any,
    q0: Any,
    q1: Any,
    last: Any,
) -> None:
    """The regularised incomplete gamma function: the lower one, or the upper one with `upper`."""
    with tir.parallel(0, count) as i:
        factor = _exp(a[i] * _log(x[i]) - x[i] - _lgamma(a[i]))
        k[i] = n(0)
        with tir.If(tirx.any(x[i] <= n(1), x[i] <= a[i])):
            with tir.Then():
                # x^a e^-x / gamma(a+1) (1 + x/(a+1) + x^2/((a+1)(a+2)) + ...)
                term[i], result[i] = n(1), n(1)
                with tir.While(tirx.all(term[i] > n(_LEAST) * result[i], k[i] < n(_MOST))):
                    k[i] = k[i] + n(1)
                    term[i] = term[i] * x[i] / (a[i] + k[i])
                    result[i] = result[i] + term[i]
                result[i] = result[i] * factor / a[i]
                if upper:
                    result[i] = n(1) - result[i]
            with tir.Else():
                # The continued fraction of the upper function.
                p0[i], q0[i], p1[i], q1[i] = n(1), x[i], x[i] + n(1), (x[i] - a[i] + n(2)) * x[i]
                result[i], term[i] = p1[i] / q1[i], n(1)
                with tir.While(tirx.all(term[i] > n(_LEAST), k[i] < n(_MOST))):
                    k[i] = k[i] + n(1)
                    y = n(1) - a[i] + k[i]
                    z = x[i] - a[i] + n(2) * k[i] + n(2)
                    last[i] = p1[i]
                    p1[i] = p1[i] * z - p0[i] * y * k[i]
                    p0[i] = last[i]
                    last[i] = q1[i]
                    q1[i] = q1[i] * z - q0[i] * y * k[i]
                    q0[i] = last[i]
                    last[i] = p1[i] / q1[i]
                    term[i] = tirx.abs((result[i] - last[i]) / last[i])
                    result[i] = last[i]
                    with tir.If(tirx.abs(p1[i]) > n(_HUGE)), tir.Then():
                        for buffer in (p0, p1, q0, q1):
                            buffer[i] = buffer[i] / n(_HUGE)
                result[i] = result[i] * factor
                if not upper:
                    result[i] = n(1) - result[i]
        low, high = (n(1), n(0)) if upper else (n(0), n(1))
        none = n(math.nan)
        result[i] = tirx.Select(tirx.EQ(x[i], n(0)), low, result[i])
        result[i] = tirx.Select(tirx.isinf(x[i]), high, result[i])
        result[i] = tirx.Select(tirx.isinf(a[i]), tirx.Select(tirx.isinf(x[i]), none, low), result[i])
        result[i] = tirx.Select(tirx.EQ(a[i], n(0)), tirx.Select(x[i] > n(0), high, none), result[i])
        bad = tirx.any(x[i] < n(0), a[i] < n(0), tirx.isnan(x[i]), tirx.isnan(a[i]))
        result[i] = tirx.Select(bad, none, result[i])


_register("igamma", upper=False)
_register("igammac", upper=True)
