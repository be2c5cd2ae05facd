"""Special functions of one argument, computed in float64 for all operand types and rounded once.

Functions without a short formula are piecewise polynomials: PyTorch's own float64 function is interpolated at Chebyshev
nodes on equal intervals when the program is translated. Outside the ranges, the usual scaled forms in 1/x are used. The
error is about 1e-13 relative to the function's magnitude in the neighbourhood; near zeros of the function, it is that
small in absolute terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tvm import relax, tirx

from ..translation import Translation, converter
from .elementwise import in_libm, kernel
from .tables import Table, evaluated, table

_WIDE = "float64"
Expr = Any
Special = torch.special


def n(value: float) -> Expr:
    return tirx.const(float(value), _WIDE)


def _choice(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    return tirx.Select(condition, then, otherwise)


_sin, _cos, _exp, _log, _sqrt = (in_libm(name) for name in ("sin", "cos", "exp", "log", "sqrt"))
_erf, _erfc, _log1p, _floor, _copysign = (in_libm(name) for name in ("erf", "erfc", "log1p", "floor", "copysign"))
_NAN, _INFINITY = math.nan, math.inf


def _register(name: str, element: Callable[..., Expr], *tables: Table) -> None:
    """`element` takes the number and, for each table, a function of a position in its range, whose result may occur
    only once in the expression."""

    @converter(f"{name}.default")
    def convert(t: Translation, **operand: relax.Expr) -> relax.Expr:
        (x,) = operand.values()  # its name differs between the schemas
        found = evaluated(t, name.removeprefix("special_"), element, t.cast(x, _WIDE), tables)
        return t.cast(found, t.dtype)


# ---- modified Bessel functions of the first kind ---------------------------------------------------------------------

_NEAR = 16.0  # from here on, functions are expanded in 16/x


def _scaled(function: Callable[[torch.Tensor], torch.Tensor], start: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """sqrt(x) f(x) as a function of start/x."""

    def by_inverse(v: torch.Tensor) -> torch.Tensor:
        x = start / v
        return torch.sqrt(x) * function(x)

    return by_inverse


def _exponential(near: Callable[[Expr], Expr], far: Callable[[Expr], Expr], size: Expr, start: float = _NEAR) -> Expr:
    """The scaled form of a function from its two tables, for nonnegative numbers."""
    other = far(n(start) / tirx.max(size, n(start))) / _sqrt(tirx.max(size, n(start)))
    return _choice(size < n(start), near(tirx.min(size, n(start))), other)


_I0 = table("i0e", Special.i0e, 0, _NEAR, 64), table("i0e_far", _scaled(Special.i0e, _NEAR), 0, 1, 8)
_I1 = table("i1e", Special.i1e, 0, _NEAR, 64), table("i1e_far", _scaled(Special.i1e, _NEAR), 0, 1, 8)


def _i0e(x: Expr, near: Any, far: Any) -> Expr:
    return _of_finite(x, lambda y: _exponential(near, far, tirx.abs(y)), n(0))


def _i1e(x: Expr, near: Any, far: Any) -> Expr:
    def of(y: Expr) -> Expr:
        return _copysign(_exponential(near, far, tirx.abs(y)), y)

    return _of_finite(x, of, n(0))


def _of_finite(x: Expr, function: Callable[[Expr], Expr], at_infinity: Expr) -> Expr:
    """Apply `function` to a number, or to 1 in place of NaN and infinities."""
    odd = tirx.any(tirx.isnan(x), tirx.isinf(x))
    return _choice(tirx.isnan(x), x, _choice(odd, at_infinity, function(_choice(odd, n(1), x))))


def _grown(scaled: Callable[..., Expr]) -> Callable[..., Expr]:
    # NaN for infinities, as in PyTorch.
    return lambda x, near, far: scaled(x, near, far) * _exp(tirx.abs(x))


_register("special_i0e", _i0e, *_I0)
_register("special_i1e", _i1e, *_I1)
for _name in ("i0", "special_i0", "special_modified_bessel_i0"):
    _register(_name, _grown(_i0e), *_I0)
for _name in ("special_i1", "special_modified_bessel_i1"):
    _register(_name, _grown(_i1e), *_I1)

# ---- modified Bessel functions of the second kind --------------------------------------------------------------------

_K_NEAR = 2.0


def _k0_rest(x: torch.Tensor) -> torch.Tensor:
    return Special.modified_bessel_k0(x) + torch.log(x / 2) * Special.i0(x)


def _k1_rest(x: torch.Tensor) -> torch.Tensor:
    return x * (Special.modified_bessel_k1(x) - torch.log(x / 2) * Special.i1(x))


_K0 = (
    table("k0_near", _k0_rest, 0, _K_NEAR, 16),
    table("i0_near", Special.i0, 0, _K_NEAR, 16),
    table("k0_far", _scaled(Special.scaled_modified_bessel_k0, _K_NEAR), 0, 1, 32),
)
_K1 = (
    table("k1_near", _k1_rest, 0, _K_NEAR, 16),
    table("i1_near", Special.i1, 0, _K_NEAR, 16),
    table("k1_far", _scaled(Special.scaled_modified_bessel_k1, _K_NEAR), 0, 1, 32),
)


def _second_kind(order: int, scaled: bool) -> Callable[..., Expr]:
    def element(x: Expr, rest: Any, first: Any, far: Any) -> Expr:
        small = tirx.max(tirx.min(x, n(_K_NEAR)), n(1e-300))
        logarithm = _log(small * n(0.5)) * first(small)
        near = rest(small) - logarithm if order == 0 else rest(small) / small + logarithm
        large = tirx.max(x, n(_K_NEAR))
        beyond = far(n(_K_NEAR) / large) / _sqrt(large)
        near = near * _exp(small) if scaled else near
        beyond = beyond if scaled else beyond * _exp(n(0) - large)
        found = _choice(x <= n(_K_NEAR), near, _choice(tirx.isinf(x), n(0), beyond))
        found = _choice(tirx.EQ(x, n(0)), n(_INFINITY), found)
        return _choice(tirx.any(x < n(0), tirx.isnan(x)), n(_NAN), found)

    return element


for _order, _tables in ((0, _K0), (1, _K1)):
    _register(f"special_modified_bessel_k{_order}", _second_kind(_order, False), *_tables)
    _register(f"special_scaled_modified_bessel_k{_order}", _second_kind(_order, True), *_tables)

# ---- Bessel functions ------------------------------------------------------------------------------------------------


def _wave(order: int, part: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The slowly varying factors of J and Y for large x: J = sqrt(2/(pi x)) (P cos - Q sin), Y = sqrt(2/(pi x)) (P sin
    + Q cos) of x - phase. Q is divided by 16/x."""
    first, second = ((Special.bessel_j0, Special.bessel_y0), (Special.bessel_j1, Special.bessel_y1))[order]

    def by_inverse(v: torch.Tensor) -> torch.Tensor:
        x = _NEAR / v
        angle = x - math.pi / 4 * (1 + 2 * order)
        size = torch.sqrt(x * (math.pi / 2))
        j, y = first(x) * size, second(x) * size
        return (j * torch.cos(angle) + y * torch.sin(angle), y * torch.cos(angle) - j * torch.sin(angle))[part]

    return by_inverse


