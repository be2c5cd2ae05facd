"""Discrete Fourier transforms of ONNX along dynamic axes: multiplications with matrices computed at run time."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx
from tvm.relax import op

from ..open_shapes import Size, expr, plus
from .open_node import OpenNode, Rule, axis_of
from .tensors import dtype_of

_WIDE = "float64"


def _dft(node: OpenNode) -> relax.Expr | None:
    """Transform of the whole axis, or of the given number of elements."""
    extents = node.extents()
    if node.opset < 20:
        axis = node.attr.get("axis", 1)
    else:
        given = node.numbers(2) if node.has(2) else [-2]
        if given is None:
            raise ValueError("the axis must be known at compile time")
        (axis,) = given
    axis = axis_of(axis, len(extents))
    if isinstance(extents[axis], int) and (not node.has(1) or node.numbers(1) is not None):
        return None
    inverse, onesided = bool(node.attr.get("inverse", 0)), bool(node.attr.get("onesided", 0))
    if inverse and onesided:
        raise ValueError("the one-sided inverse is not supported along a dynamic axis")
    if node.has(1):
        sizes = node.sizes(1)
        if sizes is None or len(sizes) != 1:
            raise ValueError("the length must be known at compile time or follow from shapes")
        node.shapes.agreed(extents[axis], sizes[0])
    if extents[-1] not in (1, 2):
        raise ValueError("whether numbers are complex must be known at compile time")
    return _transformed(node, axis, extents, inverse, onesided)


def _transformed(node: OpenNode, axis: int, extents: list[Size], inverse: bool, onesided: bool) -> relax.Expr:
    bb, data, rank = node.bb, node.tensor(), len(extents)
    order = [place for place in range(rank - 1) if place != axis] + [axis]
    parts = [bb.emit(part) for part in bb.emit(op.split(data, 2, -1))] if extents[-1] == 2 else [data]
    lined = [bb.emit(op.permute_dims(bb.emit(op.squeeze(part, [-1])), order)) for part in parts]
    length = extents[axis]
    bins = node.shapes.simplified(plus(tirx.floordiv(expr(length), expr(2)), 1)) if onesided else length
    tables = [_table(node, length, bins, function) for function in (tirx.cos, tirx.sin)]
    # The sum over x of (re + i im) (cos - i sin), or + for the inverse.
    (re, im), sign = ([bb.emit(op.matmul(lined[0], table)) for table in tables], 1.0 if inverse else -1.0)
    dtype = dtype_of(data)
    im = bb.emit(op.multiply(im, relax.const(sign, dtype)))
    if len(lined) == 2:
        re_, im_ = (bb.emit(op.matmul(lined[1], table)) for table in tables)
        re = bb.emit(op.subtract(re, bb.emit(op.multiply(im_, relax.const(sign, dtype)))))
        im = bb.emit(op.add(im, re_))
    if inverse:
        count = bb.emit(op.shape_to_tensor(relax.ShapeExpr([expr(length)])))
        number = bb.emit(op.astype(bb.emit(op.reshape(count, [])), dtype))
        re, im = (bb.emit(op.divide(part, number)) for part in (re, im))
    back = [order.index(place) for place in range(rank - 1)]
    results = [bb.emit(op.expand_dims(bb.emit(op.permute_dims(part, back)), -1)) for part in (re, im)]
    return op.concat(results, -1)


def _table(node: OpenNode, length: Size, bins: Size, function: Any) -> relax.Expr:
    """Return cos or sin of 2 pi i j / length, for i below length and j below bins."""
    dtype = dtype_of(node.tensor())

    def angles(count: Any) -> te.Tensor:
        def element(i: Any, j: Any) -> Any:
            # Reduced by whole turns, so that the angle is exact.
            turn = tirx.floormod(tirx.Cast("int64", i) * tirx.Cast("int64", j), count)
            angle = tirx.Cast(_WIDE, turn) * tirx.const(2 * math.pi, _WIDE) / tirx.Cast(_WIDE, count)
            return tirx.Cast(dtype, function(angle))

        return te.compute([expr(length), expr(bins)], element, name="angles")

    return node.bb.emit(node.bb.call_te(angles, length, primfunc_name_hint="angles"))


def _stft(node: OpenNode) -> relax.Expr | None:
    """Short-time transform of signals of any length: at least one frame must fit."""
    extents = node.extents()
    length = node.numbers(3) if node.has(3) else None
    frame = length[0] if length else node.extents(2)[0] if node.has(2) else None
    if not isinstance(frame, int):
        raise ValueError("the length of a frame must be known at compile time")
    node.shapes.require_at_least(extents[1], frame)
    return None


SIGNALS: dict[str, Rule] = {"DFT": _dft, "STFT": _stft}
