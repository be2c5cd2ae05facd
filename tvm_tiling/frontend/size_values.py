"""Small integer tensors of a model whose elements are sizes: what asks for a shape gives, and what is computed of it.

Each is known as whole numbers and expressions of open sizes before the run, so that what takes a shape or a position
from it takes it as that. Arithmetic that is not exact among sizes, such as a root, is left to the run. What operators
of a format compute of such values is in a table of that format.
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
_EXACT, _ODD = 2**18, 2**4  # whole numbers up to here, multiplied by such, are exact in float32, and a few added too
FLOATS = ("float16", "float32", "float64")
WHOLE = ("int32", "int64")

# Of one element and of two: the result, or an expression that is to be simplified.
OfOne = Callable[[Any], Any]
OfTwo = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Share:
    """A real number: a size times a fraction of which the divisor is a power of 2, so that floats are exact."""

    size: Size
    factor: Fraction


@dataclass(frozen=True)
class SizeValue:
    """`values`: an array of objects, whole numbers or expressions; of floats, each a Share; of bool, each a bool."""

    values: np.ndarray
    dtype: str

    @property
    def is_constant(self) -> bool:
        """Whether every element is one number, also of floats."""
        return all(isinstance(value.size if isinstance(value, Share) else value, int) for value in self.values.flat)

    def constants(self) -> list[Fraction]:
        """The elements of one that is constant."""
        return [
            value.size * value.factor if isinstance(value, Share) else Fraction(int(value))
            for value in self.values.flat
        ]

    @property
    def is_known(self) -> bool:
        """Whether no element depends on the run."""
        return all(isinstance(value, int | bool) for value in self.values.flat)


def size_value(elements: Any, dtype: str = "int64", shape: Sequence[int] | None = None) -> SizeValue:
    """Of a list of sizes, or of one."""
    flat = list(elements) if isinstance(elements, list | tuple) else [elements]
    held = np.empty(len(flat), object)
    for place, element in enumerate(flat):
        held[place] = element
    if shape is None:
        shape = (len(flat),) if isinstance(elements, list | tuple) else ()
    return SizeValue(held.reshape(tuple(shape)), dtype)


def of_constant(value: np.ndarray) -> SizeValue | None:
    """A constant of the graph as such a value; None where it is too large or no such number."""
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
    """The value is not known in such a form; it is left to the run."""


def combined(values: Sequence[SizeValue], function: OfTwo, shapes: OpenShapes, dtype: str | None = None) -> SizeValue:
    """A function of two elements, of tensors that are broadcast, from left to right."""
    result = values[0].values
    for value in values[1:]:
        pair = np.broadcast_arrays(result, value.values)
        held = np.empty(pair[0].shape, object)
        for at in np.ndindex(held.shape):
            held[at] = kept(function(pair[0][at], pair[1][at]), shapes)
        result = held
    return SizeValue(result, dtype or values[0].dtype)


def each(value: SizeValue, function: OfOne, shapes: OpenShapes, dtype: str | None = None) -> SizeValue:
    """A function of one element, of all."""
    held = np.empty(value.values.shape, object)
    for at in np.ndindex(held.shape):
        held[at] = kept(function(value.values[at]), shapes)
    return SizeValue(held, dtype or value.dtype)


def kept(value: Any, shapes: OpenShapes) -> Any:
    """An element, as short as it is known to be. Undecided where integers of the run would wrap."""
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
    """a + b, or a - b where `sign` is -1."""

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
    """A product that floats hold: the divisor is a power of 2."""
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
    """a / b, of whole numbers rounded towards zero."""

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
    """What is left of a in steps of b, which has the sign of b, or with `of_whole` that of a."""

    def modulo(a: Any, b: Any) -> Any:
        integers(a, b)
        if not shapes.at_least(b, 1) or (of_whole and not shapes.at_least(a, 0)):
            raise Undecided
        return tirx.floormod(expr(a), expr(b))

    return modulo


def extreme(pick: Callable[[Size, Size], Size]) -> OfTwo:
    """The smaller or the larger, as OpenShapes picks it."""

    def picked(a: Any, b: Any) -> Any:
        integers(a, b)
        return pick(a, b)

    return picked


def compared(condition: OfTwo, shapes: OpenShapes) -> OfTwo:
    """A comparison, where it is decided."""

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
    """Of bool, the other one."""
    if not isinstance(value, bool):
        raise Undecided
    return not value


def rounded(shapes: OpenShapes, *, upwards: bool) -> OfOne:
    """Of floats the whole number below, or above, which is a float."""

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
    """A value in another type."""

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
    """Elements of `value` where the condition holds, and of `other` elsewhere."""
    wide = np.broadcast_arrays(condition.values, value.values, other.values)
    held = np.empty(wide[0].shape, object)
    for at in np.ndindex(held.shape):
        held[at] = wide[1][at] if wide[0][at] else wide[2][at]
    return SizeValue(held, value.dtype)


def joined(function: OfTwo) -> Callable[[Sequence[Any]], Any]:
    """A function of two elements, of a row of them."""

    def over(values: Sequence[Any]) -> Any:
        found = values[0]
        for value in values[1:]:
            found = function(found, value)
        return found

    return over


# ---- places ---------------------------------------------------------------------------------------------------------


def taken(value: SizeValue, indices: SizeValue, axis: int) -> SizeValue:
    """Elements along an axis, by their places."""
    if value.values.ndim == 0 or not indices.is_known:
        raise Undecided
    places = indices.values.astype(np.int64)
    extent = value.values.shape[axis % value.values.ndim]
    if ((places < -extent) | (places >= extent)).any():
        raise Undecided  # which the converter refuses
    return SizeValue(np.asarray(np.take(value.values, places, axis), object), value.dtype)


def strided(value: SizeValue, cuts: Sequence[tuple[int, int, int, int]]) -> SizeValue:
    """Parts along axes: of each axis the first place, the end, and the step, which may count from the end."""
    cut = [slice(None)] * value.values.ndim
    for axis, start, end, step in cuts:
        # Before the first element, which -1 does not mean in Python.
        stop = None if step < 0 and end < -value.values.shape[axis] else end
        cut[axis] = slice(start, stop, step)
    return SizeValue(value.values[tuple(cut)], value.dtype)


def stretched(value: SizeValue, shape: Sequence[int]) -> SizeValue:
    """A value that is broadcast with a shape."""
    if math.prod(shape) > MOST_ELEMENTS:
        raise Undecided
    whole = np.broadcast_shapes(value.values.shape, tuple(shape))
    return SizeValue(np.broadcast_to(value.values, whole), value.dtype)


def counted(start: int, stop: int, step: int, dtype: str) -> SizeValue:
    """Whole numbers from `start` on."""
    numbers = range(start, stop, step)
    if len(numbers) > MOST_ELEMENTS or dtype not in WHOLE:
        raise Undecided
    return size_value(list(numbers), dtype)
