"""Small integer tensors whose elements are sizes: shapes, and values computed from them.

At compile time, their elements are integers or expressions of dynamic dimensions, so that operators that take a shape
or a position can use them symbolically. Arithmetic that is inexact on sizes, such as a root, is left to run time. Each
format has its own table of the operators on such values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from tvm import tirx

from .open_shapes import OpenShapes, Size, expr

MOST_ELEMENTS = 64
# integers up to the first, multiplied by factors up to the second, are exact in float32, and so are sums of a few
_EXACT, _ODD = 2**18, 2**4
FLOATS = ("float16", "float32", "float64")
WHOLE = ("int32", "int64")

# Functions of one and two elements: the result, possibly an expression to simplify.
OfOne = Callable[[Any], Any]
OfTwo = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Share:
    """A real number: a size times a fraction with a power of 2 as divisor, so that floats are exact."""

    size: Size
    factor: Fraction


@dataclass(frozen=True)
class SizeValue:
    """`values`: an object array of integers or expressions; of Share for floats, of bool for bool."""

    values: np.ndarray
    dtype: str

    @property
    def is_constant(self) -> bool:
        """Return whether every element is a constant number, including floats."""
        return all(isinstance(value.size if isinstance(value, Share) else value, int) for value in self.values.flat)

    def constants(self) -> list[Fraction]:
        """The elements of a constant value."""
        return [
            value.size * value.factor if isinstance(value, Share) else Fraction(int(value))
            for value in self.values.flat
        ]

    @property
    def is_known(self) -> bool:
        """Return whether no element is dynamic."""
        return all(isinstance(value, int | bool) for value in self.values.flat)


def size_value(elements: Any, dtype: str = "int64", shape: Sequence[int] | None = None) -> SizeValue:
    """Create a value from a list of sizes, or from a single size."""
    flat = list(elements) if isinstance(elements, list | tuple) else [elements]
    held = np.empty(len(flat), object)
    for place, element in enumerate(flat):
        held[place] = element
    if shape is None:
        shape = (len(flat),) if isinstance(elements, list | tuple) else ()
    return SizeValue(held.reshape(tuple(shape)), dtype)


def of_constant(value: np.ndarray) -> SizeValue | None:
    """A constant of the graph as a size value; None if it is too large or has another type."""
    if value.size > MOST_ELEMENTS or str(value.dtype) not in (*WHOLE, *FLOATS, "bool"):
        return None
    if value.dtype.kind == "f":
        if not np.isfinite(value).all():
            return None
        elements: list[Any] = [Share(1, Fraction(float(number))) for number in value.flat]
    else:
        elements = [bool(number) if value.dtype.kind == "b" else int(number) for number in value.flat]
    return size_value(elements, str(value.dtype), value.shape)


class Undecided(Exception):
    """The value cannot be represented; it is computed at run time."""


def combined(values: Sequence[SizeValue], function: OfTwo, shapes: OpenShapes, dtype: str | None = None) -> SizeValue:
    """Fold a function of two elements over broadcast tensors, from left to right."""
    result = values[0].values
    for value in values[1:]:
        pair = np.broadcast_arrays(result, value.values)
        held = np.empty(pair[0].shape, object)
        for at in np.ndindex(held.shape):
            held[at] = kept(function(pair[0][at], pair[1][at]), shapes)
        result = held
    return SizeValue(result, dtype or values[0].dtype)


def each(value: SizeValue, function: OfOne, shapes: OpenShapes, dtype: str | None = None) -> SizeValue:
    """Apply a function to every element."""
    held = np.empty(value.values.shape, object)
    for at in np.ndindex(held.shape):
        held[at] = kept(function(value.values[at]), shapes)
    return SizeValue(held, dtype or value.dtype)


def kept(value: Any, shapes: OpenShapes) -> Any:
    """Simplify an element. Raises Undecided where integers would overflow at run time."""
    if isinstance(value, bool | Share):
        return value
    value = shapes.simplified(value) if not isinstance(value, int) else value
    if isinstance(value, int) and not -(2**62) < value < 2**62:
        raise Undecided
    return value


def integers(a: Any, b: Any) -> None:
    """Raise Undecided unless both elements are integers."""
    if any(isinstance(value, Share | bool) for value in (a, b)):
        raise Undecided


# ---- elements -------------------------------------------------------------------------------------------------------


def added(sign: int) -> OfTwo:
    """a + b, or a - b if `sign` is -1."""

    def add(a: Any, b: Any) -> Any:
        if isinstance(a, Share) and isinstance(b, Share):
            if isinstance(a.size, int) and isinstance(b.size, int):
                return _dyadic(1, a.size * a.factor + sign * b.size * b.factor)
            if a.factor.denominator == b.factor.denominator == 1:
                return _dyadic(int(a.factor) * a.size + sign * int(b.factor) * b.size, Fraction(1))
        integers(a, b)
        return a + sign * b

    return add


def _dyadic(size: Size, factor: Fraction) -> Share:
    """A product that floats represent exactly: the divisor is a power of 2."""
    number = abs(factor.numerator)
    odd = number // (number & -number) if number else 0
    if factor.denominator & (factor.denominator - 1) or odd > _ODD or max(number, factor.denominator) > _EXACT:
        raise Undecided
    return Share(size, factor)


def multiplied(a: Any, b: Any) -> Any:
    """a * b."""
    if isinstance(a, Share) and isinstance(b, Share):
        if not isinstance(a.size, int):
            a, b = b, a
        if not isinstance(a.size, int):
            raise Undecided
        return _dyadic(b.size, a.factor * a.size * b.factor)
    integers(a, b)
    return a * b


def divided(shapes: OpenShapes) -> OfTwo:
    """a / b; integers are rounded towards zero."""

    def divide(a: Any, b: Any) -> Any:
        if isinstance(a, Share) and isinstance(b, Share):
            if not isinstance(b.size, int):
                raise Undecided
            return _dyadic(a.size, a.factor / (b.size * b.factor))
        integers(a, b)
        if isinstance(a, int) and isinstance(b, int):
            return int(Fraction(a, b))  # towards zero
        if not shapes.at_least(b, 1):
            raise Undecided
        if shapes.at_least(a, 0):
            return tirx.floordiv(expr(a), expr(b))
        if shapes.at_least(-1 * a, 0):
            return -1 * tirx.floordiv(-1 * expr(a), expr(b))
        raise Undecided

    return divide


def rest(shapes: OpenShapes, *, of_whole: bool) -> OfTwo:
    """The remainder of a / b, with the sign of b, or with `of_whole` the sign of a."""

    def modulo(a: Any, b: Any) -> Any:
        integers(a, b)
        if not shapes.at_least(b, 1) or (of_whole and not shapes.at_least(a, 0)):
            raise Undecided
        return tirx.floormod(expr(a), expr(b))

    return modulo


def extreme(pick: Callable[[Size, Size], Size]) -> OfTwo:
    """The minimum or maximum, as selected by OpenShapes."""

    def picked(a: Any, b: Any) -> Any:
        integers(a, b)
        return pick(a, b)

    return picked


def compared(condition: OfTwo, shapes: OpenShapes) -> OfTwo:
    """A comparison. Raises Undecided if it depends on dynamic dimensions."""

    def compare(a: Any, b: Any) -> bool:
        if isinstance(a, bool) and isinstance(b, bool):
            a, b = int(a), int(b)
        integers(a, b)
        if isinstance(a, int) and isinstance(b, int):
            return bool(condition(a, b))
        found = condition(expr(a), expr(b))
        if shapes.proves(found):
            return True
        if shapes.proves(tirx.Not(found)):
            return False
        raise Undecided

    return compare


def equal(a: Any, b: Any) -> Any:
    """a == b, as a condition."""
    return a == b if isinstance(a, int) else tirx.EQ(a, b)


def negated(value: Any) -> Any:
    """-value."""
    return Share(value.size, -value.factor) if isinstance(value, Share) else -1 * value


def inverted(value: Any) -> bool:
    """Logical not of a bool."""
    if not isinstance(value, bool):
        raise Undecided
    return not value


def rounded(shapes: OpenShapes, *, upwards: bool) -> OfOne:
    """Floor or ceiling of floats, as a float."""

    def function(value: Any) -> Any:
        if not isinstance(value, Share):
            raise Undecided
        return Share(_whole(value, shapes, upwards=upwards), Fraction(1))

    return function


def _whole(share: Share, shapes: OpenShapes, *, upwards: bool = False) -> Size:
    """A real number rounded down, or up."""
    number, divisor = share.factor.numerator, share.factor.denominator
    if isinstance(share.size, int):
        exact = share.size * share.factor
        return math.ceil(exact) if upwards else math.floor(exact)
    if divisor > 1:
        shapes.require_at_least(_EXACT, share.size)
    total = share.size * number + (divisor - 1 if upwards else 0)
    return shapes.simplified(tirx.floordiv(expr(total), expr(divisor)))


def cast(value: SizeValue, kind: str, shapes: OpenShapes) -> SizeValue:
    """Cast a value to another type."""

    def convert(element: Any) -> Any:
        if kind in FLOATS:
            if isinstance(element, Share):
                return element
            if not isinstance(element, int) and kind == "float16":
                raise Undecided
            return Share(int(element) if isinstance(element, bool) else element, Fraction(1))
        if kind == "bool":
            if isinstance(element, Share):
                raise Undecided
            if isinstance(element, int):
                return bool(element)
            if shapes.at_least(element, 1):
                return True
            raise Undecided
        if isinstance(element, Share):
            if isinstance(element.size, int):
                return int(element.size * element.factor)  # towards zero
            if not shapes.at_least(element.size * element.factor.numerator, 0):
                raise Undecided
            return _whole(element, shapes)
        return int(element) if isinstance(element, bool) else element

    if any(name not in (*FLOATS, *WHOLE, "bool") for name in (kind, value.dtype)):
        raise Undecided
    return each(value, convert, shapes, kind)


def chosen(condition: SizeValue, value: SizeValue, other: SizeValue) -> SizeValue:
    """Elements of `value` where the condition holds, of `other` elsewhere."""
    wide = np.broadcast_arrays(condition.values, value.values, other.values)
    held = np.empty(wide[0].shape, object)
    for at in np.ndindex(held.shape):
        held[at] = wide[1][at] if wide[0][at] else wide[2][at]
    return SizeValue(held, value.dtype)


def joined(function: OfTwo) -> Callable[[Sequence[Any]], Any]:
    """Fold a function of two elements over a sequence."""

    def over(values: Sequence[Any]) -> Any:
        found = values[0]
        for value in values[1:]:
            found = function(found, value)
        return found

    return over


# ---- indexing -------------------------------------------------------------------------------------------------------


def taken(value: SizeValue, indices: SizeValue, axis: int) -> SizeValue:
    """Elements along an axis, by their indices."""
    if value.values.ndim == 0 or not indices.is_known:
        raise Undecided
    places = indices.values.astype(np.int64)
    extent = value.values.shape[axis % value.values.ndim]
    if ((places < -extent) | (places >= extent)).any():
        raise Undecided  # the converter rejects it
    return SizeValue(np.asarray(np.take(value.values, places, axis), object), value.dtype)


def strided(value: SizeValue, cuts: Sequence[tuple[int, int, int, int]]) -> SizeValue:
    """Strided slices: for each axis the start, the end and the step, where positions may count from the end."""
    cut = [slice(None)] * value.values.ndim
    for axis, start, end, step in cuts:
        # Before the first element; -1 means the last one in Python.
        stop = None if step < 0 and end < -value.values.shape[axis] else end
        cut[axis] = slice(start, stop, step)
    return SizeValue(value.values[tuple(cut)], value.dtype)


def stretched(value: SizeValue, shape: Sequence[int]) -> SizeValue:
    """A value broadcast with a shape."""
    if math.prod(shape) > MOST_ELEMENTS:
        raise Undecided
    whole = np.broadcast_shapes(value.values.shape, tuple(shape))
    return SizeValue(np.broadcast_to(value.values, whole), value.dtype)


def counted(start: int, stop: int, step: int, dtype: str) -> SizeValue:
    """The integers of a range."""
    numbers = range(start, stop, step)
    if len(numbers) > MOST_ELEMENTS or dtype not in WHOLE:
        raise Undecided
    return size_value(list(numbers), dtype)
