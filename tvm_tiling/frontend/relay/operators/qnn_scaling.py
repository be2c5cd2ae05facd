"""Quantisation, dequantisation, and requantisation between two scales.

A real number is scale * (integer - zero point). Scales and zero points were attributes until 0.6 and are operands since
0.7. Requantisation uses a 31-bit integer ratio and a shift, 64-bit products, and rounds halves upwards ("UPWARD", the
default of every release) or away from zero ("TONEAREST").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

from ..operands import Operands, Value, along, axis_in, constant, dtype_of, rank_of
from .elementwise import rounded

ROUNDINGS = ("UPWARD", "TONEAREST")


def parameter(call: Operands, place: int, name: str, dtype: str) -> np.ndarray:
    """A scale or zero point as an array of known numbers: operand `place`, or the attribute `name`. Raises
    ValueError."""
    if place < len(call.args):
        return call.known(place, name).astype(dtype).reshape(-1)
    given = call.attrs.get(name)
    if given is None:
        raise ValueError(f"{name} is missing; expected operand {place + 1}, or an attribute")
    return np.array(given, dtype).reshape(-1)


@dataclass(frozen=True)
class Scale:
    """The mapping of integers to real numbers: scales and zero points, one for all or one per position along `axis`."""

    scale: np.ndarray
    zero: np.ndarray
    axis: int = -1


def scale_of(call: Operands, place: int, names: tuple[str, str] = ("", ""), axis: int = -1) -> Scale:
    """The scale at operand `place` and the zero point after it, or the attributes `names` (scale, zero point)."""
    scale = parameter(call, place, names[0], "float32")
    return Scale(scale, parameter(call, place + 1, names[1], "int32"), axis)


def limits(dtype: str) -> tuple[int, int]:
    """The smallest and largest integer of a type. Raises ValueError if it is not an integer type."""
    kind = np.dtype(dtype)
    if kind.kind not in "iu":
        raise ValueError(f"{dtype} is not an integer type; expected int8, uint8, int16, int32 and their like")
    return int(np.iinfo(kind).min), int(np.iinfo(kind).max)


def fixed_point(ratio: float) -> tuple[int, int]:
    """The 31-bit integer and the left shift that represent `ratio`. Raises ValueError."""
    if not math.isfinite(ratio) or ratio < 0:
        raise ValueError(f"the ratio of scales is {ratio}; expected finite numbers from 0")
    if ratio == 0:
        return 0, 0
    part, shift = math.frexp(ratio)
    multiplier = math.floor(part * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, shift = multiplier // 2, shift + 1
    if not -30 <= shift <= 31:
        raise ValueError(f"the ratio of scales is {ratio}; expected from 2**-31 to 2**31")
    return multiplier, shift


def saturated(call: Operands, x: relax.Expr, dtype: str) -> relax.Expr:
    """`x` clamped to the limits of `dtype` and cast to it."""
    low, high = limits(dtype)
    if dtype == dtype_of(x):
        return x
    own = dtype_of(x)
    within = call.emit(op.minimum(call.emit(op.maximum(x, constant(low, own))), constant(high, own)))
    return call.emit(op.astype(within, dtype))


def centred(call: Operands, x: relax.Expr, zero: np.ndarray, axis: int) -> relax.Expr:
    """`x` in 32 bits minus its zero point."""
    wide = x if dtype_of(x) == "int32" else call.emit(op.astype(x, "int32"))
    if not zero.any():
        return wide
    rank = rank_of(x)
    spread = along(constant(zero, "int32"), axis_in(axis, rank) if zero.size > 1 else 0, rank)
    return call.emit(op.subtract(wide, spread))


def requantized(
    call: Operands, x: relax.Expr, source: Scale, target: Scale, dtype: str, rounding: str = "UPWARD"
) -> relax.Expr:
    """Requantise integers to another scale, in the type `dtype`, bit-exactly as TVM does."""
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding = {rounding!r}; expected {', '.join(ROUNDINGS)}")
    rank = rank_of(x)
    axis = axis_in(source.axis, rank) if rank else 0
    out = float(target.scale[0])
    if target.scale.size != 1 or target.zero.size != 1 or out == 0:
        raise ValueError("the result has a scale of 0, or several scales; expected one nonzero number")
    if source.scale.size > 1:
        x = call.bound(x, axis, source.scale.size)
    wide = centred(call, x, source.zero, axis)
    ratios = [fixed_point(float(scale) / out) for scale in source.scale]
    columns = zip(*((factor, max(shift, 0), 31 - min(shift, 0)) for factor, shift in ratios), strict=True)
    tables = [list(column) for column in columns]
    if len(ratios) == 1:
        scaled = call.te(_scaled, wide, [table[0] for table in tables], rounding)
    else:
        scaled = call.te(_scaled_along, wide, *(constant(table, "int64") for table in tables), axis, rounding)
    zero = int(target.zero[0])
    moved = call.emit(op.add(scaled, constant(zero, "int32"))) if zero else scaled
    return saturated(call, moved, dtype)


def _scaled(x: te.Tensor, ratio: list[int], rounding: str) -> te.Tensor:
    """x * multiplier * 2 ** (left - right), where `ratio` is multiplier, left and right."""
    numbers = [tirx.const(number, "int64") for number in ratio]
    return te.compute(x.shape, lambda *at: _shifted(x[at], numbers, rounding), name="requantize")


def _scaled_along(
    x: te.Tensor, multipliers: te.Tensor, lefts: te.Tensor, rights: te.Tensor, axis: int, rounding: str
) -> te.Tensor:
    """Like `_scaled`, with a multiplier and shifts per position along `axis`."""
    tables = (multipliers, lefts, rights)
    return te.compute(
        x.shape, lambda *at: _shifted(x[at], [table[at[axis]] for table in tables], rounding), name="requantize"
    )


def _shifted(value: Any, numbers: list[Any], rounding: str) -> Any:
    multiplier, left, right = numbers
    one = tirx.const(1, "int64")
    wide = (value.astype("int64") << left) * multiplier
    half = one << (right - one)
    if rounding == "TONEAREST":
        half = tirx.Select(wide >= 0, half, half - one)
    return ((wide + half) >> right).astype("int32")


def _requantize_by_floats(call: Operands, source: Scale, target: Scale, dtype: str, rounding: str, kind: str) -> Value:
    """Requantise in floats, as releases since 0.9 do if compute_dtype requests it."""
    x = call.tensor(0)
    rank = rank_of(x)
    axis = axis_in(source.axis, rank) if rank else 0
    wide = call.emit(op.astype(centred(call, x, source.zero, axis), kind))
    ratio = (source.scale.astype(kind) / target.scale.astype(kind)).astype(kind)
    scaled = call.emit(op.multiply(wide, call.emit(along(constant(ratio, kind), axis, rank))))
    scaled = call.emit(op.add(scaled, constant(target.zero[0], kind)))
    if rounding == "UPWARD":
        whole = call.emit(op.floor(op.add(scaled, constant(0.5, kind))))
    else:
        whole = call.te(rounded, scaled)
    return saturated(call, call.emit(op.astype(whole, "int32")), dtype)


def rounding_of(call: Operands) -> str:
    """The stated rounding; "None" selects TVM's default, which is UPWARD."""
    stated = str(call["rounding"])
    return "UPWARD" if stated == "None" else stated


