"""Orthogonal polynomials by recurrence, with a number of steps given per element."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as tir

from ..translation import Translation, Value, converter
from ..types import computed_in
from .elementwise import in_libm
from .loops import looped
from .views import expanded, reshaped

Expr = Any
# Step: the next value from p, q, x and the step number, of one type. Wave: the polynomial from a float64 angle and
# degree.
Step = Callable[[Expr, Expr, Expr, Expr], Expr]
Wave = Callable[[Expr, Expr], Expr]

_cos, _sin, _acos = (in_libm(name) for name in ("cos", "sin", "acos"))
_WIDE = "float64"


def _real(value: float, like: Expr) -> Expr:
    return tirx.const(float(value), str(like.ty))


def _register(
    name: str,
    first: Callable[[Expr], Expr],
    step: Step,
    *,
    start: int,
    wave: Wave | None = None,
    shifted: bool = False,
    most: dict[str, int] | None = None,
) -> None:
    """`first`: the polynomial of degree 1. `start`: the step to degree 2. `wave`: the closed form for large degrees
    between -1 and 1. `most`: the largest degree by type, beyond which PyTorch returns NaN."""

    @converter(*(f"special_{name}.{kind}" for kind in ("default", "x_scalar", "n_scalar")))
    def convert(t: Translation, x: Value, n: Value) -> relax.Expr:
        wide = computed_in(t.dtype)
        count = prod(t.shape)
        places, degrees = (
            reshaped(t, expanded(t, t.cast(t.cast(value, t.dtype), wide), t.shape), (count,)) for value in (x, n)
        )

        def body(given: Any, degree: Any, r: Any, p: Any, q: Any, at: Any, last: Any) -> None:
            one = tirx.const(1, "int64")
            with tir.parallel(0, count) as i:
                value = given[i] + given[i] - _real(1, given[i]) if shifted else given[i]
                wanted = degree[i]
                usable = tirx.all(wanted > _real(-1, wanted), wanted < _real(2.0**62, wanted))
                last[i] = tirx.Cast("int64", tirx.Select(usable, wanted, _real(-1, wanted)))
                p[i], q[i], at[i] = _real(1, value), first(value), tirx.const(start, "int64")
                r[i] = tirx.Select(last[i] < one, _real(1, value), q[i])
                r[i] = tirx.Select(last[i] < tirx.const(0, "int64"), _real(0, value), r[i])
                if most is not None:
                    limit = tirx.const(most.get(t.dtype, most["float32"]), "int64")
                    r[i] = tirx.Select(last[i] > limit, _real(math.nan, value), r[i])
                    last[i] = tirx.min(last[i], limit)
                    over = tirx.isnan(r[i])
                    last[i] = tirx.Select(over, one, last[i])
                if wave is not None:
                    with (
                        tir.If(tirx.all(last[i] > tirx.const(8, "int64"), tirx.abs(value) < _real(1, value))),
                        tir.Then(),
                    ):
                        angle = _acos(tirx.Cast(_WIDE, value))
                        r[i] = tirx.Cast(wide, wave(angle, tirx.Cast(_WIDE, last[i])))
                        last[i] = one
                end = last[i] + tirx.const(start - 1, "int64")
                with tir.While(tirx.all(at[i] < end, tirx.Not(tirx.isnan(q[i])))):
                    r[i] = step(p[i], q[i], value, tirx.Cast(wide, at[i]))
                    p[i] = q[i]
                    q[i] = r[i]
                    at[i] = at[i] + one

        shapes = [*[((count,), wide)] * 3, *[((count,), "int64")] * 2]
        return t.cast(reshaped(t, looped(t, name, [places, degrees], shapes, body)[0], t.shape), t.dtype)


def _chebyshev(p: Expr, q: Expr, x: Expr, k: Expr) -> Expr:
    return (x + x) * q - p


def _sine_wave(angle: Expr, n: Expr) -> Expr:
    one = tirx.const(1.0, _WIDE)
    return _sin((n + one) * angle) / _sin(angle)


def _half_cosine(angle: Expr, n: Expr) -> Expr:
    half = tirx.const(0.5, _WIDE)
    return _cos((n + half) * angle) / _cos(angle * half)


def _half_sine(angle: Expr, n: Expr) -> Expr:
    half = tirx.const(0.5, _WIDE)
    return _sin((n + half) * angle) / _sin(angle * half)


for _kind, _first, _wave in (
    ("t", lambda x: x, lambda angle, n: _cos(n * angle)),
    ("u", lambda x: x + x, _sine_wave),
    ("v", lambda x: x + x - _real(1, x), _half_cosine),
    ("w", lambda x: x + x + _real(1, x), _half_sine),
):
    for _shifted in (False, True):
        _name = f"{'shifted_' if _shifted else ''}chebyshev_polynomial_{_kind}"
        _register(_name, _first, _chebyshev, start=2, wave=_wave, shifted=_shifted)

_HERMITE = {"float64": 512, "float32": 128}
_register(
    "hermite_polynomial_h",
    lambda x: x + x,
    lambda p, q, x, k: (x + x) * q - (k + k) * p,
    start=1,
    most=_HERMITE,
)
_register("hermite_polynomial_he", lambda x: x, lambda p, q, x, k: x * q - k * p, start=1, most=_HERMITE)
_register(
    "laguerre_polynomial_l",
    lambda x: _real(1, x) - x,
    lambda p, q, x, k: ((k + k + (_real(1, x) - x)) * q - k * p) / (k + _real(1, x)),
    start=1,
)
_register(
    "legendre_polynomial_p",
    lambda x: x,
    lambda p, q, x, k: ((k + k + _real(1, x)) * x * q - k * p) / (k + _real(1, x)),
    start=1,
)