def _waves(order: int) -> tuple[Table, Table]:
    # At very large x, the angle loses precision; the functions vary little there.
    return table(f"bessel_p{order}", _wave(order, 0), 1 / 64, 1, 16), table(
        f"bessel_q{order}", _wave(order, 1), 1 / 64, 1, 16
    )


def _far_waves(x: Expr, p: Any, q: Any, order: int, second: bool) -> Expr:
    v = n(_NEAR) / tirx.max(x, n(_NEAR))
    square = v * v * n(1 / _NEAR**2)
    # Outside the table, the first terms of the expansion in 1/x are sufficiently accurate.
    m = 4.0 * order * order
    c2 = (m - 1) * (m - 9) / 128
    c4 = (m - 1) * (m - 9) * (m - 25) * (m - 49) / 98304
    d1 = (m - 1) / 8
    d3 = (m - 1) * (m - 9) * (m - 25) / 3072
    d5 = (m - 1) * (m - 9) * (m - 25) * (m - 49) * (m - 81) / 3932160
    inside = v >= n(1 / 64)
    near = tirx.max(v, n(1 / 64))
    slow = _choice(inside, p(near), n(1) - square * (n(c2) - square * n(c4)))
    fast = _choice(inside, q(near), v * n(1 / _NEAR) * (n(d1) - square * (n(d3) - square * n(d5))))
    angle = x - n(math.pi / 4 * (1 + 2 * order))
    cosine, sine = _cos(angle), _sin(angle)
    wave = slow * sine + fast * cosine if second else slow * cosine - fast * sine
    return wave * _sqrt(n(2 / math.pi) / tirx.max(x, n(_NEAR)))


def _first_kind(order: int) -> Callable[..., Expr]:
    def element(x: Expr, near: Any, p: Any, q: Any) -> Expr:
        def of(y: Expr) -> Expr:
            size = tirx.abs(y)
            inner, outer = near(tirx.min(size, n(_NEAR))), _far_waves(size, p, q, order, False)
            found = _choice(size < n(_NEAR), inner, outer)
            return found * _copysign(n(1), y) if order else found

        return _of_finite(x, of, n(_NAN))

    return element


