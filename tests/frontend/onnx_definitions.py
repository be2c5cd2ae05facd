"""Operators by definition for the onnx package's evaluator, where it has none or departs from the standard."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_hardmax, op_log_softmax, op_max_pool, op_reduce_log_sum_exp, op_softmax
from onnx.reference.ops.op_layer_normalization import _layer_normalization


class Einsum(OpRun):
    """By definition, with all products before any sum: the onnx package factors sums first if possible, which differs
    if a factor is infinite and the others have both signs."""

    op_domain = ""

    def _run(self, *operands: np.ndarray, equation: str) -> tuple[np.ndarray]:
        left, arrow, right = equation.replace(" ", "").partition("->")
        wide = [operand.astype("float64") if operand.dtype.kind == "f" else operand for operand in operands]
        if not arrow:
            return (np.einsum(left, *wide).astype(operands[0].dtype),)
        every = "..." * ("..." in left) + "".join(sorted(set(left) - set(".,")))
        products = np.einsum(f"{left}->{every}", *wide)
        return (np.einsum(f"{every}->{right}", products).astype(operands[0].dtype),)


class OneHot(OpRun):
    """By definition: the onnx package multiplies by the difference of the two values."""

    op_domain = ""

    def _run(
        self, indices: np.ndarray, depth: np.ndarray, values: np.ndarray, axis: int = -1
    ) -> tuple[np.ndarray, ...]:
        result = np.full((*indices.shape, int(depth.reshape(-1)[0])), values[0], values.dtype)
        for place in np.ndindex(*indices.shape):
            if -result.shape[-1] <= indices[place] < result.shape[-1]:
                result[(*place, int(indices[place]))] = values[1]
        return (np.moveaxis(result, -1, axis),)


class _OfRows(OpRun):
    """Before version 13 on the tensor as a matrix, with the axes before `axis` as rows; the onnx package uses version
    13 for all."""

    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        given = self.axis if any(attribute.name == "axis" for attribute in self.onnx_node.attribute) else None
        if self.run_params["opsets"][""] >= 13:
            self.axis = -1 if given is None else given
            return super()._run(x)
        first = (1 if given is None else given) % x.ndim
        rows = x.reshape(math.prod(x.shape[:first]), math.prod(x.shape[first:]))
        self.axis = -1
        (result,) = super()._run(rows) if x.size else (rows,)
        self.axis = given
        return (result.reshape(x.shape),)


class Hardmax(_OfRows, op_hardmax.Hardmax):
    """1 at the first maximum, or at the first NaN, as in NumPy."""


class LogSoftmax(_OfRows, op_log_softmax.LogSoftmax):
    """Logarithms of Softmax."""


class Softmax(_OfRows, op_softmax.Softmax):
    """Exponentials over their sum."""


class MaxPool(op_max_pool.MaxPool):
    """SAME_UPPER and SAME_LOWER by definition: a result for every stride, and with odd padding one more element after,
    or before. The onnx package puts it after if windows are dilated."""

    def _run(self, x: np.ndarray, **attributes: Any) -> tuple[np.ndarray, ...]:
        side = attributes["auto_pad"]
        if not side.startswith("SAME"):
            return super()._run(x, **attributes)
        windows = attributes["kernel_shape"]
        strides, dilations = (attributes[name] or [1] * len(windows) for name in ("strides", "dilations"))
        totals = [
            (math.ceil(extent / stride) - 1) * stride + (window - 1) * dilation + 1 - extent
            for extent, window, stride, dilation in zip(x.shape[2:], windows, strides, dilations, strict=True)
        ]
        before = [int((total + (side == "SAME_LOWER")) / 2) for total in totals]
        behind = [total - one for total, one in zip(totals, before, strict=True)]
        padding = {"auto_pad": "NOTSET", "pads": [*before, *behind], "ceil_mode": 0}
        return self._max_pool(x, **(attributes | padding))


class MeanVarianceNormalization(OpRun):
    """By definition, for any float: the onnx package adds a float32."""

    op_domain = ""

    def _run(self, x: np.ndarray, axes: tuple[int, ...] = (0, 2, 3)) -> tuple[np.ndarray]:
        wide, along = x.astype("float64"), tuple(axes)
        away = wide - wide.mean(axis=along, keepdims=True)
        deviation = np.sqrt(np.square(away).mean(axis=along, keepdims=True))
        return ((away / (deviation + 1e-9)).astype(x.dtype),)


class ReduceLogSumExp(op_reduce_log_sum_exp.ReduceLogSumExp_18):
    """Also of integers, which versions before 28 support: truncated float64 logarithms, as defined by Exp and Log; the
    onnx package does not support them, and onnxruntime adds the maximum after truncation."""

    op_domain = ""

    def _run(
        self,
        x: np.ndarray,
        given: np.ndarray | None = None,
        axes: tuple[int, ...] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> tuple[np.ndarray]:
        wide = x.astype("float64") if x.dtype.kind in "iu" else x
        (result,) = super()._run(wide, axes if given is None else given, keepdims, noop_with_empty_axes)
        return (result.astype(x.dtype),)


class ScatterElements(OpRun):
    """With NumPy's maximum and minimum, as in ScatterND and Max: a NaN stays. Python's, which the onnx package uses,
    keep it only if it is the first operand."""

    op_domain = ""

    def _run(
        self, data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int = 0, reduction: str | None = None
    ) -> tuple[np.ndarray]:
        combine = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}.get(reduction or "none")
        result = data.copy()
        for at in np.ndindex(indices.shape):
            place = tuple(int(indices[at]) if one == axis % data.ndim else at[one] for one in range(data.ndim))
            result[place] = updates[at] if combine is None else combine(result[place], updates[at])
        return (result,)


class SkipLayerNormalization(OpRun):
    """LayerNormalization of input + skip + bias, and that sum; float16 computed in float64."""

    op_domain = "com.microsoft"

    def _run(
        self,
        x: np.ndarray,
        skip: np.ndarray,
        gamma: np.ndarray,
        beta: np.ndarray | None = None,
        bias: np.ndarray | None = None,
        epsilon: float = 1e-12,
    ) -> tuple[np.ndarray, ...]:
        operands = [None if one is None else one.astype("float64") for one in (x, skip, gamma, beta, bias)]
        total = operands[0] + operands[1] + (0 if operands[4] is None else operands[4])
        normal, mean, inverse = _layer_normalization(total, operands[2], operands[3], -1, epsilon)
        results = (normal.astype(x.dtype), mean.astype("float32"), inverse.astype("float32"), total.astype(x.dtype))
        return results[: len(self.onnx_node.output)]


DEFINITIONS = [
    Einsum,
    Hardmax,
    LogSoftmax,
    MaxPool,
    MeanVarianceNormalization,
    OneHot,
    ReduceLogSumExp,
    ScatterElements,
    SkipLayerNormalization,
    Softmax,
]
