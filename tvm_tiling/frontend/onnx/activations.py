"""ONNX activations that TVM's converters compute only in float32, or incorrectly for integers, infinities and NaN."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from .tensors import dtype_of, number


def _exponential(bb: relax.BlockBuilder, x: relax.Expr, alpha: float, scale: float = 1.0) -> relax.Expr:
    """Return scale * alpha * (exp(x) - 1) for x < 0, otherwise scale * x."""
    zero = number(0.0, x)
    # The exponential is not used for non-negative values, for which it may be infinite.
    falling = bb.emit(op.exp(bb.emit(op.minimum(x, zero))) - number(1.0, x))
    lower = bb.emit(falling * number(scale * alpha, x))
    upper = x if scale == 1.0 else bb.emit(x * number(scale, x))
    return op.where(op.less(x, zero), lower, upper)


class Elu(tvm_onnx.OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return _exponential(bb, inputs[0], attr.get("alpha", 1.0))


class Celu(tvm_onnx.OnnxOpConverter):
    """Convert to max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    @classmethod
    def _impl_v12(cls, bb, inputs, attr, params):
        x, alpha = inputs[0], attr.get("alpha", 1.0)
        zero = number(0.0, x)
        falling = op.exp(bb.emit(x / number(alpha, x))) - number(1.0, x)
        lower = bb.emit(op.minimum(zero, bb.emit(falling * number(alpha, x))))
        return op.maximum(x, zero) + lower


class Selu(tvm_onnx.OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        alpha, gamma = attr.get("alpha", 1.67326319217681884765625), attr.get("gamma", 1.05070102214813232421875)
        return _exponential(bb, inputs[0], alpha, gamma)


class ThresholdedRelu(tvm_onnx.OnnxOpConverter):
    """Convert to x above alpha, otherwise 0."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        x = inputs[0]
        return op.where(op.greater(x, number(attr.get("alpha", 1.0), x)), x, number(0.0, x))


class Shrink(tvm_onnx.OnnxOpConverter):
    """Convert to 0 from -lambd to lambd, with values outside moved towards 0 by the bias; both are fractional even for
    integers."""

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        kept = dtype_of(inputs[0])
        wide = kept if kept in ("float32", "float64") else "float32" if "float" in kept else "float64"
        x = inputs[0] if wide == kept else bb.emit(op.astype(inputs[0], wide))
        limit, bias = attr.get("lambd", 0.5), number(attr.get("bias", 0.0), x)
        above = bb.emit(op.where(op.greater(x, number(limit, x)), bb.emit(x - bias), number(0.0, x)))
        result = op.where(op.less(x, number(-limit, x)), bb.emit(x + bias), above)
        return result if wide == kept else op.astype(bb.emit(result), kept)


class Sign(tvm_onnx.OnnxOpConverter):
    """Convert such that the sign of NaN is NaN."""

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        x = inputs[0]
        if "uint" in dtype_of(x):
            return op.minimum(x, number(1, x))
        sign = bb.emit(op.sign(x))
        return op.where(bb.emit(op.isnan(x)), x, sign) if "float" in dtype_of(x) else sign


class _OfRows(tvm_onnx.OnnxOpConverter):
    """Row-wise operators on a tensor, flattened before version 13; TVM's converters fail for some empty tensors."""

    plain: Any

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return inputs[0] if _is_empty(inputs[0]) else cls.plain._impl_v1(bb, inputs, attr, params)

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        return inputs[0] if _is_empty(inputs[0]) else cls.plain._impl_v13(bb, inputs, attr, params)


def _is_empty(x: relax.Expr) -> bool:
    return any(isinstance(extent, tirx.IntImm) and int(extent) == 0 for extent in x.ty.shape)


class Softmax(_OfRows):
    plain = tvm_onnx.Softmax


class LogSoftmax(_OfRows):
    plain = tvm_onnx.LogSoftmax


class Hardmax(_OfRows):
    plain = tvm_onnx.Hardmax


CONVERTERS: dict[str, Any] = {
    "Celu": Celu,
    "Elu": Elu,
    "Hardmax": Hardmax,
    "LogSoftmax": LogSoftmax,
    "Softmax": Softmax,
    "Selu": Selu,
    "Shrink": Shrink,
    "Sign": Sign,
    "ThresholdedRelu": ThresholdedRelu,
}
