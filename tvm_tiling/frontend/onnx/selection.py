"""TopK, Unique and NonMaxSuppression of ONNX: selection of elements by value."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ..open_shapes import extents_of, whole
from ..order_key import order_key
from .tensors import constant, dtype_of

_MOST = 2**31 - 1  # boxes
# Types that TVM sorts in place of those it does not support.
_WIDER = {"float16": "float32", "int16": "int32", "uint16": "int32", "uint32": "int64"}


class TopK(tvm_onnx.OnnxOpConverter):
    """The largest or smallest elements along an axis; NaN is larger than every number, as in onnxruntime.

    TVM sorts floats by comparison, so a NaN leaves other elements unsorted. Integers with the same order as the floats
    are sorted instead.
    """

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return cls._top(bb, inputs[0], int(attr["k"]), attr)

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        if not isinstance(inputs[1], tvm.ir.GenericConst):
            raise ValueError("k has to be known at compile time")
        return cls._top(bb, inputs[0], int(inputs[1].value.numpy().reshape(-1)[0]), attr)

    @classmethod
    def _top(cls, bb: relax.BlockBuilder, data: relax.Expr, k: int, attr: dict[str, Any]) -> relax.Expr:
        shape, dtype = list(data.ty.shape), dtype_of(data)
        axis = attr.get("axis", -1) % len(shape)
        if not 0 <= k <= int(shape[axis]):
            raise ValueError(f"k is {k}; expected 0 to {int(shape[axis])}, the elements along axis {axis}")
        if k == 0 or any(isinstance(extent, tirx.IntImm) and int(extent) == 0 for extent in shape):
            wanted = [k if place == axis else int(extent) for place, extent in enumerate(shape)]
            return relax.Tuple([_nothing(wanted, dtype), _nothing(wanted, "int64")])
        largest = bool(attr.get("largest", 1))
        places = bb.emit(op.topk(order_keys(bb, data), k, axis, ret_type="indices", largest=largest, dtype="int64"))
        return relax.Tuple([bb.emit(op.gather_elements(data, places, axis)), places])


def order_keys(bb: relax.BlockBuilder, data: relax.Expr) -> relax.Expr:
    """Sort keys with the order of the elements; NaN is above all numbers."""
    dtype = dtype_of(data)
    if dtype == "uint64":
        raise ValueError("elements of uint64 are not supported; expected floats, and integers of up to 63 bits")
    keys = bb.emit(op.astype(data, _WIDER[dtype])) if dtype in _WIDER else data
    return bb.emit_te(_ordered, keys, primfunc_name_hint="order") if dtype_of(keys) in ("float32", "float64") else keys


def _nothing(shape: list[int], dtype: str) -> relax.Expr:
    return constant(np.empty(shape), dtype)


def _ordered(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *at: order_key(x(*at)), name="order")


class NonMaxSuppression(tvm_onnx.OnnxOpConverter):
    """Boxes in the order of their scores, without those that overlap a previous one by more than the threshold."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        boxes, scores = inputs[0], inputs[1]
        limits = [_limit(inputs[place]) for place in (2, 3, 4)]
        most, overlap, least = (
            default if limit is None else limit for limit, default in zip(limits, (0, 0.0, -np.inf), strict=True)
        )
        extents = extents_of(scores)
        boxes_each = whole(boxes.ty.shape[1])
        count = min(int(most), boxes_each if isinstance(boxes_each, int) else _MOST)
        if count <= 0 or any(isinstance(extent, int) and extent == 0 for extent in extents):
            return _nothing([0, 3], "int64")
        if attr.get("center_point_box", 0):
            x, y, width, height = (bb.emit(part) for part in bb.emit(op.split(boxes, 4, axis=2)))
            half = relax.const(0.5, dtype_of(boxes))
            width, height = bb.emit(op.multiply(width, half)), bb.emit(op.multiply(height, half))
            corners = [y - height, x - width, y + height, x + width]
            boxes = bb.emit(op.concat([bb.emit(corner) for corner in corners], axis=2))
        chosen = op.vision.all_class_non_max_suppression(
            boxes,
            _ranked(bb, scores, least),
            constant(count),
            # TVM drops a box at the threshold, ONNX only above it.
            constant(np.nextafter(np.float32(overlap), np.float32(np.inf)), "float32"),
            constant(0.0, "float32"),
            output_format="onnx",
        )
        # TVM's result has the shape of all boxes, but fewer are kept: the number is known only at run time.
        kept = tirx.Var("num_selected", "int64")
        return bb.match_cast(bb.emit(relax.TupleGetItem(bb.emit(chosen), 0)), relax.TensorType([kept, 3], "int64"))


def _ranked(bb: relax.BlockBuilder, scores: relax.Expr, least: float) -> relax.Expr:
    """Positive numbers in the order of the scores above the minimum, and 0 for the others: TVM reads a score of 0 or
    less as a box dropped earlier."""
    dtype, boxes = dtype_of(scores), whole(scores.ty.shape[-1])
    valid = bb.emit(op.greater(scores, constant(least, dtype)))
    if least == -np.inf:
        valid = bb.emit(op.logical_or(valid, op.equal(scores, constant(least, dtype))))
    kept = bb.emit(op.where(valid, scores, constant(-np.inf, dtype)))
    order = bb.emit(op.argsort(kept, axis=-1, descending=True, dtype="int64"))
    place = bb.emit(op.astype(op.argsort(order, axis=-1, dtype="int64"), "float32"))
    if isinstance(boxes, int):
        most = constant(boxes, "float32")
    else:
        vector = bb.emit(op.shape_to_tensor(relax.ShapeExpr([boxes])))
        most = bb.emit(op.astype(bb.emit(op.reshape(vector, [])), "float32"))
    return bb.emit(op.where(valid, most - place, constant(0.0, "float32")))


def _limit(value: relax.Expr | None) -> float | None:
    if value is None:
        return None
    if not isinstance(value, tvm.ir.GenericConst):
        raise ValueError("the limits have to be known at compile time")
    return float(value.value.numpy().reshape(-1)[0])


class Unique(tvm_onnx.Unique):
    """Unique; without an axis the tensor is flattened first: NumPy's inverse, which TVM uses, has the shape of its
    argument."""

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        flat = inputs[0] if "axis" in attr or inputs[0].ty.ndim == 1 else bb.emit(op.reshape(inputs[0], [-1]))
        return super()._impl_v11(bb, [flat, *inputs[1:]], attr, params)


CONVERTERS: dict[str, Any] = {"NonMaxSuppression": NonMaxSuppression, "TopK": TopK, "Unique": Unique}
