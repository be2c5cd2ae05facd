"""Matrix multiplications and convolutions of integers with scales and zero points, in ONNX's formats."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from .integer_products import CONVERTERS as INTEGERS
from .integer_products import ConvInteger, centred
from .quantized_pairs import as_many, convolution, pairs_serve, product, require_scales, require_stored
from .tensors import as_inputs, as_type, dtype_of, held, rank_of, shape_of

_LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}


def _requantized(
    bb: relax.BlockBuilder, total: relax.Expr, factor: relax.Expr, scale: relax.Expr, zero: relax.Expr
) -> relax.Expr:
    """`total` * factor / scale + zero, rounded to even and clipped to the type of `zero`."""
    dtype = dtype_of(zero)
    low, high = _LIMITS[dtype]
    real = bb.emit(op.astype(total, "float32") * op.astype(factor, "float32") / op.astype(scale, "float32"))
    rounded = bb.emit(op.round(real) + op.astype(zero, "float32"))
    return op.astype(bb.emit(op.clip(rounded, low, high)), dtype)


def _wide(bb: relax.BlockBuilder, value: relax.Expr) -> relax.Expr:
    """A tensor in float32."""
    return as_type(bb, value, "float32")


def _of_elements(bb: relax.BlockBuilder, value: relax.Expr, attr: dict[str, Any], like: relax.Expr) -> relax.Expr:
    """The values per block repeated for each of its elements; the last block along the axis may be partial."""
    axis = attr.get("axis", 1) % len(shape_of(like))
    repeated = bb.emit(op.repeat(value, attr["block_size"], axis))
    return bb.emit(op.strided_slice(repeated, [axis], [0], [shape_of(like)[axis]]))


def _fitting(data: relax.Expr, scale: relax.Expr, others: list, attr: dict[str, Any]) -> tuple[relax.Expr, list]:
    """The scale and the zero points, if any, expanded to the same count. Raises ValueError if they do not match the
    data."""
    axis = attr.get("axis", 1)
    if axis == 1 and rank_of(data) <= 1:
        axis = 0
    by_blocks = attr.get("block_size", 0)
    zero = others[0] if others else None
    if by_blocks:  # scales may have any sign: nothing is requantised by them
        _require_blocks(data, scale, zero, axis, by_blocks)
    else:
        require_scales(data, scale, zero, axis)
    if zero is not None and not by_blocks:
        scale, zero = as_many(scale, zero)
    return scale, others if zero is None else [zero, *others[1:]]


def _require_blocks(data: relax.Expr, scale: relax.Expr, zero: relax.Expr | None, axis: int, size: int) -> None:
    """Raise ValueError unless scales and zero points match blocks of `size` elements along the axis."""
    shape = shape_of(data)
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis {axis} does not exist in data of shape {tuple(shape)}")
    wanted = [-(-extent // size) if place == axis % len(shape) else extent for place, extent in enumerate(shape)]
    for called, parts in (("scales", scale), ("zero points", zero)):
        if parts is not None and list(shape_of(parts)) != wanted:
            raise ValueError(
                f"{called} have shape {tuple(shape_of(parts))}; expected {tuple(wanted)} for blocks of {size} "
                f"along axis {axis} of data of shape {tuple(shape)}"
            )


class _ByBlocks(tvm_onnx.OnnxOpConverter):
    """Adds blockwise quantisation to a converter of TVM: a subclass implements `_blocks` and names that converter as
    its second base."""

    @classmethod
    def _impl_v21(cls, bb, inputs, attr, params):
        by_blocks = attr.get("block_size", 0)
        return cls._blocks(bb, inputs, attr) if by_blocks else super()._impl_v21(bb, inputs, attr, params)

    @classmethod
    def _impl_v23(cls, bb, inputs, attr, params):
        by_blocks = attr.get("block_size", 0)
        return cls._blocks(bb, inputs, attr) if by_blocks else super()._impl_v23(bb, inputs, attr, params)


class QuantizeLinear(_ByBlocks, tvm_onnx.QuantizeLinear):
    """Quantisation with scales and zero points per tensor, per position along an axis, or per block along it. 16-bit
    data is divided in float32: float16 cannot represent the limits of 16-bit integers."""

    @classmethod
    def get_converter(cls, opset: int) -> Any:
        converter = super().get_converter(opset)

        def convert(bb: relax.BlockBuilder, inputs: list, attr: dict[str, Any], params: list) -> relax.Expr:
            data, scale, *others = inputs
            scale, others = _fitting(data, scale, others, attr)
            if others and others[0] is not None:
                require_stored(others[0])
            real = _wide(bb, data) if "float" in dtype_of(data) else data
            return converter(bb, as_inputs(real, _wide(bb, scale), *others), attr, params)

        return convert

    @classmethod
    def _blocks(cls, bb: relax.BlockBuilder, inputs: list, attr: dict[str, Any]) -> relax.Expr:
        if attr.get("precision", 0):
            raise ValueError("precision is not supported; expected 0")
        data, scale, zero = inputs[0], inputs[1], inputs[2]
        require_scales(data, scale, zero, None)
        kind = attr.get("output_dtype", 0)
        dtype = dtype_of(zero) if zero is not None else tvm_onnx.get_type(kind) if kind else "uint8"
        real = bb.emit(op.round(bb.emit(_wide(bb, data) / _of_elements(bb, scale, attr, data))))
        if zero is not None:
            real = bb.emit(real + _of_elements(bb, bb.emit(op.astype(zero, "float32")), attr, data))
        limits = np.iinfo(dtype)
        return op.astype(bb.emit(op.clip(real, limits.min, limits.max)), dtype)


class DequantizeLinear(_ByBlocks, tvm_onnx.DequantizeLinear):
    """Dequantisation to the type of the scales; values that overflow float16 become infinite."""

    @classmethod
    def get_converter(cls, opset: int) -> Any:
        converter = super().get_converter(opset)

        def convert(bb: relax.BlockBuilder, inputs: list, attr: dict[str, Any], params: list) -> relax.Expr:
            data, scale, *others = inputs
            if "float" not in dtype_of(scale):
                raise ValueError(f"scales have type {dtype_of(scale)}; expected floats")
            scale, others = _fitting(data, scale, others, attr)
            zero = others[0] if others else None
            if zero is not None and dtype_of(zero) != dtype_of(data):
                raise ValueError(
                    f"the zero point has type {dtype_of(zero)}; expected {dtype_of(data)}, the type of the data"
                )
            kind = attr.get("output_dtype", 0)
            dtype = tvm_onnx.get_type(kind) if kind else dtype_of(scale)
            attr = {name: value for name, value in attr.items() if name != "output_dtype"}
            real = converter(bb, as_inputs(data, _wide(bb, scale), *others), attr, params)
            return real if dtype == "float32" else op.astype(bb.emit(real), dtype)

        return convert

    @classmethod
    def _blocks(cls, bb: relax.BlockBuilder, inputs: list, attr: dict[str, Any]) -> relax.Expr:
        data, scale, zero = inputs[0], inputs[1], inputs[2]
        whole = bb.emit(op.astype(data, "int32"))
        if zero is not None:
            whole = bb.emit(whole - _of_elements(bb, bb.emit(op.astype(zero, "int32")), attr, data))
        return bb.emit(op.astype(whole, "float32") * _of_elements(bb, scale, attr, data))


class QLinearMatMul(tvm_onnx.OnnxOpConverter):
    """Matrix multiplication of 8-bit integers, requantised to 8 bits."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs[:8]
        if pairs_serve(a_scale, a_zero, b_scale, b_zero, y_scale, y_zero) and held(a_scale).size == 1:
            return product(bb, inputs)
        rows = [-1, 1] if a_zero.ty.ndim else None
        left, right = centred(bb, a, a_zero, rows), centred(bb, b, b_zero, [1, -1])
        if a_scale.ty.ndim == 1 and int(a_scale.ty.shape[0]) > 1:
            a_scale = bb.emit(op.reshape(a_scale, [-1, 1]))
        total = bb.emit(op.matmul(left, right, out_dtype="int32"))
        return _requantized(bb, total, bb.emit(a_scale * b_scale), y_scale, y_zero)


class QLinearConv(tvm_onnx.OnnxOpConverter):
    """Convolution of 8-bit integers, requantised to 8 bits."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = inputs[:9]
        if pairs_serve(x_scale, x_zero, w_scale, w_zero, y_scale, y_zero, bias):
            return convolution(bb, inputs, attr, params)
        total = ConvInteger._impl_v10(bb, as_inputs(x, w, x_zero, w_zero), attr, params)
        total = bb.normalize(total)
        channels = [1, -1] + [1] * (len(w.ty.shape) - 2)
        if bias is not None:
            total = bb.emit(total + op.reshape(bias, channels))
        if w_scale.ty.ndim:
            w_scale = bb.emit(op.reshape(w_scale, channels))
        return _requantized(bb, total, bb.emit(x_scale * w_scale), y_scale, y_zero)


CONVERTERS: dict[str, Any] = {
    **INTEGERS,
    "DequantizeLinear": DequantizeLinear,
    "QLinearConv": QLinearConv,
    "QLinearMatMul": QLinearMatMul,
    "QuantizeLinear": QuantizeLinear,
}
