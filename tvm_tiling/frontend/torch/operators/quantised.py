"""Quantisation and dequantisation in PyTorch's quantised programs (pt2e), in the library quantized_decomposed: pairs
around float operators, from which integer kernels are derived later.

Cases without a Relax equivalent, such as ranges narrower than their type or scales computed at run time, are expanded
in floats with PyTorch's steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from ..translation import Translation, Unsupported, Value, converter, shape_of
from ..types import NAMES

_LIBRARY = "quantized_decomposed::"
_WHOLE = {"int8": (-128, 127), "uint8": (0, 255)}  # ranges supported by Relax


def _names(name: str) -> tuple[str, ...]:
    """The overloads with parameters as numbers, and as tensors."""
    return tuple(f"{_LIBRARY}{name}.{overload}" for overload in ("default", "tensor", "tensor2"))


@converter(*_names("quantize_per_tensor"))
def _to_integers(
    t: Translation, input: Value, scale: Value, zero_point: Value, quant_min: Value, quant_max: Value, dtype: Any
) -> Value:
    return _quantised(t, input, scale, zero_point, None, (quant_min, quant_max), dtype)


@converter(*_names("dequantize_per_tensor"))
def _to_floats(
    t: Translation,
    input: Value,
    scale: Value,
    zero_point: Value,
    quant_min: Value,
    quant_max: Value,
    dtype: Any,
    out_dtype: Any = None,
) -> Value:
    return _real(t, input, scale, zero_point, None, out_dtype)


@converter(f"{_LIBRARY}quantize_per_channel.default")
def _channels_to_integers(
    t: Translation,
    input: Value,
    scales: Value,
    zero_points: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: Any,
) -> Value:
    return _quantised(t, input, scales, zero_points, axis, (quant_min, quant_max), dtype)


@converter(f"{_LIBRARY}dequantize_per_channel.default")
def _channels_to_floats(
    t: Translation,
    input: Value,
    scales: Value,
    zero_points: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    out_dtype: Any = None,
) -> Value:
    return _real(t, input, scales, zero_points, axis, out_dtype)


@converter(f"{_LIBRARY}choose_qparams.tensor")
def _scale_of(t: Translation, input: Value, quant_min: int, quant_max: int, eps: float, dtype: Any) -> Value:
    """The scale and zero point that map a tensor's range, extended to include 0, to quant_min to quant_max."""
    low = t.emit(relax.op.minimum(t.emit(relax.op.min(input)), relax.const(0.0, "float32")))
    high = t.emit(relax.op.maximum(t.emit(relax.op.max(input)), relax.const(0.0, "float32")))
    steps = relax.const(float(quant_max - quant_min), "float32")
    scale = t.emit(relax.op.divide(t.emit(relax.op.subtract(high, low)), steps))
    scale = t.emit(relax.op.maximum(scale, relax.const(eps, "float32")))
    away = t.emit(relax.op.round(t.emit(relax.op.divide(low, scale))))
    zero = t.emit(relax.op.subtract(relax.const(float(quant_min), "float32"), away))
    zero = t.emit(relax.op.clip(zero, quant_min, quant_max))
    one = [t.emit(relax.op.reshape(value, (1,))) for value in (scale, zero)]
    return t.cast(one[0], "float64"), t.cast(one[1], "int64")


def _quantised(
    t: Translation, value: Value, scale: Value, zero: Value, axis: int | None, bounds: tuple[Value, Value], dtype: Any
) -> Value:
    kind = NAMES.get(dtype, "")
    low, high = (_number(t, bound) for bound in bounds)
    known_scale, known_zero = _known(t, scale), _known(t, zero)
    _check(known_scale, value, axis)
    if kind in _WHOLE and (low, high) == _WHOLE[kind] and known_scale is not None and known_zero is not None:
        held = _parameters(known_scale, known_zero, kind)
        return t.emit(relax.op.quantize(t.cast(value, "float32"), *held, axis=axis or 0, out_dtype=kind))
    if known_scale is not None:
        inverse: Value = relax.const((1.0 / known_scale.astype(np.float64)).astype(np.float32))
    else:
        inverse = t.cast(t.emit(relax.op.divide(relax.const(1.0, "float64"), t.cast(scale, "float64"))), "float32")
    offset = relax.const(known_zero.astype(np.float32)) if known_zero is not None else t.cast(zero, "float32")
    wide = t.emit(relax.op.multiply(t.cast(value, "float32"), _along(t, inverse, value, axis)))
    moved = t.emit(relax.op.add(t.emit(relax.op.round(wide)), _along(t, offset, value, axis)))
    return t.cast(t.emit(relax.op.clip(moved, low, high)), kind)


