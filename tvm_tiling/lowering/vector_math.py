"""exp, log, sin, cos, tanh, sinh, cosh, erf and sigmoid of float32 as plain arithmetic, which LLVM vectorises.

LLVM turns a vector of C library calls into one scalar call per lane, ten times slower than these. Each function is
correct at infinities and NaN, exact at 0 (except for the sign of tanh's zero), and within 2 units in the last place of
the true value, tanh and sigmoid within 3. float16 is computed in float32 and rounded once.

exp: x = n ln 2 + r with an integer n, |r| <= ln 2 / 2; a polynomial in r times 2^n, in two factors, since 2^128 and
2^-149 are products of two float32 numbers but not representable by one. n is rounded by adding 1.5 * 2^23, which leaves
no fraction bits; the sum's lowest bits are n as an integer. log reverses the same steps. The polynomial of exp is a
minimax approximation with an error of 3e-9; that of log is from S. Moshier's Cephes library, those of erf
from N. Juffa.

sigmoid is c / (c + c e^-x), with a power of two c for which no term overflows where the result is not 0, and tanh is
m / (m + 2) with m = e^2x - 1, which keeps its digits near 0. On Zen 5 a vector division takes as long as three other
instructions. It takes 16 cycles for 16 lanes on Intel's cores, as long as the polynomials for 1 / (1 + e) and the two
cases of sign that other formulas need.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

from .arithmetic import clamped, magnitude, named, polynomial, real, signed, whole
from .sine import cosine, sine
from .whole_numbers import ROUNDING, ROUNDING_BITS, with_whole_numbers

Expr: TypeAlias = tirx.Expr

LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
# Beyond these bounds exp is infinite or zero; within them, 2^n is a product of two normal numbers.
_EXP_LEAST, _EXP_MOST = -104.0, 89.0
EXP_POLYNOMIAL = (1.3814598593e-3, 8.3687169665e-3, 4.1668388053e-2, 1.6666520631e-1, 4.9999993448e-1)
# e^-x is negligible beside 1 above 70; below -104 the sigmoid is 0. Within these bounds e^-x / 2^24 is a normal number.
_SIGMOID_LEAST, _SIGMOID_MOST, _SIGMOID_POWER = -104.0, 70.0, 24
TANH_BOUND = 9.25  # beyond, tanh is 1
_LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
# Integers of the same size as the loaded element.
_WORDS = {
    "float32": "int32",
    "int32": "int32",
    "float16": "int16",
    "int8": "int8",
    "uint8": "int8",
}
_SINH = (2.03721912945e-4, 8.33028376239e-3, 1.66667160211e-1)
_ERF_NEAR, _ERF_ONE = 0.921875, 3.925
_ERF = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
_ERF_FAR = (
    -1.72853470e-5,
    3.83197126e-4,
    -3.88396438e-3,
    2.42546219e-2,
    -1.06777877e-1,
    -6.34846687e-1,
    -1.28717512e-1,
)


def with_vector_math(expr: Expr) -> Expr:
    """Return `expr` with each supported function of float32 or float16 expanded, squares and cubes as products, and
    rounding to the nearest integer by LLVM's intrinsic, since TVM does not vectorise its own.

    A function of a function stays a call, except for the logarithm: TVM's analyzer inlines named values (_apart), so
    compilation would take minutes. Callers that can keep values in registers between statements get these calls from
    nested_functions(). Functions of bfloat16 read from memory stay calls too: TVM computes them in another type, which
    repeats operands, and can neither repeat names bound inside nor change their types.
    """
    if isinstance(expr, tirx.Cast) and (str(expr.ty), str(expr.value.ty)) == ("bfloat16", "float32"):
        return as_bfloat16(expr.value)
    if holds_bfloat16(expr):
        return expr

    def written(call: Call) -> Expr:
        name, kind = getattr(call.op, "name", ""), str(call.ty)
        if name == "tirx.nearbyint" and kind in ("float32", "float64"):
            return tirx.call_llvm_pure_intrin(kind, "llvm.nearbyint", *call.args)
        function = _FUNCTIONS.get(name)
        if function is None or kind not in ("float32", "float16"):
            return call
        if call.op.name != "tirx.log" and any(holds_names(a) for a in call.args):
            return call
        arguments = [a if kind == "float32" else tirx.Cast("float32", a) for a in call.args]
        value = function(*arguments)
        if value is None:
            return call
        value = _apart(value)
        return value if kind == "float32" else tirx.Cast(kind, value)

    return tvm_ffi.structural_map(with_whole_numbers(expr), (Call, written))


def as_bfloat16(value: Expr) -> Expr:
    """Return a float32 `value` as bfloat16 with its functions expanded: rounded to nearest, ties to even, NaN
    preserved.

    TVM's own rounding repeats its operand, which is impossible if it contains names, and turns some NaNs into infinity.
    Here only the final word, which is stored, has that type.
    """
    if holds_bfloat16(value):
        return tirx.Cast("bfloat16", value)
    return tirx.reinterpret("bfloat16", rounded_bits(value))


def rounded_bits(value: Expr) -> Expr:
    """Return the bits of a float32 `value` in bfloat16 as uint16, with its functions expanded."""
    return _apart(named(tirx.reinterpret("int32", with_vector_math(value)), nearest_bits))


def nearest_bits(bits: Expr) -> Expr:
    """Return the bits in bfloat16, as uint16, of a float32 with these bits, which are repeated."""
    odd = tirx.bitwise_and(tirx.shift_right(bits, whole(16)), whole(1))
    nearest = tirx.shift_right(bits + odd + whole(0x7FFF), whole(16))
    is_nan = tirx.bitwise_and(bits, whole(0x7FFFFFFF)) > whole(0x7F800000)
    return tirx.Cast("uint16", tirx.Select(is_nan, whole(0x7FC0), nearest))


def holds_bfloat16(expr: Expr) -> bool:
    """Return whether any part of `expr` has type bfloat16."""
    found: list[object] = []

    def note(node: Expr) -> None:
        if str(node.ty).startswith("bfloat16"):
            found.append(node)

    tvm_ffi.structural_walk(expr, (tirx.Expr, note))
    return bool(found)


def nested_functions(expr: Expr) -> list[Call]:
    """Return the calls in `expr` of supported functions that are within the argument of another, innermost first."""
    found: list[Call] = []

    def note(call: Call) -> None:
        if not _is_supported(call):
            return
        for argument in call.args:
            tvm_ffi.structural_walk(argument, (Call, add))

    def add(call: Call) -> None:
        if _is_supported(call) and not any(tvm_ffi.structural_equal(call, other) for other in found):
            found.append(call)

    tvm_ffi.structural_walk(expr, (Call, note))
    return sorted(found, key=lambda call: len(nested_functions(call)))


def holds_function(expr: Expr) -> bool:
    """Return whether `expr` calls a supported function."""
    found: list[Call] = []
    tvm_ffi.structural_walk(expr, (Call, lambda call: found.append(call) if _is_supported(call) else None))
    return bool(found)


def _is_supported(call: Call) -> bool:
    return getattr(call.op, "name", "") in _FUNCTIONS and str(call.ty) in ("float32", "float16")


def reads_bfloat16(expr: Expr) -> list[Expr]:
    """Return the parts of `expr` that convert a bfloat16 in memory to float32."""
    found: list[Expr] = []

    def note(cast: tirx.Cast) -> None:
        if isinstance(cast.value, TensorLoad) and str(cast.value.ty) == "bfloat16":
            found.append(cast)

    tvm_ffi.structural_walk(expr, (tirx.Cast, note))
    return found


def rounded_functions(expr: Expr) -> list[Expr]:
    """Return the values with functions that are converted to bfloat16 within `expr`."""
    found: list[Expr] = []

    def note(cast: tirx.Cast) -> None:
        if str(cast.ty) == "bfloat16" and holds_function(cast.value):
            found.append(cast.value)

    tvm_ffi.structural_walk(expr, (tirx.Cast, note))
    return found


def holds_names(expr: Expr) -> bool:
    """Return whether `expr` binds values to names."""
    found: list[tirx.Let] = []
    tvm_ffi.structural_walk(expr, (tirx.Let, found.append))
    return bool(found)


def _apart(expr: Expr) -> Expr:
    """Return `expr` with named values protected from TVM's analyzer.

    The TVM passes with an analyzer register the value of every name that reads no memory. The analyzer inlines and
    simplifies it again for each following name in each pass: a tile of GELUs took half a minute to compile. So each
    value is combined with bits of something that is read anyway, none of which survive (an `and` with zero, which LLVM
    removes and TVM does not simplify).

    For a vector compared with a scalar the analyzer cannot derive bounds, whether memory is read or not.
    """
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(expr, (TensorLoad, loads.append))
    if not loads:
        return expr
    load = next((load for load in loads if str(load.ty) in _WORDS), None)
    read = None if load is None else tirx.Cast("int32", tirx.reinterpret(_WORDS[str(load.ty)], load))

    def protected(let: tirx.Let) -> Expr:
        kind = str(let.value.ty)
        word = {"float32": "int32", "int32": "int32", "float64": "int64"}.get(kind)
        if word is None:
            return let
        bits = tirx.reinterpret(word, let.value)
        if read is not None and not _reads(let.value):
            bits = bits | tirx.Cast(word, read & whole(0))
        elif not _compares(let.value):
            return let
        return tirx.Let(let.var, tirx.reinterpret(kind, bits), let.body)

    return tvm_ffi.structural_map(expr, (tirx.Let, protected))


def _compares(expr: Expr) -> bool:
    found: list[Expr] = []
    tvm_ffi.structural_walk(expr, (_COMPARISONS, found.append))
    return bool(found)


def _reads(expr: Expr) -> bool:
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(expr, (TensorLoad, found.append))
    return bool(found)


def _power_of_two(n: Expr) -> Expr:
    return tirx.reinterpret("float32", tirx.shift_left(n + whole(127), whole(23)))


def _exp(x: Expr) -> Expr:
    def scaled(value: Expr, n: Expr) -> Expr:
        return named(tirx.shift_right(n, whole(1)), lambda half: value * _power_of_two(half) * _power_of_two(n - half))

    return named(clamped(x, _EXP_LEAST, _EXP_MOST), lambda y: _reduced(y, scaled))


def _normal(value: Expr, n: Expr) -> Expr:
    """Return `value` times 2^n for n >= -126."""
    return value * _power_of_two(n)


def _reduced(y: Expr, scaled: Callable[[Expr, Expr], Expr]) -> Expr:
    """Return scaled(e^r, n), where y = n ln 2 + r."""
    return _split(y, lambda r, n: scaled((polynomial(r, EXP_POLYNOMIAL) * r + real(1.0)) * r + real(1.0), n))


def _split(y: Expr, of: Callable[[Expr, Expr], Expr]) -> Expr:
    """Return of(r, n), where y = n ln 2 + r with an integer n."""

    def of_rounded(rounded: Expr) -> Expr:
        power = tirx.reinterpret("int32", rounded) - whole(ROUNDING_BITS)
        return named(
            rounded - real(ROUNDING),
            lambda n: named(
                (y - n * real(LN2_HIGH)) - n * real(LN2_LOW),
                lambda r: named(power, lambda whole_n: of(r, whole_n)),
            ),
        )

    return named(y * real(1 / math.log(2)) + real(ROUNDING), of_rounded)


def _log(x: Expr) -> Expr:
    def of_bits(bits: Expr, exponent: Expr, positive: Expr) -> Expr:
        # x = 2^n m with m between sqrt(1/2) and sqrt(2).
        offset = bits - whole(0x3F3504F3)
        return named(
            tirx.shift_right(offset, whole(23)),
            lambda n: named(
                tirx.reinterpret("float32", bits - tirx.shift_left(n, whole(23))) - real(1.0),
                lambda r: named(tirx.Cast("float32", n + exponent), lambda power: of_rest(r, power, positive)),
            ),
        )

    def of_rest(r: Expr, n: Expr, positive: Expr) -> Expr:
        square = r * r
        value = polynomial(r, _LOG) * r * square + n * real(LN2_LOW)
        value = (value - real(0.5) * square) + r + n * real(LN2_HIGH)
        infinite = real(math.inf)
        value = tirx.Select(positive < infinite, value, positive)  # infinity and NaN
        return tirx.Select(
            positive > real(0.0),
            value,
            tirx.Select(tirx.EQ(positive, real(0.0)), real(-math.inf), real(math.nan)),
        )

    def of(y: Expr) -> Expr:
        small = y < real(2.0**-126)
        normal = tirx.Select(small, y * real(2.0**23), y)
        exponent = tirx.Select(small, whole(-23), whole(0))
        return named(tirx.reinterpret("int32", normal), lambda bits: of_bits(bits, exponent, y))

    return named(x, of)


def _tanh(x: Expr) -> Expr:
    def of(r: Expr, n: Expr) -> Expr:
        rest = polynomial(r, EXP_POLYNOMIAL) * (r * r) + r
        return named(
            _power_of_two(n),
            lambda scale: named(scale * rest + (scale - real(1.0)), lambda m: m / (m + real(2.0))),
        )

    return named(clamped(x, -TANH_BOUND, TANH_BOUND), lambda y: named(y + y, lambda twice: _split(twice, of)))


def _erf(x: Expr) -> Expr:
    def of(y: Expr, size: Expr) -> Expr:
        near = named(y * y, lambda square: polynomial(square, _ERF) * y + y)
        far = named(
            tirx.Select(size > real(_ERF_ONE), real(_ERF_ONE), size),
            lambda s: signed(real(1.0) - named(polynomial(s, _ERF_FAR) * s - s, lambda z: _reduced(z, _normal)), y),
        )
        return tirx.Select(size > real(_ERF_NEAR), far, near)

    return named(x, lambda y: named(magnitude(y), lambda size: of(y, size)))


def _half_powers(x: Expr, together: Callable[[Expr, Expr], Expr]) -> Expr:
    """Return together(e^|x| / 2, e^-|x| / 2), computed from the square root of e^|x|, which does not overflow before
    they do.
    """
    root = _exp(magnitude(x) * real(0.5))
    return named(root, lambda r: named(real(0.5) * r, lambda half: together(half * r, real(0.25) / (half * r))))


def _cosh(x: Expr) -> Expr:
    return named(x, lambda y: _half_powers(y, lambda grown, shrunk: grown + shrunk))


def _sinh(x: Expr) -> Expr:
    def of(y: Expr) -> Expr:
        near = named(y * y, lambda square: polynomial(square, _SINH) * square * y + y)
        far = _half_powers(y, lambda grown, shrunk: signed(grown - shrunk, y))
        return tirx.Select(magnitude(y) > real(1.0), far, near)

    return named(x, of)


def _sigmoid(x: Expr) -> Expr:
    unit = real(2.0**-_SIGMOID_POWER)

    def of(y: Expr) -> Expr:
        return unit / (unit + _reduced(real(0.0) - y, lambda value, n: _normal(value, n - whole(_SIGMOID_POWER))))

    return named(clamped(x, _SIGMOID_LEAST, _SIGMOID_MOST), of)


def _power(x: Expr, exponent: Expr) -> Expr | None:
    if isinstance(exponent, tirx.Cast):
        exponent = exponent.value
    if not isinstance(exponent, tirx.FloatImm) or exponent.value not in (2.0, 3.0):
        return None
    cube = exponent.value == 3.0
    return named(x, lambda y: y * y * y if cube else y * y)


_FUNCTIONS: dict[str, Callable[..., Expr | None]] = {
    "tirx.exp": _exp,
    "tirx.log": _log,
    "tirx.tanh": _tanh,
    "tirx.sin": sine,
    "tirx.cos": cosine,
    "tirx.cosh": _cosh,
    "tirx.sinh": _sinh,
    "tirx.erf": _erf,
    "tirx.sigmoid": _sigmoid,
    "tirx.pow": _power,
}
