"""Operators on 8-bit integers as the float operator between dequantisation of its operands and quantisation of its
result: the uniform representation of quantised graphs, from which integer kernels are derived later.

Operands and attributes follow the standard and onnxruntime (docs/ContribOperators.md of its repository).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ..open_shapes import extents_of
from .pools import AveragePool
from .tensors import as_inputs, constant, dtype_of, held, known, rank_of, shape_of
from .windows import Conv

Builder: TypeAlias = relax.BlockBuilder
Expr: TypeAlias = relax.Expr

_STORED = ("int8", "uint8", "int16", "uint16")  # types that tensors are quantised to


def pairs_serve(*values: Expr | None) -> bool:
    """Return whether scales and zero points suit such pairs: known at compile time."""
    return all(value is None or known(value) is not None for value in values)


def require_scales(data: Expr, scale: Expr, zero: Expr | None, axis: int | None) -> None:
    """Raise ValueError unless known scales are positive, and scales and zero points match the data: one for all
    elements, or one per position along `axis`; None skips the count check."""
    known_scale = known(scale)
    if known_scale is not None and not (np.isfinite(known_scale) & (known_scale > 0)).all():
        wrong = known_scale[~(np.isfinite(known_scale) & (known_scale > 0))].reshape(-1)[0]
        raise ValueError(f"a scale is {float(wrong):g}; expected positive numbers")
    if axis is None:
        return
    shape = extents_of(data)
    for called, parts in (("scales", scale), ("zero points", zero)):
        if parts is None:
            continue
        count = int(np.prod(shape_of(parts)))
        rank = len(shape_of(parts))
        if count != 1 and not (rank == 1 and shape and -len(shape) <= axis < len(shape) and count == shape[axis]):
            raise ValueError(
                f"{called} have shape {tuple(shape_of(parts))} for data of shape {tuple(shape)} along axis "
                f"{axis}; expected one, or one per position of that axis"
            )


def require_stored(zero: Expr) -> None:
    """Raise ValueError for a zero point of a type that is not a quantised type."""
    if dtype_of(zero) not in _STORED:
        raise ValueError(f"the zero point has type {dtype_of(zero)}; expected {', '.join(_STORED)}")


def as_many(scale: Expr, zero: Expr) -> tuple[Expr, Expr]:
    """Expand a scale or zero point that is a known scalar to the count of the other one."""
    counts = [int(np.prod(shape_of(part))) for part in (scale, zero)]
    if counts[0] == 1 < counts[1] and known(scale) is not None:
        scale = constant(np.full(counts[1], held(scale).reshape(())), dtype_of(scale))
    elif counts[1] == 1 < counts[0] and known(zero) is not None:
        zero = constant(np.full(counts[0], held(zero).reshape(())), dtype_of(zero))
    return scale, zero


def real(bb: Builder, value: Expr, scale: Expr, zero: Expr | None, axis: int = 0) -> Expr:
    """Dequantise an integer tensor to float32; `axis` applies to per-axis scales."""
    require_scales(value, scale, zero, axis)
    if zero is not None and dtype_of(zero) != dtype_of(value):
        raise ValueError(f"the zero point has type {dtype_of(zero)}; expected {dtype_of(value)}, the type of the data")
    zero = relax.const(0, dtype_of(value)) if zero is None else zero
    scale, zero = as_many(_scalar(scale), _scalar(zero))
    return bb.emit(op.dequantize(value, scale, zero, axis=axis, out_dtype="float32"))


def in_8_bits(bb: Builder, value: Expr, scale: Expr, zero: Expr | None, dtype: str = "uint8") -> Expr:
    """Quantise a float tensor to the zero point's type; a missing zero point is 0 of `dtype`."""
    zero = relax.const(0, dtype) if zero is None else _scalar(zero)
    value = bb.normalize(value)
    require_scales(value, scale, zero, 0)
    require_stored(zero)
    scale, zero = as_many(_scalar(scale), zero)
    return op.quantize(value, scale, zero, axis=0, out_dtype=dtype_of(zero))


def real_bias(bias: Expr, *scales: Expr) -> Expr:
    """Convert an int32 bias to float32; its scale is the product of both scales."""
    factor = held(bias).astype(np.float64)
    for scale in scales:
        factor = factor * held(scale).astype(np.float64).reshape(-1)
    return constant(factor.astype(np.float32), "float32")


def _scalar(value: Expr) -> Expr:
    """Return a one-element tensor as a scalar."""
    one = held(value)
    return value if one.ndim == 0 or one.size > 1 else constant(one.reshape(()), dtype_of(value))


def convolution(bb: Builder, inputs: Sequence[Expr | None], attr: dict[str, Any], params: Any) -> Expr:
    """QLinearConv with constant scales and bias."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = inputs[:9]
    given = [real(bb, x, x_scale, x_zero), real(bb, w, w_scale, w_zero)]
    if bias is not None:
        given.append(real_bias(bias, x_scale, w_scale))
    return in_8_bits(bb, bb.emit(Conv._impl_v1(bb, as_inputs(*given), attr, params)), y_scale, y_zero)


def product(bb: Builder, inputs: Sequence[Expr | None]) -> Expr:
    """QLinearMatMul with constant scales, a single one for A."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs[:8]
    given = real(bb, a, a_scale, a_zero), real(bb, b, b_scale, b_zero, rank_of(b) - 1)
    return in_8_bits(bb, bb.emit(op.matmul(*given)), y_scale, y_zero)