def _requantize(call: Operands) -> Value:
    source = scale_of(call, 1, ("input_scale", "input_zero_point"), int(call["axis"]))
    target = scale_of(call, 3, ("output_scale", "output_zero_point"))
    dtype, kind = str(call["out_dtype"] or "int8"), str(call["compute_dtype"])
    if kind in ("float32", "float64"):
        return _requantize_by_floats(call, source, target, dtype, rounding_of(call), kind)
    if kind not in ("None", "int64"):
        raise ValueError(f"compute_dtype = {kind!r}; expected int64, float32, float64")
    return requantized(call, call.tensor(0), source, target, dtype, rounding_of(call))


def quantized(call: Operands, x: relax.Expr, target: Scale, dtype: str) -> relax.Expr:
    """Quantise real numbers: divide, round halves away from zero, add the zero point, and clamp to the type."""
    rank = rank_of(x)
    axis = axis_in(target.axis, rank) if rank else 0
    scale = call.emit(along(constant(target.scale, "float32"), axis, rank))
    zero = call.emit(along(constant(target.zero, "float32"), axis, rank))
    whole = call.te(rounded, call.emit(op.divide(x, scale)))
    moved = call.emit(op.add(whole, zero))
    low, high = limits(dtype)
    within = call.emit(op.minimum(call.emit(op.maximum(moved, constant(low, "float32"))), constant(high, "float32")))
    return call.emit(op.astype(within, dtype))


def dequantized(call: Operands, x: relax.Expr, source: Scale) -> relax.Expr:
    """Dequantise integers to float32."""
    rank = rank_of(x)
    axis = axis_in(source.axis, rank) if rank else 0
    real = call.emit(op.astype(centred(call, x, source.zero, axis), "float32"))
    return call.emit(op.multiply(real, call.emit(along(constant(source.scale, "float32"), axis, rank))))


def _quantize(call: Operands) -> Value:
    target = scale_of(call, 1, ("output_scale", "output_zero_point"), int(call["axis"]))
    return quantized(call, call.tensor(0), target, str(call["out_dtype"]))


def _dequantize(call: Operands) -> Value:
    real = dequantized(call, call.tensor(0), scale_of(call, 1, ("input_scale", "input_zero_point"), int(call["axis"])))
    dtype = str(call["out_dtype"])
    return real if dtype == "float32" else op.astype(op.clip(real, -65504.0, 65504.0), dtype)


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "qnn.dequantize": _dequantize,
    "qnn.quantize": _quantize,
    "qnn.requantize": _requantize,
}