def _y0_rest(x: torch.Tensor) -> torch.Tensor:
    return Special.bessel_y0(x) - 2 / math.pi * torch.log(x) * Special.bessel_j0(x)


def _y1_rest(x: torch.Tensor) -> torch.Tensor:
    return Special.bessel_y1(x) - 2 / math.pi * (torch.log(x) * Special.bessel_j1(x) - 1 / x)


def _other_kind(order: int) -> Callable[..., Expr]:
    def element(x: Expr, first: Any, rest: Any, p: Any, q: Any) -> Expr:
        def of(y: Expr) -> Expr:
            small = tirx.max(tirx.min(y, n(_NEAR)), n(1e-300))
            grown = _log(small) * first(small)
            grown = grown - n(1) / small if order else grown
            near = rest(small) + n(2 / math.pi) * grown
            return _choice(y < n(_NEAR), near, _far_waves(y, p, q, order, True))

        found = _of_finite(x, of, n(_NAN))
        found = _choice(tirx.EQ(x, n(0)), n(-_INFINITY), found)
        return _choice(x < n(0), n(_NAN), found)

    return element


_J = table("bessel_j0", Special.bessel_j0, 0, _NEAR, 64), table("bessel_j1", Special.bessel_j1, 0, _NEAR, 64)
_Y = table("bessel_y0", _y0_rest, 0, _NEAR, 64), table("bessel_y1", _y1_rest, 0, _NEAR, 64)
for _order in (0, 1):
    _register(f"special_bessel_j{_order}", _first_kind(_order), _J[_order], *_waves(_order))
    _register(f"special_bessel_y{_order}", _other_kind(_order), _J[_order], _Y[_order], *_waves(_order))


def _spherical(x: Expr) -> Expr:
    """sin(x)/x."""
    square = x * x
    near = n(1) - square * n(1 / 6) * (n(1) - square * n(1 / 20) * (n(1) - square * n(1 / 42)))
    far = _sin(x) / _choice(tirx.EQ(x, n(0)), n(1), x)
    return _choice(tirx.isinf(x), n(0), _choice(tirx.abs(x) < n(0.02), near, far))


_register("special_spherical_bessel_j0", _spherical)

# ---- the Airy function -----------------------------------------------------------------------------------------------

_AIRY_NEAR = 2.09  # PyTorch switches to another expansion here, which differs by up to 3e-6 on the negative side
_AIRY_ZERO = 103.892  # from here on PyTorch returns 0


def _airy_angle(x: float) -> float:
    return 2 / 3 * x**1.5


_AIRY_FAR = _airy_angle(_AIRY_NEAR)


def _airy_by_inverse(v: torch.Tensor) -> torch.Tensor:
    """x^(1/4) e^angle Ai(x) for v = _AIRY_FAR/angle."""
    angle = _AIRY_FAR / v
    x = (1.5 * angle) ** (2 / 3)
    return Special.airy_ai(x) * torch.exp(angle) * x**0.25


_AIRY = (
    table("airy", Special.airy_ai, -_AIRY_NEAR, _AIRY_NEAR, 16),
    table("airy_left", Special.airy_ai, -_NEAR, -_AIRY_NEAR, 128),
    table("airy_right", _airy_by_inverse, _AIRY_FAR / (_airy_angle(_AIRY_ZERO) - 1), 1, 32),
)


def _airy(x: Expr, near: Any, left: Any, right: Any) -> Expr:
    def of(y: Expr) -> Expr:
        size = tirx.max(tirx.abs(y), n(_AIRY_NEAR))
        angle = size * _sqrt(size) * n(2 / 3)
        root = _sqrt(_sqrt(size))
        decay = right(n(_AIRY_FAR) / angle) * _exp(n(0) - angle) / root
        decay = _choice(y > n(_AIRY_ZERO), n(0), decay)
        turned = angle - n(math.pi / 4)
        even, odd = _airy_expansion(n(1) / tirx.max(angle, n(_airy_angle(_NEAR))))
        wave = (_cos(turned) * even + _sin(turned) * odd) / (root * n(math.sqrt(math.pi)))
        inner = left(tirx.max(tirx.min(y, n(-_AIRY_NEAR)), n(-_NEAR)))
        middle = near(tirx.max(tirx.min(y, n(_AIRY_NEAR)), n(-_AIRY_NEAR)))
        negative = _choice(y < n(-_NEAR), wave, _choice(y < n(-_AIRY_NEAR), inner, middle))
        return _choice(y > n(_AIRY_NEAR), decay, negative)

    return _of_finite(x, of, n(_NAN))