class _Pair(tvm_onnx.OnnxOpConverter):
    """An operator on one tensor: `of` is its float computation."""

    @classmethod
    def of(cls, bb: Builder, value: Expr, attr: dict[str, Any], params: Any) -> Expr:
        raise NotImplementedError

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        x, x_scale, x_zero, y_scale, y_zero = inputs[:5]
        _require(x_scale, x_zero, y_scale, y_zero)
        return in_8_bits(bb, cls.of(bb, real(bb, x, x_scale, x_zero), attr, params), y_scale, y_zero, dtype_of(x))


class QLinearSigmoid(_Pair):
    """Quantised sigmoid, 1 / (1 + exp(-x))."""

    @classmethod
    def of(cls, bb, value, attr, params):
        return op.sigmoid(value)


class QLinearLeakyRelu(_Pair):
    """Quantised leaky ReLU: x, or alpha x for x < 0."""

    @classmethod
    def of(cls, bb, value, attr, params):
        return op.nn.leakyrelu(value, attr.get("alpha", 0.01))


class QLinearSoftmax(_Pair):
    """Softmax along one axis; before version 13 of the standard operators, along all axes from that one."""

    @classmethod
    def of(cls, bb, value, attr, params):
        axis = attr.get("axis", -1) % max(1, rank_of(value))
        if attr.get("opset", 13) >= 13:
            return op.nn.softmax(value, axis)
        shape = shape_of(value)
        rows = int(np.prod(shape[:axis]))
        flat = bb.emit(op.reshape(value, [rows, int(np.prod(shape[axis:]))]))
        return op.reshape(bb.emit(op.nn.softmax(flat, 1)), shape)


class QLinearGlobalAveragePool(_Pair):
    """The mean over the pixels of each channel."""

    @classmethod
    def of(cls, bb, value, attr, params):
        rank = rank_of(value)
        axes = range(1, rank - 1) if attr.get("channels_last", 0) else range(2, rank)
        return op.mean(value, list(axes), keepdims=True)


class QLinearAveragePool(_Pair):
    """Means over windows; the channel axis is the second or the last one."""

    @classmethod
    def of(cls, bb, value, attr, params):
        last = attr.get("channels_last", 0)
        rank = rank_of(value)
        kept = {name: given for name, given in attr.items() if name != "channels_last"}
        if last:
            value = bb.emit(op.permute_dims(value, [0, rank - 1, *range(1, rank - 1)]))
        found = AveragePool._impl_v1(bb, as_inputs(value), kept, params)
        return op.permute_dims(bb.emit(found), [0, *range(2, rank), 1]) if last else found


class _PairOfTwo(tvm_onnx.OnnxOpConverter):
    """An element-wise operator on two tensors, each with its own scale and zero point."""

    function: Callable[[Expr, Expr], Expr]

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs[:8]
        _require(a_scale, a_zero, b_scale, b_zero, y_scale, y_zero)
        found = cls.function(real(bb, a, a_scale, a_zero), real(bb, b, b_scale, b_zero))
        return in_8_bits(bb, bb.emit(found), y_scale, y_zero, dtype_of(a))


class QLinearAdd(_PairOfTwo):
    """Quantised A + B."""

    function = staticmethod(op.add)


class QLinearMul(_PairOfTwo):
    """Quantised element-wise A * B."""

    function = staticmethod(op.multiply)


class QLinearConcat(tvm_onnx.OnnxOpConverter):
    """Concatenation of tensors of different scales."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        _require(*given[:2], *(one for place in range(2, len(given), 3) for one in given[place + 1 : place + 3]))
        parts = [real(bb, *given[place : place + 3]) for place in range(2, len(given), 3)]
        return in_8_bits(bb, bb.emit(op.concat(parts, attr["axis"])), given[0], given[1])


class QGemm(tvm_onnx.OnnxOpConverter):
    """alpha A B + C with an int32 C and optional transposition of A and B; the result is float if no output scale is
    given."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = inputs[:9]
        _require(a_scale, a_zero, b_scale, b_zero, c, y_scale, y_zero)
        alpha, turned = attr.get("alpha", 1.0), attr.get("transB", 0)
        left, right = real(bb, a, a_scale, a_zero), real(bb, b, b_scale, b_zero, 0 if turned else 1)
        left = bb.emit(op.permute_dims(left)) if attr.get("transA", 0) else left
        right = bb.emit(op.permute_dims(right)) if turned else right
        total = bb.emit(op.matmul(left, right))
        if alpha != 1:
            total = bb.emit(op.multiply(total, relax.const(alpha, "float32")))
        if c is not None:
            total = bb.emit(op.add(total, real_bias(c, relax.const(alpha, "float32"), a_scale, b_scale)))
        return total if y_scale is None else in_8_bits(bb, total, y_scale, y_zero, dtype_of(a))


def _require(*values: Expr | None) -> None:
    if not pairs_serve(*values):
        raise ValueError("scales, zero points and biases have to be known at compile time")


CONVERTERS: dict[str, Any] = {
    converter.__name__: converter
    for converter in (
        QGemm,
        QLinearAdd,
        QLinearAveragePool,
        QLinearConcat,
        QLinearGlobalAveragePool,
        QLinearLeakyRelu,
        QLinearMul,
        QLinearSigmoid,
        QLinearSoftmax,
    )
}
"""Converters for the domain com.microsoft."""
