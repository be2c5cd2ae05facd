"""Evaluation of Relay operators on values that are known as sizes (frontend/size_values.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..open_shapes import OpenShapes
from ..size_values import (
    MOST_ELEMENTS,
    WHOLE,
    OfTwo,
    SizeValue,
    Undecided,
    added,
    cast,
    chosen,
    combined,
    compared,
    divided,
    each,
    equal,
    extreme,
    inverted,
    joined,
    kept,
    multiplied,
    negated,
    rest,
    size_value,
    stretched,
    strided,
    taken,
)
from .operands import Value, as_sizes, numbers
from .operators.shape_moves import new_shape


@dataclass(frozen=True)
class SizeCall:
    """A call whose operands are known as sizes (tuples flattened), its attributes, and the known facts about dynamic
    dimensions."""

    args: tuple[SizeValue, ...]
    attrs: dict[str, Any]
    shapes: OpenShapes

    def numbers(self, name: str, place: int) -> list[int]:
        """An attribute, or the operand that replaces it, as integers. Raises Undecided if one is dynamic."""
        if self.attrs.get(name) is not None:
            return numbers(self.attrs[name])
        if place >= len(self.args):
            return []
        if not self.args[place].is_known:
            raise Undecided
        return [int(value) for value in self.args[place].values.flat]


Rule = Callable[[SizeCall], "SizeValue | tuple[SizeValue, ...]"]


def evaluated(
    operator: str, args: Sequence[Value], attrs: dict[str, Any], shapes: OpenShapes
) -> SizeValue | tuple[SizeValue, ...] | None:
    """The result of a call with an operand known as sizes; None if it is computed at run time."""
    rule = _RULES.get(operator)
    flat = [field for arg in args for field in (arg if isinstance(arg, tuple) else (arg,))]
    if rule is None or not any(isinstance(value, SizeValue) for value in flat):
        return None
    known = [found for found in map(as_sizes, flat) if found is not None]
    if len(known) < len(flat):
        return None
    try:
        found = rule(SizeCall(tuple(known), attrs, shapes))
    except (Undecided, ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError):
        return None
    parts = found if isinstance(found, tuple) else (found,)
    return found if all(part.values.size <= MOST_ELEMENTS for part in parts) else None


def _of_two(function: Callable[[OpenShapes], OfTwo], dtype: str | None = None) -> Rule:
    return lambda call: combined(call.args, function(call.shapes), call.shapes, dtype)


def _comparison(condition: OfTwo) -> Rule:
    return _of_two(lambda shapes: compared(condition, shapes), "bool")


def _floored(shapes: OpenShapes) -> OfTwo:
    """Quotients of nonnegative values, rounded down."""
    exact = divided(shapes)

    def divide(a: Any, b: Any) -> Any:
        if not (shapes.at_least(a, 0) and shapes.at_least(b, 1)):
            raise Undecided
        return exact(a, b)

    return divide


def _reduced(function: Callable[[OpenShapes], Callable[[Sequence[Any]], Any]]) -> Rule:
    def rule(call: SizeCall) -> SizeValue:
        value = call.args[0]
        stated = call.attrs["axis"]
        axes = [] if stated is None else numbers(stated)
        if value.values.ndim != 1 or not value.values.size or value.dtype not in WHOLE or call.attrs["exclude"]:
            raise Undecided
        if axes and axes not in ([0], [-1]):
            raise Undecided
        found = kept(function(call.shapes)(list(value.values)), call.shapes)
        return size_value([found] if call.attrs["keepdims"] else found, value.dtype)

    return rule


def _take(call: SizeCall) -> SizeValue:
    value = call.args[0]
    if call.attrs["batch_dims"] or call.attrs["mode"] not in ("clip", "wrap", "fast"):
        raise Undecided
    if call.attrs["axis"] is None:
        value = SizeValue(value.values.reshape(-1), value.dtype)
    return taken(value, call.args[1], int(call.attrs["axis"] or 0))


def _strided_slice(call: SizeCall) -> SizeValue:
    value = call.args[0]
    begin, end, strides = (call.numbers(name, place) for place, name in enumerate(("begin", "end", "strides"), 1))
    stated = call.attrs["axes"]
    axes = list(range(value.values.ndim)) if stated is None else numbers(stated)
    if call.attrs["slice_mode"] == "size" or len(begin) != len(end) or len(begin) > len(axes):
        raise Undecided
    steps = [*strides, *[1] * (len(begin) - len(strides))]
    return strided(value, list(zip(axes, begin, end, steps, strict=False)))


def _concatenate(call: SizeCall) -> SizeValue:
    parts = [value.values for value in call.args]
    return SizeValue(np.concatenate(parts, axis=int(call.attrs["axis"])), call.args[0].dtype)


def _stack(call: SizeCall) -> SizeValue:
    return SizeValue(np.stack([value.values for value in call.args], int(call.attrs["axis"])), call.args[0].dtype)


def _expand_dims(call: SizeCall) -> SizeValue:
    value, axis, count = call.args[0], int(call.attrs["axis"]), int(call.attrs["num_newaxis"])
    axis += value.values.ndim + 1 if axis < 0 else 0
    shape = value.values.shape
    return SizeValue(value.values.reshape(*shape[:axis], *[1] * count, *shape[axis:]), value.dtype)


def _squeeze(call: SizeCall) -> SizeValue:
    axes = call.numbers("axis", 1)
    return SizeValue(np.squeeze(call.args[0].values, tuple(axes) if axes else None), call.args[0].dtype)


def _reshape(call: SizeCall) -> SizeValue:
    value, codes = call.args[0], call.numbers("newshape", 1)
    if call.attrs["reverse"]:
        raise Undecided
    shape = new_shape(call.shapes, value.values.shape, codes, bool(call.attrs["allowzero"]))
    return SizeValue(value.values.reshape(shape), value.dtype)


def _split(call: SizeCall) -> tuple[SizeValue, ...]:
    value, parts = call.args[0], call.attrs["indices_or_sections"]
    found = np.split(value.values, parts if isinstance(parts, list) else numbers(parts)[0], int(call.attrs["axis"]))
    return tuple(SizeValue(part, value.dtype) for part in found)


def _broadcast_to(call: SizeCall) -> SizeValue:
    return stretched(call.args[0], call.numbers("shape", 1))


def _same(call: SizeCall) -> SizeValue:
    return call.args[0]


_RULES: dict[str, Rule] = {
    "add": _of_two(lambda shapes: added(1)),
    "broadcast_to": _broadcast_to,
    "cast": lambda call: cast(call.args[0], str(call.attrs["dtype"]), call.shapes),
    "cast_like": lambda call: cast(call.args[0], call.args[1].dtype, call.shapes),
    "concatenate": _concatenate,
    "copy": _same,
    "device_copy": _same,
    "divide": _of_two(divided),
    "dyn.broadcast_to": _broadcast_to,
    "dyn.reshape": _reshape,
    "dyn.squeeze": _squeeze,
    "dyn.strided_slice": _strided_slice,
    "equal": _comparison(equal),
    "expand_dims": _expand_dims,
    "floor_divide": _of_two(_floored),
    "floor_mod": _of_two(lambda shapes: rest(shapes, of_whole=False)),
    "greater": _comparison(lambda a, b: a > b),
    "greater_equal": _comparison(lambda a, b: a >= b),
    "identity": _same,
    "less": _comparison(lambda a, b: a < b),
    "less_equal": _comparison(lambda a, b: a <= b),
    "logical_not": lambda call: each(call.args[0], inverted, call.shapes, "bool"),
    "max": _reduced(lambda shapes: joined(shapes.larger)),
    "maximum": _of_two(lambda shapes: extreme(shapes.larger)),
    "min": _reduced(lambda shapes: joined(shapes.smaller)),
    "minimum": _of_two(lambda shapes: extreme(shapes.smaller)),
    "mod": _of_two(lambda shapes: rest(shapes, of_whole=True)),
    "multiply": _of_two(lambda shapes: multiplied),
    "negative": lambda call: each(call.args[0], negated, call.shapes),
    "on_device": _same,
    "prod": _reduced(lambda shapes: shapes.product),
    "reshape": _reshape,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "strided_slice": _strided_slice,
    "subtract": _of_two(lambda shapes: added(-1)),
    "sum": _reduced(lambda shapes: joined(lambda a, b: a + b)),
    "take": _take,
    "where": lambda call: chosen(*call.args),
}
