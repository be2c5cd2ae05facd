"""Sigmoid and tanh for recurrent cells, from e^-x and e^2x - 1 within bounds, as statements of one vector each.

    sigmoid(x) = 1 / (1 + e^-x)        tanh(x) = m / (m + 2),  m = e^2x - 1

Beyond +-64 the sigmoid is at most 2e-28 from its limit, which is negligible in a float32 sum, and beyond 9.02 tanh is
1. Within these bounds 2^n is a normal number, so one addition to a number's exponent multiplies by it, and products of
two denominators do not overflow, so i * tanh(g) and o * tanh(c) need one division each. m keeps its digits near 0: with
2^n = 1 it is the polynomial itself. Both functions are within 2.5 units in the last place. A step of an LSTM takes half
the instructions of sigmoid and tanh with unbounded arguments (vector_math.py). NaN stays NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from tvm import tirx

from .arithmetic import clamped, polynomial
from .vector_math import EXP_POLYNOMIAL, LN2_HIGH, LN2_LOW, TANH_BOUND
from .whole_numbers import ROUNDING

Expr: TypeAlias = tirx.Expr
Value: TypeAlias = Callable[[Expr], Expr]  # one value per lane
Keep: TypeAlias = Callable[[Value], tirx.Var]  # stores a vector of values in a register

KIND = "float32"
_SIGMOID_BOUND = 64.0
_ONE_BITS = 0x3F800000


def falling(keep: Keep, x: Value) -> tirx.Var:
    """Return e^-x; 1 / (1 + e^-x) is the sigmoid."""
    power, rest = _reduced(keep, lambda lane: _real(0.0) - x(lane), _SIGMOID_BOUND)
    value = keep(lambda lane: rest[lane] + _real(1.0))
    return keep(lambda lane: tirx.reinterpret(KIND, _exponent(power[lane]) + tirx.reinterpret("int32", value[lane])))


def rising(keep: Keep, x: Value) -> tirx.Var:
    """Return e^2x - 1 = m; m / (m + 2) is tanh."""
    power, rest = _reduced(keep, lambda lane: x(lane) + x(lane), 2 * TANH_BOUND)
    scale = keep(lambda lane: tirx.reinterpret(KIND, _exponent(power[lane]) + _whole(_ONE_BITS)))
    return keep(lambda lane: scale[lane] * rest[lane] + (scale[lane] - _real(1.0)))


def _reduced(keep: Keep, x: Value, bound: float) -> tuple[tirx.Var, tirx.Var]:
    """Return a number whose lowest bits are n, and e^r - 1, where x within the bounds is n ln 2 + r."""
    within = keep(lambda lane: clamped(x(lane), -bound, bound))
    power = keep(lambda lane: within[lane] * _real(1 / math.log(2)) + _real(ROUNDING))
    n = keep(lambda lane: power[lane] - _real(ROUNDING))
    r = keep(lambda lane: (within[lane] - n[lane] * _real(LN2_HIGH)) - n[lane] * _real(LN2_LOW))
    return power, keep(lambda lane: polynomial(r[lane], EXP_POLYNOMIAL) * (r[lane] * r[lane]) + r[lane])


def _exponent(power: Expr) -> Expr:
    """Return n at the position of a float's exponent; the bits above n are those of ROUNDING, which are shifted out."""
    return tirx.shift_left(tirx.reinterpret("int32", power), _whole(23))


def _real(value: float) -> Expr:
    return tirx.const(value, KIND)


def _whole(value: int) -> Expr:
    return tirx.const(value, "int32")
