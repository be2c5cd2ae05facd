"""Evaluation of ONNX operators on values that are known as sizes (frontend/size_values.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..open_shapes import OpenShapes, Size, whole
from ..size_values import (
    MOST_ELEMENTS,
    WHOLE,
    OfOne,
    OfTwo,
    SizeValue,
    Undecided,
    added,
    cast,
    chosen,
    combined,
    compared,
    counted,
    divided,
    each,
    equal,
    extreme,
    inverted,
    joined,
    kept,
    multiplied,
    negated,
    of_constant,
    rest,
    rounded,
    size_value,
    stretched,
    strided,
    taken,
)


@dataclass(frozen=True)
class SizeNode:
    """A node whose inputs are known as sizes: `inputs` (None for an omitted one), its attributes, the known facts about
    dynamic dimensions, and the opset version."""

    inputs: tuple[SizeValue | None, ...]
    attr: dict[str, Any]
    shapes: OpenShapes
    opset: int

    def __getitem__(self, place: int) -> SizeValue:
        found = self.inputs[place]
        assert found is not None
        return found

    def has(self, place: int) -> bool:
        """Return whether an input is given."""
        return place < len(self.inputs) and self.inputs[place] is not None

    def axes(self, rank: int) -> list[int] | None:
        """The axes given by the second input, or by the attribute in older opsets; None if neither is given."""
        if self.has(1):
            given: Any = [int(axis) for axis in self[1].values.flat]
        else:
            given = self.attr.get("axes")
        return None if given is None else [int(axis) % rank for axis in given]


def evaluated(operator: str, node: SizeNode) -> SizeValue | None:
    """The result of a node on sizes; None if it is computed at run time."""
    rule = _RULES.get(operator)
    if rule is None:
        return None
    try:
        found = rule(node)
    except (Undecided, ValueError, IndexError, ZeroDivisionError, OverflowError):
        return None
    return found if found.values.size <= MOST_ELEMENTS else None


def _of_each(function: Callable[[OpenShapes], OfOne], dtype: str | None = None) -> Callable[[SizeNode], SizeValue]:
    return lambda node: each(node[0], function(node.shapes), node.shapes, dtype)


def _of_all(function: Callable[[OpenShapes], OfTwo], dtype: str | None = None) -> Callable[[SizeNode], SizeValue]:
    """A rule that folds the function over all inputs, element by element with broadcasting, from left to right."""

    def rule(node: SizeNode) -> SizeValue:
        values = [node[place] for place in range(len(node.inputs))]
        return combined(values, function(node.shapes), node.shapes, dtype)

    return rule


def _comparison(condition: OfTwo) -> Callable[[SizeNode], SizeValue]:
    return _of_all(lambda shapes: compared(condition, shapes), "bool")


def _modulo(node: SizeNode) -> SizeValue:
    return _of_all(lambda shapes: rest(shapes, of_whole=bool(node.attr.get("fmod"))))(node)


def _cast(node: SizeNode) -> SizeValue:
    import onnx

    return cast(node[0], str(onnx.helper.tensor_dtype_to_np_dtype(int(node.attr["to"]))), node.shapes)


def _reduced(function: Callable[[OpenShapes], Callable[[Sequence[Any]], Any]]) -> Callable[[SizeNode], SizeValue]:
    def rule(node: SizeNode) -> SizeValue:
        if node[0].values.ndim != 1 or not node[0].values.size or node[0].dtype not in WHOLE:
            raise Undecided
        if node.axes(1) == [] and node.attr.get("noop_with_empty_axes"):
            raise Undecided
        found = kept(function(node.shapes)(list(node[0].values)), node.shapes)
        return size_value([found] if node.attr.get("keepdims", 1) else found, node[0].dtype)

    return rule


def _gather(node: SizeNode) -> SizeValue:
    return taken(node[0], node[1], node.attr.get("axis", 0))


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
    return strided(node[0], list(zip(axes, starts, ends, steps, strict=True)))


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
    return stretched(node[0], [int(extent) for extent in node[1].values.flat])


def _constant_of_shape(node: SizeNode) -> SizeValue:
    from onnx import numpy_helper

    if not node[0].is_known:
        raise Undecided
    wanted = [int(extent) for extent in node[0].values.flat]
    if math.prod(wanted) > MOST_ELEMENTS or "value" not in node.attr:
        raise Undecided
    found = of_constant(np.broadcast_to(numpy_helper.to_array(node.attr["value"]).reshape(()), wanted))
    if found is None or found.dtype not in WHOLE:
        raise Undecided
    return found


def _range(node: SizeNode) -> SizeValue:
    if not all(node[place].is_known for place in range(3)):
        raise Undecided
    start, stop, step = (int(node[place].values.item()) for place in range(3))
    return counted(start, stop, step, node[0].dtype)


_RULES: dict[str, Callable[[SizeNode], SizeValue]] = {
    "Add": _of_all(lambda shapes: added(1)),
    "Cast": _cast,
    "Ceil": _of_each(lambda shapes: rounded(shapes, upwards=True)),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": _of_all(divided),
    "Equal": _comparison(equal),
    "Expand": _expand,
    "Floor": _of_each(lambda shapes: rounded(shapes, upwards=False)),
    "Gather": _gather,
    "Greater": _comparison(lambda a, b: a > b),
    "GreaterOrEqual": _comparison(lambda a, b: a >= b),
    "Identity": lambda node: node[0],
    "Less": _comparison(lambda a, b: a < b),
    "LessOrEqual": _comparison(lambda a, b: a <= b),
    "Max": _of_all(lambda shapes: extreme(shapes.larger)),
    "Min": _of_all(lambda shapes: extreme(shapes.smaller)),
    "Mod": _modulo,
    "Mul": _of_all(lambda shapes: multiplied),
    "Neg": _of_each(lambda shapes: negated),
    "Not": _of_each(lambda shapes: inverted, "bool"),
    "Range": _range,
    "ReduceMax": _reduced(lambda shapes: joined(shapes.larger)),
    "ReduceMin": _reduced(lambda shapes: joined(shapes.smaller)),
    "ReduceProd": _reduced(lambda shapes: shapes.product),
    "ReduceSum": _reduced(lambda shapes: joined(lambda a, b: a + b)),
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _of_all(lambda shapes: added(-1)),
    "Unsqueeze": _unsqueeze,
    "Where": lambda node: chosen(node[0], node[1], node[2]),
}


def shape_value(extents: Sequence[Size], attr: dict[str, Any], shapes: OpenShapes) -> SizeValue:
    """The result of Shape for a tensor with these extents."""
    known = [shapes.simplified(whole(extent)) for extent in extents]
    return size_value(known[attr.get("start", 0) : attr.get("end")])