def _airy_expansion(v: Expr) -> tuple[Expr, Expr]:
    """The even and odd parts of the asymptotic expansion in v = 1/angle, with signs that alternate in pairs."""
    terms = [1.0]
    for k in range(1, 12):
        terms.append(terms[-1] * (6 * k - 5) * (6 * k - 1) / (72 * k))
    square, parts = v * v, []
    for first in (0, 1):
        total = n(0)
        for k in reversed(range(first, len(terms), 2)):
            total = n(terms[k]) - total * square
        parts.append(total)
    return parts[0], parts[1] * v


_register("special_airy_ai", _airy, *_AIRY)

# ---- the normal distribution -----------------------------------------------------------------------------------------


def _erfcx_by_share(u: torch.Tensor) -> torch.Tensor:
    """erfcx(x) / u for u = 4/(4 + x)."""
    return Special.erfcx(4 / u - 4) / u


_ERFCX = table("erfcx", _erfcx_by_share, 0, 1, 64)


def _erfcx(x: Expr, by_share: Any) -> Expr:
    share = n(4) / (n(4) + tirx.abs(x))
    found = by_share(share) * share * _choice(x < n(0), n(-1), n(1)) + _choice(x < n(0), n(2) * _exp(x * x), n(0))
    return _choice(tirx.isnan(x), x, found)


def _log_ndtr(x: Expr, by_share: Any) -> Expr:
    place = x * n(math.sqrt(0.5))
    below = tirx.max(n(0) - place, n(0))
    share = n(4) / (n(4) + below)
    left = _log(by_share(share) * share * n(0.5)) - place * place
    return _choice(x < n(-1), left, _log1p(n(-0.5) * _erfc(place)))


_register("special_erfcx", _erfcx, _ERFCX)
_register("special_log_ndtr", _log_ndtr, _ERFCX)


def _ndtri_by_size(s: torch.Tensor) -> torch.Tensor:
    """ndtri(e^(-s^2/2)) by Newton's method on the logarithm, which does not underflow."""
    found = -s
    for _ in range(12):
        logarithm = Special.log_ndtr(found)
        slope = torch.exp(found * found * -0.5 - logarithm) / math.sqrt(2 * math.pi)
        found = found - (logarithm + s * s * 0.5) / slope
    return found


_NDTRI = table("ndtri", Special.ndtri, 0.1, 0.9, 32), table("ndtri_far", _ndtri_by_size, 1.9, 39, 128)


def _ndtri(y: Expr, near: Any, far: Any) -> Expr:
    least = tirx.min(y, n(1) - y)
    size = _sqrt(n(-2) * _log(tirx.max(least, n(5e-324))))
    tail = far(tirx.max(tirx.min(size, n(39)), n(1.9)))
    tail = tail * _choice(y > n(0.5), n(-1), n(1))
    found = _choice(least > n(0.13), near(tirx.max(tirx.min(y, n(0.9)), n(0.1))), tail)
    found = _choice(tirx.EQ(y, n(0)), n(-_INFINITY), _choice(tirx.EQ(y, n(1)), n(_INFINITY), found))
    return _choice(tirx.any(y < n(0), y > n(1), tirx.isnan(y)), n(_NAN), found)


_register("special_ndtri", _ndtri, *_NDTRI)


def _erfinv_by_size(s: torch.Tensor) -> torch.Tensor:
    return Special.erfinv(-torch.expm1(-s * s))


_ERFINV = table("erfinv", Special.erfinv, 0, 0.8, 32), table("erfinv_far", _erfinv_by_size, 1, 6, 64)


def _erfinv(y: Expr, near: Any, far: Any) -> Expr:
    size = tirx.abs(y)
    rest = tirx.max(n(1) - size, n(1e-16))
    tail = far(tirx.max(tirx.min(_sqrt(n(0) - _log(rest)), n(6)), n(1)))
    return _copysign(_choice(size < n(0.7), near(tirx.min(size, n(0.8))), tail), y)


def _step(y: Expr, found: Expr) -> Expr:
    """One step of Newton's method, which restores the digits lost near 1."""
    better = found - (_erf(found) - y) * n(math.sqrt(math.pi) / 2) * _exp(found * found)
    better = _choice(tirx.EQ(tirx.abs(y), n(1)), _copysign(n(_INFINITY), y), better)
    return _choice(tirx.any(tirx.abs(y) > n(1), tirx.isnan(y)), n(_NAN), better)


@converter("erfinv.default", "special_erfinv.default")
def _inverse_error(t: Translation, self: relax.Expr) -> relax.Expr:
    y = t.cast(self, _WIDE)
    return t.cast(kernel(t, "erfinv_step", _step, y, evaluated(t, "erfinv", _erfinv, y, _ERFINV)), t.dtype)
