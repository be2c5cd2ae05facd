"""Small integer tensors of an ONNX graph whose elements are sizes: what Shape gives, and what is computed of that.

Each is known as whole numbers and expressions of open sizes before the run, so that what takes a shape or a position
from it takes it as that. Arithmetic that is not exact among sizes, such as a root, is left to the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from tvm import tirx

from ..open_shapes import OpenShapes, Size, expr, whole

MOST_ELEMENTS = 64
_EXACT, _ODD = 2**18, 2**4  # whole numbers up to here, multiplied by such, are exact in float32, and a few added too
_FLOATS = ("float16", "float32", "float64")
_WHOLE = ("int32", "int64")


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
    if value.size > MOST_ELEMENTS or str(value.dtype) not in (*_WHOLE, *_FLOATS, "bool"):
        return None
    if value.dtype.kind == "f":
        if not np.isfinite(value).all():
            return None
        elements: list[Any] = [Share(1, Fraction(float(number))) for number in value.flat]
    else:
        elements = [bool(number) if value.dtype.kind == "b" else int(number) for number in value.flat]
    return size_value(elements, str(value.dtype), value.shape)


@dataclass(frozen=True)
class SizeNode:
    """A node whose inputs are known as sizes: `inputs`, None where one is left out; its attributes; what is known of
    open sizes; and the version of the operators."""

    inputs: tuple[SizeValue | None, ...]
    attr: dict[str, Any]
    shapes: OpenShapes
    opset: int

    def __getitem__(self, place: int) -> SizeValue:
        found = self.inputs[place]
        assert found is not None
        return found

    def has(self, place: int) -> bool:
        """Whether an input is given."""
        return place < len(self.inputs) and self.inputs[place] is not None

    def axes(self, rank: int) -> list[int] | None:
        """Those of the second input, or of the attribute in older forms; None where there are none."""
        if self.has(1):
            given: Any = [int(axis) for axis in self[1].values.flat]
        else:
            given = self.attr.get("axes")
        return None if given is None else [int(axis) % rank for axis in given]


class Undecided(Exception):
    """The value is not known in such a form; it is left to the run."""


def evaluated(operator: str, node: SizeNode) -> SizeValue | None:
    """The result of a node of sizes; None where it is left to the run."""
    rule = _RULES.get(operator)
    if rule is None:
        return None
    try:
        found = rule(node)
    except (Undecided, ValueError, IndexError, ZeroDivisionError, OverflowError):
        return None
    return found if found.values.size <= MOST_ELEMENTS else None


# ---- elements -------------------------------------------------------------------------------------------------------


def _combined(node: SizeNode, function: Callable[[Any, Any], Any], dtype: str | None = None) -> SizeValue:
    """Element by element, broadcast, from left to right."""
    result = node[0].values
    for place in range(1, len(node.inputs)):
        pair = np.broadcast_arrays(result, node[place].values)
        held = np.empty(pair[0].shape, object)
        for at in np.ndindex(held.shape):
            held[at] = _kept(function(pair[0][at], pair[1][at]), node.shapes)
        result = held
    return SizeValue(result, dtype or node[0].dtype)


def _each(node: SizeNode, function: Callable[[Any], Any], dtype: str | None = None) -> SizeValue:
    held = np.empty(node[0].values.shape, object)
    for at in np.ndindex(held.shape):
        held[at] = _kept(function(node[0].values[at]), node.shapes)
    return SizeValue(held, dtype or node[0].dtype)


def _kept(value: Any, shapes: OpenShapes) -> Any:
    if isinstance(value, bool | Share):
        return value
    value = shapes.simplified(value) if not isinstance(value, int) else value
    if isinstance(value, int) and not -(2**62) < value < 2**62:
        raise Undecided  # where integers of the run would wrap
    return value


def _share(value: Any) -> Share:
    if not isinstance(value, Share):
        raise Undecided
    return value


def _integers(a: Any, b: Any) -> None:
    if any(isinstance(value, Share | bool) for value in (a, b)):
        raise Undecided


def _add(sign: int) -> Callable[[Any, Any], Any]:
    def add(a: Any, b: Any) -> Any:
        if isinstance(a, Share) and isinstance(b, Share):
            if isinstance(a.size, int) and isinstance(b.size, int):
                return _dyadic(1, a.size * a.factor + sign * b.size * b.factor)
            if a.factor.denominator == b.factor.denominator == 1:
                return _dyadic(int(a.factor) * a.size + sign * int(b.factor) * b.size, Fraction(1))
        _integers(a, b)
        return a + sign * b

    return add


def _dyadic(size: Size, factor: Fraction) -> Share:
    """A product that floats hold: the divisor is a power of 2."""
    number = abs(factor.numerator)
    odd = number // (number & -number) if number else 0
    if factor.denominator & (factor.denominator - 1) or odd > _ODD or max(number, factor.denominator) > _EXACT:
        raise Undecided
    return Share(size, factor)


def _multiply(a: Any, b: Any) -> Any:
    if isinstance(a, Share) and isinstance(b, Share):
        if not isinstance(a.size, int):
            a, b = b, a
        if not isinstance(a.size, int):
            raise Undecided
        return _dyadic(b.size, a.factor * a.size * b.factor)
    _integers(a, b)
    return a * b


def _divide(shapes: OpenShapes) -> Callable[[Any, Any], Any]:
    def divide(a: Any, b: Any) -> Any:
        if isinstance(a, Share) and isinstance(b, Share):
            if not isinstance(b.size, int):
                raise Undecided
            return _dyadic(a.size, a.factor / (b.size * b.factor))
        _integers(a, b)
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


def _modulo(node: SizeNode) -> SizeValue:
    def modulo(a: Any, b: Any) -> Any:
        _integers(a, b)
        if not node.shapes.at_least(b, 1) or (node.attr.get("fmod") and not node.shapes.at_least(a, 0)):
            raise Undecided
        return tirx.floormod(expr(a), expr(b))

    return _combined(node, modulo)


def _extreme(pick: Callable[[OpenShapes], Callable[[Size, Size], Size]]) -> Callable[[SizeNode], SizeValue]:
    def rule(node: SizeNode) -> SizeValue:
        def extreme(a: Any, b: Any) -> Any:
            _integers(a, b)
            return pick(node.shapes)(a, b)

        return _combined(node, extreme)

    return rule


def _compared(condition: Callable[[Any, Any], Any]) -> Callable[[SizeNode], SizeValue]:
    """A comparison, where it is decided."""

    def rule(node: SizeNode) -> SizeValue:
        def compare(a: Any, b: Any) -> bool:
            if isinstance(a, bool) and isinstance(b, bool):
                a, b = int(a), int(b)
            _integers(a, b)
            if isinstance(a, int) and isinstance(b, int):
                return bool(condition(a, b))
            found = condition(expr(a), expr(b))
            if node.shapes.proves(found):
                return True
            if node.shapes.proves(tirx.Not(found)):
                return False
            raise Undecided

        return _combined(node, compare, "bool")

    return rule


def _equal(a: Any, b: Any) -> Any:
    return a == b if isinstance(a, int) else tirx.EQ(a, b)


def _negated(value: Any) -> Any:
    return Share(value.size, -value.factor) if isinstance(value, Share) else -1 * value


def _not(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Undecided
    return not value


def _rounded(upwards: bool) -> Callable[[SizeNode], SizeValue]:
    """Floor and Ceil of floats, which are floats."""

    def rule(node: SizeNode) -> SizeValue:
        def function(value: Any) -> Any:
            share = _share(value)
            return Share(_whole(share, node.shapes, upwards=upwards), Fraction(1))

        return _each(node, function)

    return rule


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


def _cast(node: SizeNode) -> SizeValue:
    import onnx

    kind = str(onnx.helper.tensor_dtype_to_np_dtype(int(node.attr["to"])))
    own = node[0].dtype

    def convert(value: Any) -> Any:
        if kind in _FLOATS:
            if isinstance(value, Share):
                return value
            if not isinstance(value, int) and kind == "float16":
                raise Undecided
            return Share(int(value) if isinstance(value, bool) else value, Fraction(1))
        if kind == "bool":
            if isinstance(value, Share):
                raise Undecided
            if isinstance(value, int):
                return bool(value)
            if node.shapes.at_least(value, 1):
                return True
            raise Undecided
        if isinstance(value, Share):
            if isinstance(value.size, int):
                return int(value.size * value.factor)  # towards zero
            if not node.shapes.at_least(value.size * value.factor.numerator, 0):
                raise Undecided
            return _whole(value, node.shapes)
        return int(value) if isinstance(value, bool) else value

    if kind not in (*_FLOATS, *_WHOLE, "bool") or own not in (*_FLOATS, *_WHOLE, "bool"):
        raise Undecided
    return _each(node, convert, kind)


def _where(node: SizeNode) -> SizeValue:
    condition, chosen, other = np.broadcast_arrays(*(node[place].values for place in range(3)))
    held = np.empty(condition.shape, object)
    for at in np.ndindex(held.shape):
        held[at] = chosen[at] if condition[at] else other[at]
    return SizeValue(held, node[1].dtype)


def _reduced(function: Callable[[OpenShapes, list[Any]], Any]) -> Callable[[SizeNode], SizeValue]:
    def rule(node: SizeNode) -> SizeValue:
        if node[0].values.ndim != 1 or not node[0].values.size or node[0].dtype not in _WHOLE:
            raise Undecided
        if node.axes(1) == [] and node.attr.get("noop_with_empty_axes"):
            raise Undecided
        found = _kept(function(node.shapes, list(node[0].values)), node.shapes)
        return size_value([found] if node.attr.get("keepdims", 1) else found, node[0].dtype)

    return rule


def _of_all(pick: Callable[[OpenShapes], Callable[[Size, Size], Size]]) -> Callable[[OpenShapes, list[Any]], Any]:
    def function(shapes: OpenShapes, values: list[Any]) -> Any:
        found = values[0]
        for value in values[1:]:
            found = pick(shapes)(found, value)
        return found

    return function


# ---- places ---------------------------------------------------------------------------------------------------------


def _gather(node: SizeNode) -> SizeValue:
    if node[0].values.ndim == 0 or not node[1].is_known:
        raise Undecided
    axis = node.attr.get("axis", 0) % node[0].values.ndim
    indices = node[1].values.astype(np.int64)
    extent = node[0].values.shape[axis]
    if ((indices < -extent) | (indices >= extent)).any():
        raise Undecided  # which the converter refuses
    return SizeValue(np.asarray(np.take(node[0].values, indices, axis), object), node[0].dtype)


def _slice(node: SizeNode) -> SizeValue:
    if node.opset < 10:
        given: list[Any] = [list(node.attr["starts"]), list(node.attr["ends"]), node.attr.get("axes"), None]
    else:
        given = [None] * 4
        for place in range(1, 5):
            if node.has(place):
                if not node[place].is_known:
                    raise Undecided
                given[place - 1] = [int(value) for value in node[place].values.flat]
    starts, ends, axes, steps = given
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    cut = [slice(None)] * node[0].values.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        # Before the first element, which -1 does not mean in Python.
        stop = None if step < 0 and end < -node[0].values.shape[axis] else end
        cut[axis] = slice(start, stop, step)
    return SizeValue(node[0].values[tuple(cut)], node[0].dtype)


def _concat(node: SizeNode) -> SizeValue:
    parts = [node[place].values for place in range(len(node.inputs))]
    return SizeValue(np.concatenate(parts, axis=node.attr["axis"]), node[0].dtype)


def _squeeze(node: SizeNode) -> SizeValue:
    axes = node.axes(max(node[0].values.ndim, 1))
    return SizeValue(np.squeeze(node[0].values, None if axes is None else tuple(axes)), node[0].dtype)


def _unsqueeze(node: SizeNode) -> SizeValue:
    count = len(node.attr["axes"]) if "axes" in node.attr else node[1].values.size
    axes = node.axes(node[0].values.ndim + count)
    assert axes is not None
    return SizeValue(np.expand_dims(node[0].values, tuple(axes)), node[0].dtype)


def _reshape(node: SizeNode) -> SizeValue:
    if not node[1].is_known:
        raise Undecided
    wanted = [int(extent) for extent in node[1].values.flat]
    if not node.attr.get("allowzero", 0):
        wanted = [node[0].values.shape[place] if extent == 0 else extent for place, extent in enumerate(wanted)]
    return SizeValue(node[0].values.reshape(wanted), node[0].dtype)


def _expand(node: SizeNode) -> SizeValue:
    if not node[1].is_known:
        raise Undecided
    wanted = [int(extent) for extent in node[1].values.flat]
    if math.prod(wanted) > MOST_ELEMENTS:
        raise Undecided
    shape = np.broadcast_shapes(node[0].values.shape, tuple(wanted))
    return SizeValue(np.broadcast_to(node[0].values, shape), node[0].dtype)


def _constant_of_shape(node: SizeNode) -> SizeValue:
    from onnx import numpy_helper

    if not node[0].is_known:
        raise Undecided
    wanted = [int(extent) for extent in node[0].values.flat]
    if math.prod(wanted) > MOST_ELEMENTS or "value" not in node.attr:
        raise Undecided
    found = of_constant(np.broadcast_to(numpy_helper.to_array(node.attr["value"]).reshape(()), wanted))
    if found is None or found.dtype not in _WHOLE:
        raise Undecided
    return found


def _range(node: SizeNode) -> SizeValue:
    if not all(node[place].is_known for place in range(3)) or node[0].dtype not in _WHOLE:
        raise Undecided
    numbers = range(*(int(node[place].values.item()) for place in range(3)))
    if len(numbers) > MOST_ELEMENTS:
        raise Undecided
    return size_value(list(numbers), node[0].dtype)


def _identity(node: SizeNode) -> SizeValue:
    return node[0]


_RULES: dict[str, Callable[[SizeNode], SizeValue]] = {
    "Add": lambda node: _combined(node, _add(1)),
    "Cast": _cast,
    "Ceil": _rounded(True),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": lambda node: _combined(node, _divide(node.shapes)),
    "Equal": _compared(_equal),
    "Expand": _expand,
    "Floor": _rounded(False),
    "Gather": _gather,
    "Greater": _compared(lambda a, b: a > b),
    "GreaterOrEqual": _compared(lambda a, b: a >= b),
    "Identity": _identity,
    "Less": _compared(lambda a, b: a < b),
    "LessOrEqual": _compared(lambda a, b: a <= b),
    "Max": _extreme(lambda shapes: shapes.larger),
    "Min": _extreme(lambda shapes: shapes.smaller),
    "Mod": _modulo,
    "Mul": lambda node: _combined(node, _multiply),
    "Neg": lambda node: _each(node, _negated),
    "Not": lambda node: _each(node, _not, "bool"),
    "Range": _range,
    "ReduceMax": _reduced(_of_all(lambda shapes: shapes.larger)),
    "ReduceMin": _reduced(_of_all(lambda shapes: shapes.smaller)),
    "ReduceProd": _reduced(lambda shapes, values: shapes.product(values)),
    "ReduceSum": _reduced(lambda shapes, values: sum(values[1:], start=values[0])),
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": lambda node: _combined(node, _add(-1)),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}


def shape_value(extents: Sequence[Size], attr: dict[str, Any], shapes: OpenShapes) -> SizeValue:
    """What Shape gives of a tensor with these extents."""
    known = [shapes.simplified(whole(extent)) for extent in extents]
    return size_value(known[attr.get("start", 0) : attr.get("end")])
