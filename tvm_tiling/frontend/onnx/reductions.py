"""ONNX reductions that handle infinities correctly: maxima, minima and logarithms of sums.

TVM's reductions start from the extreme finite numbers, so the maximum of a row of -inf is finite there. Models use
exactly this reduction to test whether a mask excludes a whole row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from .tensors import dtype_of, rank_of, shape_of


def _constant_axes(value: relax.Expr | None) -> list[int]:
    """The axes of a reduction as integers; empty if the input is omitted."""
    if value is None:
        return []
    if not isinstance(value, tvm.ir.GenericConst):
        raise ValueError("the axes have to be known at compile time")
    return [int(axis) for axis in value.value.numpy().reshape(-1)]


class _Extreme(tvm_onnx.OnnxOpConverter):
    """A float reduction that starts from an infinity; `plain` is TVM's reduction, used for integers."""

    plain: Any
    infinity = "inf"

    @classmethod
    def _combine(cls, a: Any, b: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def _of_nothing(cls, dtype: str) -> Any:
        """The result for no elements: an infinity, or the nearest value of the type."""
        if dtype in ("float16", "float32", "float64", "bfloat16"):
            return float(cls.infinity)
        upwards = float(cls.infinity) > 0
        if dtype == "bool":
            return upwards
        return np.iinfo(dtype).max if upwards else np.iinfo(dtype).min

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return cls._reduced(bb, inputs, attr, params, list(attr.get("axes", ())), "_impl_v11")

    @classmethod
    def _impl_v18(cls, bb, inputs, attr, params):
        axes = _constant_axes(inputs[1])
        if not axes and attr.get("noop_with_empty_axes", 0):
            return inputs[0]
        return cls._reduced(bb, inputs, attr, params, axes, "_impl_v18")

    @classmethod
    def _reduced(
        cls, bb: relax.BlockBuilder, inputs: list, attr: dict, params: Any, axes: list[int], form: str
    ) -> relax.Expr:
        data = inputs[0]
        dtype, rank = dtype_of(data), len(data.ty.shape)
        reduced = sorted({axis % rank for axis in axes}) or list(range(rank))
        keep = bool(attr.get("keepdims", 1))
        if any(isinstance(extent := data.ty.shape[axis], tirx.IntImm) and int(extent) == 0 for axis in reduced):
            empty = np.empty(shape_of(data), bool).any(axis=tuple(reduced), keepdims=keep)
            return relax.const(np.full(empty.shape, cls._of_nothing(dtype), dtype), dtype)
        if dtype == "bool":
            narrow = bb.emit(op.astype(data, "int8"))
            return op.astype(bb.emit(cls._reduced(bb, [narrow, *inputs[1:]], attr, params, axes, form)), "bool")
        if dtype not in ("float32", "float64", "float16"):
            return getattr(cls.plain, form)(bb, inputs, attr, params)
        reducer = te.comm_reducer(
            lambda a, b: cls._combine(a, b), lambda kind: tirx.const(float(cls.infinity), kind), name="extreme"
        )

        def extreme(x: te.Tensor) -> te.Tensor:
            walks = {axis: te.reduce_axis((0, x.shape[axis]), name=f"k{axis}") for axis in reduced}
            shape = [1 if axis in walks else x.shape[axis] for axis in range(rank) if keep or axis not in walks]

            def element(*at: Any) -> Any:
                left = iter(at if not keep else [at[axis] for axis in range(rank) if axis not in walks])
                places = [walks[axis] if axis in walks else next(left) for axis in range(rank)]
                return reducer(x[tuple(places)], axis=list(walks.values()))

            return te.compute(shape, element, name="extreme")

        return bb.emit_te(extreme, data) if rank else data


class ReduceMax(_Extreme):
    """The maximum; -inf for no elements."""

    plain = tvm_onnx.ReduceMax
    infinity = "-inf"

    @classmethod
    def _combine(cls, a, b):
        return tirx.max(a, b)


class ReduceMin(_Extreme):
    """The minimum; inf for no elements."""

    plain = tvm_onnx.ReduceMin

    @classmethod
    def _combine(cls, a, b):
        return tirx.min(a, b)


class _Reduction(tvm_onnx.OnnxOpConverter):
    """A float reduction. Integers are reduced as float64 and cast back unless `has_integers`."""

    has_integers = False

    @classmethod
    def _values(cls, bb: relax.BlockBuilder, data: relax.Expr, axes: list[int]) -> relax.Expr:
        """The reduction with its axes kept."""
        raise NotImplementedError

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return cls._reduced(bb, inputs[0], attr, list(attr.get("axes", ())))

    @classmethod
    def _impl_v18(cls, bb, inputs, attr, params):
        axes = _constant_axes(inputs[1])
        if not axes and attr.get("noop_with_empty_axes", 0):  # each element by itself
            return cls._reduced(bb, bb.emit(op.expand_dims(inputs[0], 0)), {"keepdims": 0}, [0])
        return cls._reduced(bb, inputs[0], attr, axes)

    @classmethod
    def _reduced(cls, bb: relax.BlockBuilder, data: relax.Expr, attr: dict, axes: list[int]) -> relax.Expr:
        dtype, reduced = dtype_of(data), axes or list(range(data.ty.ndim))
        floats = data if "float" in dtype or cls.has_integers else bb.emit(op.astype(data, "float64"))
        result = bb.emit(cls._values(bb, floats, reduced))
        if not attr.get("keepdims", 1):
            result = bb.emit(op.squeeze(result, reduced))
        return result if floats is data else op.astype(result, dtype)


class ReduceMean(_Reduction):
    @classmethod
    def _reduced(cls, bb, data, attr, axes):
        shape = list(data.ty.shape)
        reduced = [shape[axis] for axis in axes or range(len(shape))]
        empty = any(isinstance(extent, tirx.IntImm) and int(extent) == 0 for extent in reduced)
        if empty and "float" not in dtype_of(data):
            raise ValueError("the mean of no integers is undefined")
        return super()._reduced(bb, data, attr, axes)

    @classmethod
    def _values(cls, bb, data, axes):
        return op.mean(data, axes, keepdims=True)


class ReduceL1(_Reduction):
    has_integers = True

    @classmethod
    def _values(cls, bb, data, axes):
        return op.sum(bb.emit(op.abs(data)), axes, keepdims=True)


class ReduceSumSquare(_Reduction):
    has_integers = True

    @classmethod
    def _values(cls, bb, data, axes):
        return op.sum(bb.emit(op.multiply(data, data)), axes, keepdims=True)


class ReduceL2(_Reduction):
    @classmethod
    def _values(cls, bb, data, axes):
        return op.sqrt(bb.emit(op.sum(bb.emit(op.multiply(data, data)), axes, keepdims=True)))


class ReduceLogSum(_Reduction):
    @classmethod
    def _values(cls, bb, data, axes):
        return op.log(bb.emit(op.sum(data, axes, keepdims=True)))


class ReduceLogSumExp(_Reduction):
    """log(sum(exp(x))), with the maximum subtracted first if it is finite."""

    @classmethod
    def _values(cls, bb, data, axes):
        largest = bb.emit(op.max(data, axes, True))
        away = bb.emit(op.where(op.isfinite(largest), largest, relax.const(0.0, dtype_of(data))))
        return op.log(bb.emit(op.sum(op.exp(data - away), axes, True))) + away


class LRN(tvm_onnx.OnnxOpConverter):
    """Local response normalisation over neighbouring channels; an even size takes the extra channel at the end."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data, size = inputs[0], attr["size"]
        channels, dtype = int(data.ty.shape[1]), dtype_of(data)
        before = (size - 1) // 2
        widths = [0, 0, before, size - 1 - before] + [0, 0] * (rank_of(data) - 2)
        padded = bb.emit(op.nn.pad(bb.emit(data * data), widths))
        total = None
        for start in range(size):
            part = bb.emit(op.strided_slice(padded, [1], [start], [start + channels]))
            total = part if total is None else bb.emit(total + part)
        alpha, beta, bias = attr.get("alpha", 1e-4), attr.get("beta", 0.75), attr.get("bias", 1.0)
        base = bb.emit(total * relax.const(alpha / size, dtype) + relax.const(bias, dtype))
        return data / cls._power(bb, base, beta)

    @staticmethod
    def _power(bb, base, exponent):
        """base ** exponent; common exponents use square roots, which have vector instructions."""
        if exponent == 1.0:
            return base
        if exponent not in (0.5, 0.75):
            return bb.emit(op.power(base, relax.const(exponent, dtype_of(base))))
        root = bb.emit(op.sqrt(base))
        return root if exponent == 0.5 else bb.emit(root * bb.emit(op.sqrt(root)))


class MeanVarianceNormalization(tvm_onnx.OnnxOpConverter):
    """Subtraction of the mean and division by the standard deviation; equal elements give zeros."""

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        data, axes = inputs[0], list(attr.get("axes", (0, 2, 3)))
        away = bb.emit(data - bb.emit(op.mean(data, axes, keepdims=True)))
        variance = bb.emit(op.mean(bb.emit(away * away), axes, keepdims=True))
        return away / bb.emit(bb.emit(op.sqrt(variance)) + relax.const(1e-9, dtype_of(data)))


class ArgMax(tvm_onnx.ArgMax):
    """ArgMax; axes before version 11 may be negative, as in onnxruntime."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return cls._impl_v11(bb, inputs, attr, params)


class ArgMin(tvm_onnx.ArgMin):
    """ArgMin; axes before version 11 may be negative, as in onnxruntime."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return cls._impl_v11(bb, inputs, attr, params)


CONVERTERS: dict[str, Any] = {
    "ArgMax": ArgMax,
    "ArgMin": ArgMin,
    "ReduceL1": ReduceL1,
    "ReduceL2": ReduceL2,
    "ReduceLogSum": ReduceLogSum,
    "ReduceLogSumExp": ReduceLogSumExp,
    "ReduceMax": ReduceMax,
    "ReduceMean": ReduceMean,
    "ReduceMin": ReduceMin,
    "ReduceSumSquare": ReduceSumSquare,
    "LRN": LRN,
    "MeanVarianceNormalization": MeanVarianceNormalization,
}
