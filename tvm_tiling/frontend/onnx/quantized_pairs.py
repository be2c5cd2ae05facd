"""Operators on 8-bit integers as the float operator between what makes its operands real and its result 8 bits again:
the one form that quantised graphs have from here on, in which integers are found later.

Operands and attributes as the standard and onnxruntime (docs/ContribOperators.md of its repository) have them.
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

_STORED = ("int8", "uint8", "int16", "uint16")  # what tensors are quantised to


def pairs_serve(*values: Expr | None) -> bool:
    """Whether scales and zero points are such as pairs have: known before the run."""
    return all(value is None or known(value) is not None for value in values)


def require_scales(data: Expr, scale: Expr, zero: Expr | None, axis: int | None) -> None:
    """ValueError unless scales that are known are above 0, and they and the zero points fit the data: one for all, or
    one for each place along `axis`; None: of any number."""
    known_scale = known(scale)
    if known_scale is not None and not (np.isfinite(known_scale) & (known_scale > 0)).all():
        wrong = known_scale[~(np.isfinite(known_scale) & (known_scale > 0))].reshape(-1)[0]
        raise ValueError(f"a scale is {float(wrong):g}; accepted: numbers above 0")
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
                f"{called} of shape {tuple(shape_of(parts))} for data of shape {tuple(shape)} along axis {axis}; "
                "accepted: one, or as many as that axis has places"
            )


def require_stored(zero: Expr) -> None:
    """ValueError for a zero point of a type that nothing is quantised to."""
    if dtype_of(zero) not in _STORED:
        raise ValueError(f"a zero point of {dtype_of(zero)}; accepted: {', '.join(_STORED)}")


def as_many(scale: Expr, zero: Expr) -> tuple[Expr, Expr]:
    """A scale and a zero point of which one is known and a number, and the other one of several places: as many of
    both."""
    counts = [int(np.prod(shape_of(part))) for part in (scale, zero)]
    if counts[0] == 1 < counts[1] and known(scale) is not None:
        scale = constant(np.full(counts[1], held(scale).reshape(())), dtype_of(scale))
    elif counts[1] == 1 < counts[0] and known(zero) is not None:
        zero = constant(np.full(counts[0], held(zero).reshape(())), dtype_of(zero))
    return scale, zero


def real(bb: Builder, value: Expr, scale: Expr, zero: Expr | None, axis: int = 0) -> Expr:
    """float32 of an integer tensor; `axis` is that of scales that are several."""
    require_scales(value, scale, zero, axis)
    if zero is not None and dtype_of(zero) != dtype_of(value):
        raise ValueError(f"a zero point of {dtype_of(zero)} for data of {dtype_of(value)}; accepted: the same type")
    zero = relax.const(0, dtype_of(value)) if zero is None else zero
    scale, zero = as_many(_scalar(scale), _scalar(zero))
    return bb.emit(op.dequantize(value, scale, zero, axis=axis, out_dtype="float32"))


def in_8_bits(bb: Builder, value: Expr, scale: Expr, zero: Expr | None, dtype: str = "uint8") -> Expr:
    """A float tensor as integers of the zero point's type; where that is left out, it is 0 of `dtype`."""
    zero = relax.const(0, dtype) if zero is None else _scalar(zero)
    value = bb.normalize(value)
    require_scales(value, scale, zero, 0)
    require_stored(zero)
    scale, zero = as_many(_scalar(scale), zero)
    return op.quantize(value, scale, zero, axis=0, out_dtype=dtype_of(zero))


def real_bias(bias: Expr, *scales: Expr) -> Expr:
    """float32 of int32 sums of products, whose scale is the product of both scales."""
    factor = held(bias).astype(np.float64)
    for scale in scales:
        factor = factor * held(scale).astype(np.float64).reshape(-1)
    return constant(factor.astype(np.float32), "float32")


