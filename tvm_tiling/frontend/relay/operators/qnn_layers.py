"""Layers of quantised networks in integer arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import op

from ..operands import OpenOperand, Operands, Value, axis_in, constant, dtype_of, numbers, rank_of, shape_of, value_of
from .convolution import convolved, transposed
from .elementwise import fixed_point as times_fixed_point
from .pooling import pooled
from .products import product, turned
from .qnn_scaling import (
    Scale,
    centred,
    dequantized,
    fixed_point,
    parameter,
    quantized,
    requantized,
    saturated,
    scale_of,
)


def _centred_pair(call: Operands, axis: int) -> tuple[relax.Expr, relax.Expr]:
    """Input and weight with their zero points subtracted; those of the weight may vary along `axis`."""
    data_zero, weight_zero = _zeros(call)
    return (
        centred(call, call.tensor(0), data_zero, -1),
        centred(call, call.tensor(1), weight_zero, axis),
    )


def _moved_by(call: Operands, zeros: tuple[np.ndarray, np.ndarray], axes: tuple[int, ...]) -> np.ndarray | None:
    """The correction per output channel for a matrix multiplication of unshifted integers; None if it is not known.

    Matrix engines multiply 8-bit integers, but centred ones need 9 bits. With a constant weight of zero point 0 and no
    zero padding, the input's zero point shifts each output channel by a constant: zero * the sum of its weights.
    """
    data_zero, weight_zero = zeros
    weight = value_of(call.tensor(1))
    if weight_zero.any() or data_zero.size != 1 or dtype_of(call.tensor(0)) != dtype_of(call.tensor(1)):
        return None
    if not data_zero.any():
        return np.zeros(1, "int32")
    if weight is None or any(numbers(call.attrs.get("padding", 0))):
        return None
    return (weight.astype("int64").sum(axis=axes) * int(data_zero[0])).astype("int32")


def _zeros(call: Operands) -> tuple[np.ndarray, np.ndarray]:
    return (
        parameter(call, 2, "input_zero_point", "int32"),
        parameter(call, 3, "kernel_zero_point", "int32"),
    )


def _conv2d(call: Operands) -> Value:
    layout, kernel = str(call["data_layout"]), str(call["kernel_layout"])
    out = call["out_dtype"] or "int32"
    channels = call.extents(call.tensor(0))[layout.index("C")]
    if not isinstance(channels, int):
        raise OpenOperand("a dynamic number of channels")
    inputs = shape_of(call.tensor(1))[kernel.index("I")]
    standard = kernel in ("OIHW", "HWIO") and not call["out_layout"] and inputs * int(call["groups"]) == channels
    moved = _moved_by(call, _zeros(call), tuple(kernel.index(axis) for axis in "IHW")) if standard else None
    if moved is None:
        data, weight = _centred_pair(call, kernel.index("O"))
        return convolved(call, data, weight, 2, out)
    plain = convolved(call, call.tensor(0), call.tensor(1), 2, out)
    return _corrected(plain, moved, layout.index("C"))


def _corrected(plain: relax.Expr, moved: np.ndarray, axis: int) -> relax.Expr:
    """`plain` minus `moved` along `axis`."""
    if not moved.any():
        return plain
    rank = rank_of(plain)
    shape = [-1 if place == axis else 1 for place in range(rank)]
    return op.subtract(plain, constant(moved.reshape(shape), dtype_of(plain)))


def _conv2d_transpose(call: Operands) -> Value:
    data, weight = _centred_pair(call, -1)
    return transposed(call, data, weight, 2, call["out_dtype"] or "int32")


def _dense(call: Operands) -> Value:
    out = call["out_dtype"] or "int32"
    moved = _moved_by(call, _zeros(call), (1,))
    if moved is None:
        data, weight = _centred_pair(call, 0)
        return product(data, call.emit(turned(weight)), out)
    plain = call.emit(product(call.tensor(0), call.emit(turned(call.tensor(1))), out))
    return _corrected(plain, moved, rank_of(plain) - 1)


def _batch_matmul(call: Operands) -> Value:
    a, b = _centred_pair(call, -1)
    a = call.emit(turned(a)) if call["transpose_a"] else a
    b = call.emit(turned(b)) if call["transpose_b"] else b
    return product(a, b, call["out_dtype"] or "int32")


def _pair(call: Operands) -> tuple[Scale, Scale, Scale]:
    """The scales of both operands and of the result."""
    return (
        scale_of(call, 2, ("lhs_scale", "lhs_zero_point"), int(call["lhs_axis"])),
        scale_of(call, 4, ("rhs_scale", "rhs_zero_point"), int(call["rhs_axis"])),
        scale_of(call, 6, ("output_scale", "output_zero_point")),
    )


def _as_result(call: Operands, x: relax.Expr, source: Scale, target: Scale) -> relax.Expr:
    """`x` in 32 bits and in the scale of the result."""
    if source.scale.size == source.zero.size == 1 and (source.scale[0], source.zero[0]) == (
        target.scale[0],
        target.zero[0],
    ):
        return call.emit(op.astype(x, "int32"))
    return requantized(call, x, source, target, "int32")


def _sum(function: Callable[..., relax.Expr], sign: int) -> Callable[[Operands], Value]:
    """Requantise both operands to the scale of the result, then add or subtract."""

    def convert(call: Operands) -> Value:
        left, right, target = _pair(call)
        a = _as_result(call, call.tensor(0), left, target)
        b = _as_result(call, call.tensor(1), right, target)
        total = call.emit(function(a, b))
        zero = constant(target.zero[0] * sign, "int32")
        return saturated(call, call.emit(op.subtract(total, zero)), dtype_of(call.tensor(0)))

    return convert


def _mul(call: Operands) -> Value:
    left, right, target = _pair(call)
    a = centred(call, call.tensor(0), left.zero, left.axis)
    b = centred(call, call.tensor(1), right.zero, right.axis)
    if (left.scale.size > 1 or right.scale.size > 1) and left.axis != right.axis:
        raise ValueError(f"lhs_axis {left.axis} and rhs_axis {right.axis} differ; expected the same axis")
    both = Scale((left.scale * right.scale).astype("float32"), np.zeros(1, "int32"), left.axis)
    return requantized(call, call.emit(op.multiply(a, b)), both, target, dtype_of(call.tensor(0)))


def _concatenate(call: Operands) -> Value:
    parts = call.tensors(0)
    if len(call.args) > 4:
        scales, zeros = call.tensors(1), call.tensors(2)
        known = [
            Operands(call.op, (scale, zero), {}, call.builder, call.release, None, call.made, call.shapes)
            for scale, zero in zip(scales, zeros, strict=True)
        ]
        sources = [scale_of(pair, 0) for pair in known]
        target = scale_of(call, 3)
    else:
        pairs = zip(call["input_scales"] or [], call["input_zero_points"] or [], strict=True)
        sources = [Scale(np.array([scale], "float32"), np.array([zero], "int32")) for scale, zero in pairs]
        target = scale_of(call, len(call.args), ("output_scale", "output_zero_point"))
    if len(sources) != len(parts):
        raise ValueError(f"{len(sources)} scales do not match {len(parts)} tensors")
    moved = [
        part
        if (source.scale[0], source.zero[0]) == (target.scale[0], target.zero[0])
        else requantized(call, part, source, target, dtype_of(part))
        for part, source in zip(parts, sources, strict=True)
    ]
    return op.concat(moved, axis_in(call["axis"], rank_of(parts[0])))


def _leaky_relu(call: Operands) -> Value:
    x = call.tensor(0)
    source, target = scale_of(call, 1), scale_of(call, 3)
    alpha, zero = float(call["alpha"]), int(target.zero[0])
    moved = _as_result(call, x, source, target)
    multiplier, shift = fixed_point(alpha)
    rest_multiplier, rest_shift = fixed_point(1 - alpha)
    total_right = 31 - min(rest_shift, 0)
    rest = (((zero << max(rest_shift, 0)) * rest_multiplier) + (1 << (total_right - 1))) >> total_right
    small = call.te(times_fixed_point, moved, multiplier, shift)
    below = call.emit(op.less(op.astype(x, "int32"), constant(source.zero[0], "int32")))
    result = call.emit(op.where(below, op.add(small, constant(rest, "int32")), moved))
    return saturated(call, result, dtype_of(x))


def _avg_pool2d(call: Operands) -> Value:
    x = call.tensor(0)
    moved = _as_result(call, x, scale_of(call, 1), scale_of(call, 3))
    return saturated(call, call.emit(pooled(call, moved, "avg", 2)), dtype_of(x))


def _softmax(call: Operands) -> Value:
    """Integer softmax by shifts (algorithm 1 of I-ViT), as in TVM since 0.11."""
    x = call.tensor(0)
    source, target = scale_of(call, 1), scale_of(call, 3)
    axis = axis_in(call["axis"], rank_of(x))
    scale = float(source.scale[0])
    if not 0 < scale <= 1:
        raise ValueError(f"the scale of the input is {scale}; expected above 0 and up to 1")
    unit = int(np.floor(1 / np.float32(scale) + np.float32(0.5)))

    def number(value: int) -> relax.Expr:
        return constant(value, "int32")

    def emit(expr: relax.Expr) -> relax.Expr:
        return call.emit(expr)

    centre = centred(call, x, source.zero, -1)
    away = emit(op.subtract(centre, emit(op.max(centre, [axis], keepdims=True))))
    halves, parts = emit(op.right_shift(away, number(1))), emit(op.right_shift(away, number(4)))
    power = emit(op.subtract(emit(op.add(away, halves)), parts))
    quotient = emit(op.divide(power, number(-unit)))
    quotient = emit(op.minimum(emit(op.maximum(quotient, number(0))), number(20)))
    rest = emit(op.subtract(power, emit(op.multiply(quotient, number(-unit)))))
    base = emit(op.add(emit(op.right_shift(rest, number(1))), number(unit)))
    largest = emit(op.max(quotient, [axis], keepdims=True))
    powers = emit(op.left_shift(base, emit(op.subtract(largest, quotient))))
    total = emit(op.sum(powers, [axis], keepdims=True))
    share = emit(op.multiply(emit(op.divide(number(1 << 30), total)), powers))
    result = emit(op.right_shift(share, number(23)))
    eighth = Scale(np.array([1 / 128], "float32"), np.zeros(1, "int32"))
    return requantized(call, result, eighth, target, "int8")


def _hardswish(x: relax.Expr) -> relax.Expr:
    six = constant(6, "float32")
    return op.multiply(x, op.divide(op.clip(op.add(x, constant(3, "float32")), 0, 6), six))


def _through_reals(function: Callable[[relax.Expr], relax.Expr]) -> Callable[[Operands], Value]:
    """Apply a function to the dequantised value and requantise to the result's scale."""

    def convert(call: Operands) -> Value:
        x = call.tensor(0)
        real = call.emit(function(dequantized(call, x, scale_of(call, 1))))
        return quantized(call, real, scale_of(call, 3), dtype_of(x))

    return convert


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "qnn.abs": _through_reals(op.abs),
    "qnn.add": _sum(op.add, 1),
    "qnn.avg_pool2d": _avg_pool2d,
    "qnn.batch_matmul": _batch_matmul,
    "qnn.concatenate": _concatenate,
    "qnn.conv2d": _conv2d,
    "qnn.conv2d_transpose": _conv2d_transpose,
    "qnn.dense": _dense,
    "qnn.erf": _through_reals(op.erf),
    "qnn.exp": _through_reals(op.exp),
    "qnn.hardswish": _through_reals(_hardswish),
    "qnn.leaky_relu": _leaky_relu,
    "qnn.log": _through_reals(op.log),
    "qnn.mul": _mul,
    "qnn.rsqrt": _through_reals(op.rsqrt),
    "qnn.sigmoid": _through_reals(op.sigmoid),
    "qnn.softmax": _softmax,
    "qnn.sqrt": _through_reals(op.sqrt),
    "qnn.subtract": _sum(op.subtract, -1),
    "qnn.tanh": _through_reals(op.tanh),
}
