"""Norms of ONNX in all types of floats."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx


class LRN(tvm_onnx.OnnxOpConverter):
    """Division by a power of the squares of neighbouring channels; of an even number one more is behind."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data, size = inputs[0], attr["size"]
        shape, dtype = [int(extent) for extent in data.ty.shape], str(data.ty.dtype)
        before = (size - 1) // 2
        lined = bb.emit(op.reshape(data, (shape[0], 1, shape[1], math.prod(shape[2:]))))
        padded = bb.emit(op.nn.pad(bb.emit(lined * lined), [0, 0, 0, 0, before, size - 1 - before, 0, 0]))
        means = bb.emit(op.nn.avg_pool2d(padded, (size, 1), (1, 1)))
        alpha, beta, bias = attr.get("alpha", 1e-4), attr.get("beta", 0.75), attr.get("bias", 1.0)
        base = bb.emit(means * relax.const(alpha, dtype) + relax.const(bias, dtype))
        return op.reshape(bb.emit(lined / bb.emit(op.power(base, relax.const(beta, dtype)))), shape)


class MeanVarianceNormalization(tvm_onnx.OnnxOpConverter):
    """Less the mean, divided by the standard deviation; of equal elements zeros."""

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        data, axes = inputs[0], list(attr.get("axes", (0, 2, 3)))
        away = bb.emit(data - bb.emit(op.mean(data, axes, keepdims=True)))
        variance = bb.emit(op.mean(bb.emit(away * away), axes, keepdims=True))
        return away / bb.emit(bb.emit(op.sqrt(variance)) + relax.const(1e-9, str(data.ty.dtype)))


CONVERTERS: dict[str, Any] = {"LRN": LRN, "MeanVarianceNormalization": MeanVarianceNormalization}