def _scalar(value: Expr) -> Expr:
    """A number where a tensor holds but one."""
    one = held(value)
    return value if one.ndim == 0 or one.size > 1 else constant(one.reshape(()), dtype_of(value))


def convolution(bb: Builder, inputs: Sequence[Expr | None], attr: dict[str, Any], params: Any) -> Expr:
    """QLinearConv of known scales and a known bias."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = inputs[:9]
    given = [real(bb, x, x_scale, x_zero), real(bb, w, w_scale, w_zero)]
    if bias is not None:
        given.append(real_bias(bias, x_scale, w_scale))
    return in_8_bits(bb, bb.emit(Conv._impl_v1(bb, as_inputs(*given), attr, params)), y_scale, y_zero)


def product(bb: Builder, inputs: Sequence[Expr | None]) -> Expr:
    """QLinearMatMul of known scales, one for all of A."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs[:8]
    given = real(bb, a, a_scale, a_zero), real(bb, b, b_scale, b_zero, rank_of(b) - 1)
    return in_8_bits(bb, bb.emit(op.matmul(*given)), y_scale, y_zero)


class _Pair(tvm_onnx.OnnxOpConverter):
    """An operator of one tensor: `of` is what it does to floats."""

    @classmethod
    def of(cls, bb: Builder, value: Expr, attr: dict[str, Any], params: Any) -> Expr:
        raise NotImplementedError

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        x, x_scale, x_zero, y_scale, y_zero = inputs[:5]
        _require(x_scale, x_zero, y_scale, y_zero)
        return in_8_bits(bb, cls.of(bb, real(bb, x, x_scale, x_zero), attr, params), y_scale, y_zero, dtype_of(x))


class QLinearSigmoid(_Pair):
    """1 / (1 + exp -x)."""

    @classmethod
    def of(cls, bb, value, attr, params):
        return op.sigmoid(value)


class QLinearLeakyRelu(_Pair):
    """x, and alpha x below 0."""

    @classmethod
    def of(cls, bb, value, attr, params):
        return op.nn.leakyrelu(value, attr.get("alpha", 0.01))


class QLinearSoftmax(_Pair):
    """Along an axis; before version 13 of the standard operators along all from that axis on."""

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
    """The mean of each channel's points."""

    @classmethod
    def of(cls, bb, value, attr, params):
        rank = rank_of(value)
        axes = range(1, rank - 1) if attr.get("channels_last", 0) else range(2, rank)
        return op.mean(value, list(axes), keepdims=True)


class QLinearAveragePool(_Pair):
    """Means over windows; channels come second, or last."""

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
    """An element-wise operator of two tensors, each with its scale and zero point."""

    function: Callable[[Expr, Expr], Expr]

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs[:8]
        _require(a_scale, a_zero, b_scale, b_zero, y_scale, y_zero)
        found = cls.function(real(bb, a, a_scale, a_zero), real(bb, b, b_scale, b_zero))
        return in_8_bits(bb, bb.emit(found), y_scale, y_zero, dtype_of(a))


class QLinearAdd(_PairOfTwo):
    """A + B."""

    function = staticmethod(op.add)


class QLinearMul(_PairOfTwo):
    """A B, element by element."""

    function = staticmethod(op.multiply)


class QLinearConcat(tvm_onnx.OnnxOpConverter):
    """Tensors of different scales behind each other."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        _require(*given[:2], *(one for place in range(2, len(given), 3) for one in given[place + 1 : place + 3]))
        parts = [real(bb, *given[place : place + 3]) for place in range(2, len(given), 3)]
        return in_8_bits(bb, bb.emit(op.concat(parts, attr["axis"])), given[0], given[1])


class QGemm(tvm_onnx.OnnxOpConverter):
    """alpha A B, either transposed, + C of int32; floats where no scale of the result is given."""

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
        raise ValueError("scales, zero points and sums have to be known before the run")


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
"""Of the domain com.microsoft."""
