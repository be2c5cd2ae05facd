"""ONNX operators that select elements along dynamic axes: TopK, Hardmax, OneHot, EyeLike and similar ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ..open_parts import sliced
from ..open_shapes import Size, expr, plus
from .open_node import OpenNode, Rule, axis_of
from .selection import order_keys
from .tensors import dtype_of


def _top_k(node: OpenNode) -> relax.Expr | None:
    """Sort the whole axis and take the first elements: TVM's top-k needs a constant k."""
    extents = node.extents()
    axis = axis_of(node.attr.get("axis", -1), len(extents))
    counts: list[Size] | None = [int(node.attr["k"])] if node.opset < 10 else node.sizes(1)
    if counts is None or len(counts) != 1:
        raise ValueError("k must be known at compile time or follow from shapes")
    (count,) = counts
    if isinstance(count, int) and isinstance(extents[axis], int):
        return None
    node.shapes.require_at_least(count, 0)
    node.shapes.require_at_least(extents[axis], count)
    data = node.tensor()
    keys = order_keys(node.bb, data)
    order = node.bb.emit(op.argsort(keys, axis, descending=bool(node.attr.get("largest", 1)), dtype="int64"))
    places = node.bb.emit(sliced(node.bb, node.shapes, order, {axis: (0, count, 1)}))
    return relax.Tuple([node.bb.emit(op.gather_elements(data, places, axis)), places])


def hardmax(data: relax.Expr, axis: int) -> relax.Expr:
    """Return 1 at the first of the largest elements along an axis, otherwise 0."""
    bb = relax.BlockBuilder.current()
    first = bb.emit(op.argmax(data, axis, keepdims=True))
    dtype, place = dtype_of(data), axis % len(data.ty.shape)

    def chosen(x: te.Tensor, index: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            found = index[tuple(0 if i == place else step for i, step in enumerate(at))]
            hit = tirx.Cast("int64", at[place]).equal(found)
            return tirx.Select(hit, tirx.const(1, dtype), tirx.const(0, dtype))

        return te.compute(x.shape, element, name="hardmax")

    return bb.call_te(chosen, data, first, primfunc_name_hint="hardmax")


def _one_hot(node: OpenNode) -> relax.Expr | None:
    """One-hot encoding of any depth that follows from shapes; indices out of range match nothing."""
    extents, values = node.extents(), node.tensor(2)
    depths = _whole_numbers(node, 1)
    if depths is None or len(depths) != 1:
        raise ValueError("depth must be known at compile time or follow from shapes")
    (depth,) = depths
    node.shapes.require_at_least(depth, 1)
    node.shapes.agreed(node.shapes.product(node.extents(2)), 2)
    axis = axis_of(node.attr.get("axis", -1), len(extents) + 1)
    opened = [] if isinstance(depth, int) else [depth]
    shape = [*extents[:axis], depth, *extents[axis:]]

    def hot(index: te.Tensor, pair: te.Tensor, *given: Any) -> te.Tensor:
        count = given[0] if given else tirx.const(depth, "int64")

        def element(*at: Any) -> Any:
            place = tirx.Cast("int64", index[tuple([*at[:axis], *at[axis + 1 :]])])
            place = tirx.Select(place < 0, place + count, place)
            return tirx.Select(place.equal(tirx.Cast("int64", at[axis])), pair[1], pair[0])

        return te.compute([expr(extent) for extent in shape], element, name="one_hot")

    return node.bb.call_te(hot, node.tensor(), values, *opened, primfunc_name_hint="one_hot")


def _whole_numbers(node: OpenNode, place: int) -> list[Size] | None:
    """Return an input as sizes, also if its type is float."""
    value = node.values[place]
    if value is not None and "float" in value.dtype and value.is_constant:
        return [int(number) for number in value.constants()]
    return node.sizes(place)


def _eye_like(node: OpenNode) -> relax.Expr | None:
    rows, columns = node.extents()
    dtype = tvm_onnx.get_type(node.attr["dtype"]) if "dtype" in node.attr else dtype_of(node.tensor())
    offset = int(node.attr.get("k", 0))

    def eye() -> te.Tensor:
        def element(i: Any, j: Any) -> Any:
            hit = (tirx.Cast("int64", j) - tirx.Cast("int64", i)).equal(tirx.const(offset, "int64"))
            return tirx.Select(hit, tirx.const(1, dtype), tirx.const(0, dtype))

        return te.compute([expr(rows), expr(columns)], element, name="eye")

    return node.bb.call_te(eye, primfunc_name_hint="eye")


def _dropout(node: OpenNode) -> relax.Expr | None:
    """Dropout with a mask that keeps everything."""
    if node.attr["tvm_custom"]["num_outputs"] == 1:
        return None
    dtype = "bool" if node.opset >= 10 else dtype_of(node.tensor())
    one = relax.const(np.ones((), dtype), dtype)
    mask = node.bb.emit(op.broadcast_to(one, relax.ShapeExpr(node.extents())))
    single = {**node.attr, "tvm_custom": {**node.attr["tvm_custom"], "num_outputs": 1}}
    return relax.Tuple([node.converted({}, single), mask])


def _split_to_sequence(node: OpenNode) -> relax.Expr | None:
    """Split into parts whose sizes are given one by one; the number of parts of one size must be known."""
    extents = node.extents()
    axis = axis_of(node.attr.get("axis", 0), len(extents))
    sizes = node.sizes(1) if node.has(1) else None
    if isinstance(extents[axis], int) and (not node.has(1) or node.numbers(1) is not None):
        return None
    if sizes is None or len(node.extents(1)) != 1:
        raise ValueError(f"the number of parts depends on a dynamic size, along axis {axis}")
    return in_parts(node, axis, sizes)


def in_parts(node: OpenNode, axis: int, sizes: Sequence[Size]) -> relax.Expr:
    """Return the first input split along an axis into parts of these sizes, which must add up to its extent."""
    node.shapes.agreed(node.extents()[axis], node.shapes.simplified(plus(*sizes)))
    parts, start = [], 0
    for size in sizes:
        node.shapes.require_at_least(size, 0)
        parts.append(node.bb.emit(sliced(node.bb, node.shapes, node.tensor(), {axis: (start, size, 1)})))
        start = node.shapes.simplified(plus(start, size))
    return relax.Tuple(parts)


SELECTING: dict[str, Rule] = {
    "Dropout": _dropout,
    "EyeLike": _eye_like,
    "OneHot": _one_hot,
    "SplitToSequence": _split_to_sequence,
    "TopK": _top_k,
}
