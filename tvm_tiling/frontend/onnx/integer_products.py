"""Integer matrix multiplications and convolutions with scales computed at run time: dynamic quantisation.

With constant weights, the 8-bit integers are multiplied directly (uint8 is shifted by 128), and the contribution of
zero points is subtracted from the sums:

    sum of (a - za) (w - zw)  =  sum of a w  -  za (sum of w - k zw)  -  zw (sum of a)

At the border of a convolution only taps inside the image count: their sums of w form a constant map.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from tvm import relax, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from .pools import windows_of
from .tensors import as_inputs, constant, dtype_of, held, known, rank_of, shape_of, spatial_of
from .windows import convolution

Builder: TypeAlias = relax.BlockBuilder
Expr: TypeAlias = relax.Expr

_MOVED = 128
MOST_TERMS = 2**31 // 2**14 - 1  # 8-bit products whose sum fits int32


def _signed(bb: Builder, value: Expr) -> Expr:
    """Return an 8-bit tensor as int8; uint8 is shifted by 128."""
    if dtype_of(value) == "int8":
        return value
    lower = bb.emit(op.subtract(bb.emit(op.astype(value, "int32")), relax.const(_MOVED, "int32")))
    return bb.emit(op.astype(lower, "int8"))


def _signed_zero(bb: Builder, zero: Expr | None, like: Expr) -> Expr:
    """Return the zero point of a tensor that was made signed, as an int32 scalar."""
    moved = _MOVED if dtype_of(like) == "uint8" else 0
    if zero is None:
        return relax.const(-moved, "int32")
    wide = bb.emit(op.astype(bb.emit(op.reshape(zero, [])), "int32"))
    return bb.emit(op.subtract(wide, relax.const(moved, "int32"))) if moved else wide


def _signed_weights(weights: np.ndarray, zero: Expr | None, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return int8 weights, and their zero points in int32: one, or one per index along an axis."""
    if zero is not None and held(zero).size not in (1, weights.shape[axis]):
        raise ValueError(
            f"zero points have shape {tuple(shape_of(zero))} for weights of shape {weights.shape}; expected "
            f"one, or {weights.shape[axis]}"
        )
    moved = _MOVED if weights.dtype == np.uint8 else 0
    zeros = np.zeros(1, np.int32) if zero is None else held(zero).astype(np.int32).reshape(-1)
    return (weights.astype(np.int32) - moved).astype(np.int8), zeros - moved


def _is_number(zero: Expr | None) -> bool:
    return zero is None or int(np.prod(shape_of(zero))) == 1


def _is_known(zero: Expr | None) -> bool:
    return zero is None or known(zero) is not None


class MatMulInteger(tvm_onnx.MatMulInteger):
    """Matrix multiplication of 8-bit integers in int32."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        a, b, a_zero, b_zero = inputs[:4]
        weights = known(b)
        is_supported = weights is not None and weights.ndim == 2 and weights.shape[0] <= MOST_TERMS and rank_of(a) > 1
        if not is_supported or not _is_number(a_zero) or not _is_known(b_zero):
            return super()._impl_v10(bb, inputs, attr, params)
        values, zeros = _signed_weights(held(b), b_zero, 1)
        left = _signed(bb, a)
        total = bb.emit(op.matmul(left, constant(values, "int8"), out_dtype="int32"))
        sums = values.astype(np.int64).sum(axis=0) - len(values) * zeros.astype(np.int64)
        taken = op.multiply(_signed_zero(bb, a_zero, a), constant(sums.astype(np.int32), "int32"))
        if zeros.any():
            rows = bb.emit(op.sum(bb.emit(op.astype(left, "int32")), [-1], keepdims=True))
            total = bb.emit(op.subtract(total, bb.emit(op.multiply(rows, constant(zeros, "int32")))))
        return op.subtract(total, bb.emit(taken))


class ConvInteger(tvm_onnx.OnnxOpConverter):
    """Convolution of 8-bit integers in int32."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        x, w, x_zero, w_zero = inputs[:4]
        weights = known(w)
        is_supported = weights is not None and np.prod(weights.shape[1:]) <= MOST_TERMS and _is_known(w_zero)
        if is_supported and _is_number(x_zero):
            values, zeros = _signed_weights(held(w), w_zero, 0)
            if not zeros.any():
                return cls._in_8_bits(bb, x, x_zero, values, attr)
        spread = [-1] + [1] * (len(w.ty.shape) - 1)
        return convolution(centred(bb, x, x_zero, None), centred(bb, w, w_zero, spread), attr)

    @staticmethod
    def _in_8_bits(bb, x, x_zero, values, attr):
        total = bb.emit(convolution(_signed(bb, x), constant(values, "int8"), attr, out_dtype="int32"))
        sums = _sums_within(values, spatial_of(x), attr)
        taken = bb.emit(op.multiply(_signed_zero(bb, x_zero, x), constant(sums, "int32")))
        return op.subtract(total, taken)


