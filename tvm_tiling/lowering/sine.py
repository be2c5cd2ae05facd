"""sin and cos of float32 as arithmetic that LLVM vectorises, for every argument.

x * 2 / pi = n + r with an integer n and |r| <= 1/2 is computed in float64. The bits of 2 / pi are in pieces of 27, so
that their products with a float32 are exact. Pieces whose products are multiples of 4, whole turns, are left out; the
next three suffice. Except for 0, no float32 is closer to a multiple of pi / 2 than 2^-30, and r is within 2^-53 of its
value. Then sin or cos of r pi / 2 is a polynomial from S. Moshier's Cephes library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

from tvm import tirx

from .arithmetic import magnitude, named, polynomial, real, whole

Expr: TypeAlias = tirx.Expr

_TWO_OVER_PI = 0xA2F9836E_4E441529_FC2757D1_F534DDC0_DB629599_3C439041_FE5163AB  # times 2^-224
_BITS, _PIECE = 224, 27
_RANGES = 4
# Adding this number rounds a float64 to a multiple of 4, and a quarter of it to an integer, in the sum's lowest bits.
_TO_TURNS = 1.5 * 2.0**54
_SMALL = 2.0**-13  # up to here, sin(x) is x within a tenth of a unit in the last place
_SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


def sine(x: Expr) -> Expr:
    """Return sin(x), within 2 units in the last place; NaN for infinities."""
    # The sum of the polynomial's terms would be 0 for -0.
    return named(x, lambda y: tirx.Select(magnitude(y) < real(_SMALL), y, _turned(y, 0)))


def cosine(x: Expr) -> Expr:
    """Return cos(x), within 2 units in the last place; NaN for infinities."""
    return _turned(x, 1)


def _turned(x: Expr, quarters: int) -> Expr:
    """Return sin(x + quarters * pi / 2)."""

    def of(angle: Expr, quarter: Expr, square: Expr) -> Expr:
        odd = polynomial(square, _SINE) * square * angle + angle
        even = polynomial(square, _COSINE) * square * square + (real(1.0) - real(0.5) * square)
        sign = tirx.shift_left(tirx.bitwise_and(quarter, whole(2)), whole(30))
        value = tirx.Select(tirx.EQ(tirx.bitwise_and(quarter, whole(1)), whole(0)), odd, even)
        return tirx.reinterpret("float32", tirx.bitwise_xor(tirx.reinterpret("int32", value), sign))

    def reduced(rest: Expr, rounded: Expr) -> Expr:
        bits = tirx.Cast("int32", tirx.reinterpret("int64", rounded))

        def of_quarter(angle: Expr, quarter: Expr) -> Expr:
            return named(angle * angle, lambda square: of(angle, quarter, square))

        angle = tirx.Cast("float32", rest * _wide(math.pi / 2))
        return named(angle, lambda a: named(bits + whole(quarters), lambda quarter: of_quarter(a, quarter)))

    return named(x, lambda y: _quarters(y, reduced))


def _quarters(x: Expr, reduced: Callable[[Expr, Expr], Expr]) -> Expr:
    """Return reduced(r, n + 1.5 * 2^52), where x * 2 / pi = n + r up to whole turns."""

    def of_products(first: Expr, second: Expr, third: Expr) -> Expr:
        return named(
            first + _wide(_TO_TURNS),
            lambda turns: named((first - (turns - _wide(_TO_TURNS))) + second, lambda most: of_most(most, third)),
        )

    def of_most(most: Expr, third: Expr) -> Expr:
        return named(
            (most + third) + _wide(_TO_TURNS / 4),
            lambda rounded: named(rounded - _wide(_TO_TURNS / 4), lambda n: reduced((most - n) + third, rounded)),
        )

    def of_size(size: Expr) -> Expr:
        wide = tirx.Cast("float64", x)
        first, second, third = (wide * _piece(size, which) for which in range(3))
        return named(first, lambda a: named(second, lambda b: named(third, lambda c: of_products(a, b, c))))

    return named(magnitude(x), of_size)


def _piece(size: Expr, which: int) -> Expr:
    """Return the piece of 2 / pi that is multiplied by numbers of this size as the first, second or third one.

    From 2^(27 i + 25) on, the last bit of a float32 has a weight of at least 2^(27 i + 2): its products with the first
    i pieces are multiples of 4.
    """
    value: Expr = _wide(_two_over_pi(_RANGES - 1 + which, which == 2))
    for skipped in reversed(range(_RANGES - 1)):
        bound = real(2.0 ** (_PIECE * (skipped + 1) + 25))
        value = tirx.Select(size < bound, _wide(_two_over_pi(skipped + which, which == 2)), value)
    return value


def _two_over_pi(index: int, with_rest: bool) -> float:
    """Return the bits of a piece of 2 / pi; with the rest, all bits from there on, rounded to float64."""
    behind = _BITS - _PIECE * index
    bits = _TWO_OVER_PI % (1 << behind)
    if not with_rest:
        bits = bits >> (behind - _PIECE) << (behind - _PIECE)
    return float(Fraction(bits, 1 << _BITS))


def _wide(value: float) -> Expr:
    return tirx.const(value, "float64")