def _real(t: Translation, value: Value, scale: Value, zero: Value, axis: int | None, out_dtype: Any) -> Value:
    kind = "float32" if out_dtype is None else NAMES.get(out_dtype, "")
    known_scale = _known(t, scale)
    known_zero = np.zeros((), np.int64) if zero is None else _known(t, zero)
    _check(known_scale, value, axis)
    stored = str(value.ty.dtype)
    if stored in _WHOLE and known_scale is not None and known_zero is not None:
        held = _parameters(known_scale, known_zero, stored)
        real = t.emit(relax.op.dequantize(value, *held, axis=axis or 0, out_dtype="float32"))
    else:
        factor = relax.const(known_scale.astype(np.float32)) if known_scale is not None else t.cast(scale, "float32")
        offset = relax.const(known_zero.astype(np.float32)) if known_zero is not None else t.cast(zero, "float32")
        centred = t.emit(relax.op.subtract(t.cast(value, "float32"), _along(t, offset, value, axis)))
        real = t.emit(relax.op.multiply(centred, _along(t, factor, value, axis)))
    return t.cast(real, kind)


def _number(t: Translation, value: Value) -> int:
    found = _known(t, value)
    if found is None:
        raise Unsupported("bounds computed at run time are not supported; expected numbers")
    return int(found.reshape(()))


def _known(t: Translation, value: Value) -> np.ndarray | None:
    """The value of a number or constant tensor; a single element as a scalar."""
    if isinstance(value, int | float):
        return np.array(value)
    content = t.content(value)
    if content is None:
        return None
    found = content.detach().numpy()
    return found.reshape(()) if found.size == 1 else found


def _check(scale: np.ndarray | None, value: Value, axis: int | None) -> None:
    if scale is None:
        return
    if not (np.isfinite(scale) & (scale > 0)).all():
        wrong = scale[~(np.isfinite(scale) & (scale > 0))].reshape(-1)[0]
        raise Unsupported(f"a scale is {float(wrong):g}; expected positive numbers")
    shape = shape_of(value)
    if axis is None and scale.size != 1:
        raise Unsupported(f"{scale.size} scales are given for a whole tensor; expected one")
    if axis is not None and not (-len(shape) <= axis < len(shape) and scale.size in (1, shape[axis])):
        raise Unsupported(f"{scale.size} scales are given along axis {axis} of {shape}; expected one per position")


def _parameters(scale: np.ndarray, zero: np.ndarray, kind: str) -> tuple[relax.Expr, relax.Expr]:
    """Scale and zero point in Relax's format: as many zero points as scales."""
    low, high = _WHOLE[kind]
    if (zero < low).any() or (zero > high).any():
        raise Unsupported(
            f"a zero point of {int(zero.reshape(-1)[np.argmax((zero < low) | (zero > high))])} is out of range "
            f"for {kind}"
        )
    spread = np.broadcast_to(zero, scale.shape) if scale.ndim else zero.reshape(-1)[:1].reshape(())
    return relax.const(scale.astype(np.float32)), relax.const(np.ascontiguousarray(spread).astype(kind))


def _along(t: Translation, parameters: relax.Expr, value: Value, axis: int | None) -> relax.Expr:
    """Parameters reshaped to broadcast along an axis of a tensor; a scalar unchanged."""
    shape = shape_of(parameters)
    if not shape or axis is None:
        return parameters if not shape else t.emit(relax.op.reshape(parameters, ()))
    rank = len(shape_of(value))
    return t.emit(relax.op.reshape(parameters, [-1 if place == axis % rank else 1 for place in range(rank)]))