def _sums_within(values: np.ndarray, spatial: list[int], attr: dict[str, Any]) -> np.ndarray:
    """Return int32[1, channels, ...]: the sums of the weights of all taps inside the image, for each output position;
    axes without a border have a single position."""
    windows = windows_of({**attr, "kernel_shape": list(values.shape[2:]), "ceil_mode": 0}, spatial)
    found = values.astype(np.int64).sum(axis=1)
    for axis, (window, size) in enumerate(zip(windows, spatial, strict=True), start=1):
        points = np.arange(window.count) * window.stride - window.before
        taps = np.arange(values.shape[axis + 1]) * window.dilation
        place = points[:, None] + taps[None, :]
        within = ((place >= 0) & (place < size)).astype(np.int64)
        if within.all():
            within = within[:1]
        found = np.moveaxis(np.tensordot(found, within, axes=([axis], [1])), -1, axis)
    return found[None].astype(np.int32)


def centred(bb: Builder, value: Expr, zero: Expr | None, shape: list[int] | None) -> Expr:
    """Return an integer tensor minus its zero point, in int32; `shape` broadcasts a zero point per channel."""
    wide = bb.emit(op.astype(value, "int32"))
    if zero is None:
        return wide
    zero = bb.emit(op.astype(zero, "int32"))
    if shape is not None and int(np.prod(shape_of(zero))) > 1:
        zero = bb.emit(op.reshape(zero, shape))
    elif zero.ty.ndim:
        zero = bb.emit(op.reshape(zero, []))
    return bb.emit(op.subtract(wide, zero))


class DynamicQuantizeLinear(tvm_onnx.OnnxOpConverter):
    """Quantisation to uint8 by the range of the data extended to 0; all-zero data has scale 1."""

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        data, dtype = inputs[0], dtype_of(inputs[0])
        zero, one, most = (relax.const(number, dtype) for number in (0.0, 1.0, 255.0))
        if any(isinstance(extent, tirx.IntImm) and int(extent) == 0 for extent in data.ty.shape):
            grid = relax.const(0, "uint8")
            return relax.Tuple([bb.emit(op.zeros(shape_of(data), "uint8")), one, grid])
        high = bb.emit(op.maximum(bb.emit(op.max(data)), zero))
        low = bb.emit(op.minimum(bb.emit(op.min(data)), zero))
        scale = bb.emit(op.divide(bb.emit(high - low), most))
        scale = bb.emit(op.where(bb.emit(op.equal(high, low)), one, scale))
        start = bb.emit(op.round(bb.emit(op.clip(bb.emit(zero - bb.emit(op.divide(low, scale))), 0, 255))))
        steps = bb.emit(op.round(bb.emit(op.divide(data, scale))))
        result = bb.emit(op.astype(bb.emit(op.clip(bb.emit(steps + start), 0, 255)), "uint8"))
        return relax.Tuple([result, scale, bb.emit(op.astype(start, "uint8"))])


class MatMulIntegerToFloat(tvm_onnx.OnnxOpConverter):
    """Matrix multiplication of 8-bit integers, times both scales, plus a bias: floats."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        a, b, a_scale, b_scale, a_zero, b_zero, bias = inputs[:7]
        total = bb.emit(MatMulInteger._impl_v10(bb, as_inputs(a, b, a_zero, b_zero), attr, params))
        factor = bb.emit(op.multiply(a_scale, b_scale))
        found = bb.emit(op.multiply(bb.emit(op.astype(total, dtype_of(a_scale))), factor))
        return found if bias is None else op.add(found, bias)


class DynamicQuantizeMatMul(tvm_onnx.OnnxOpConverter):
    """Matrix multiplication of floats, quantised by their range, with 8-bit weights."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        a, b, b_scale, b_zero, bias = inputs[:5]
        stored, scale, zero = (
            bb.emit(part) for part in DynamicQuantizeLinear._impl_v11(bb, as_inputs(a), attr, params)
        )
        given = as_inputs(stored, b, scale, b_scale, zero, b_zero, bias)
        return MatMulIntegerToFloat._impl_v1(bb, given, attr, params)


CONVERTERS: dict[str, Any] = {
    "ConvInteger": ConvInteger,
    "DynamicQuantizeLinear": DynamicQuantizeLinear,
    "MatMulInteger": MatMulInteger,
}
CONTRIBUTED: dict[str, Any] = {
    "DynamicQuantizeMatMul": DynamicQuantizeMatMul,
    "MatMulIntegerToFloat": MatMulIntegerToFloat,
}
"""Converters of the domain com.microsoft."""
