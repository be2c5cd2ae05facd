"""Element-wise operators, and identities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, te, tirx, topi
from tvm.relax import op

from ..operands import Operands, Value, constant, dtype_of, is_integer, rank_of

_SAME = (
    "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf exp floor isfinite isinf isnan log logical_not "
    "negative rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
)
# Operators that equal another one, or are a faster, less accurate version of it.
_RENAMED = {"fast_erf": "erf", "fast_exp": "exp", "fast_tanh": "tanh"}
_IDENTITIES = (
    "annotation.cast_hint annotation.checkpoint annotation.compiler_begin annotation.compiler_end "
    "annotation.stop_fusion copy device_copy identity on_device"
)
_KEPT_BY_INTEGERS = ("ceil", "floor", "trunc")


def _unary(function: Callable[[relax.Expr], relax.Expr], name: str) -> Callable[[Operands], Value]:
    def convert(call: Operands) -> Value:
        x = call.tensor(0)
        return x if name in _KEPT_BY_INTEGERS and is_integer(x) else function(x)

    return convert


def _identity(call: Operands) -> Value:
    return call.args[0] if call.args else call.tensor(0)


def rounded(x: te.Tensor) -> te.Tensor:
    """`x` rounded to the nearest integer with halves away from zero, as in Relay; Relax rounds halves to even."""

    def element(*at: Any) -> tirx.PrimExpr:
        value = x[at]
        whole = tirx.trunc(value)
        half = tvm.tirx.const(0.5, x.dtype)
        one = tvm.tirx.const(1, x.dtype)
        further = tirx.Select(value < 0, whole - one, whole + one)
        return tirx.Select(tirx.abs(value - whole) >= half, further, whole)

    return te.compute(x.shape, element, name="round")


def _round(call: Operands) -> Value:
    x = call.tensor(0)
    return x if is_integer(x) else call.te(rounded, x)


def _clip(call: Operands) -> Value:
    x = call.tensor(0)
    low, high = call["a_min"], call["a_max"]
    dtype = dtype_of(x)
    if is_integer(x):
        smallest, largest = tvm.tirx.min_value(dtype).value, tvm.tirx.max_value(dtype).value
        low, high = (min(max(int(limit), smallest), largest) for limit in (max(low, smallest), min(high, largest)))
    return op.minimum(call.emit(op.maximum(x, constant(low, dtype))), constant(high, dtype))


def _cast(call: Operands) -> Value:
    return _as_type(call.tensor(0), str(call["dtype"]))


def _as_type(x: relax.Expr, dtype: str) -> relax.Expr:
    return x if dtype_of(x) == dtype else op.astype(x, dtype)


def _reinterpret(call: Operands) -> Value:
    dtype = str(call["dtype"])
    if tvm.DataType(dtype).bits != tvm.DataType(dtype_of(call.tensor(0))).bits:
        raise ValueError(
            f"the bits of {dtype_of(call.tensor(0))} cannot be read as {dtype}; expected types of the same size"
        )
    return call.te(topi.reinterpret, call.tensor(0), dtype)


def _hardswish(call: Operands) -> Value:
    x = call.tensor(0)
    dtype = dtype_of(x)
    inner = call.emit(op.clip(op.add(x, constant(3, dtype)), 0, 6))
    return op.divide(op.multiply(x, inner), constant(6, dtype))


def _relu(call: Operands) -> Value:
    return op.nn.relu(call.tensor(0))


def _leaky_relu(call: Operands) -> Value:
    return op.nn.leakyrelu(call.tensor(0), float(call["alpha"]))


def _prelu(call: Operands) -> Value:
    x, alpha = call.tensor(0), call.tensor(1)
    rank = rank_of(x)
    axis = int(call["axis"]) % rank
    slope = op.reshape(alpha, [-1 if place == axis else 1 for place in range(rank)])
    return op.where(op.greater(x, constant(0, dtype_of(x))), x, call.emit(op.multiply(x, slope)))


def _dropout(call: Operands) -> Value:
    x = call.tensor(0)
    return x, op.ones(call.extents(x), dtype_of(x))


def _fixed_point_multiply(call: Operands) -> Value:
    return call.te(fixed_point, call.tensor(0), int(call["multiplier"]), int(call["shift"]))


def fixed_point(x: te.Tensor, multiplier: int, shift: int) -> te.Tensor:
    """int32 `x` * `multiplier` * 2 ** (`shift` - 31), in 64 bits, halves rounded upwards."""
    left, right = max(shift, 0), 31 - min(shift, 0)
    rounding = tirx.const(1 << (right - 1), "int64")

    def element(*at: Any) -> tirx.PrimExpr:
        wide = x[at].astype("int64") * tirx.const(1 << left, "int64")
        return ((wide * tirx.const(multiplier, "int64") + rounding) >> tirx.const(right, "int64")).astype("int32")

    return te.compute(x.shape, element, name="fixed_point")


def _log(base: str) -> Callable[[Operands], Value]:
    return lambda call: call.te(getattr(topi, base), call.tensor(0))


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    **{name: _unary(getattr(op, name), name) for name in _SAME.split()},
    **{name: _unary(getattr(op, same), same) for name, same in _RENAMED.items()},
    **dict.fromkeys(_IDENTITIES.split(), _identity),
    "cast": _cast,
    "cast_like": lambda call: _as_type(call.tensor(0), dtype_of(call.tensor(1))),
    "clip": _clip,
    "fixed_point_multiply": _fixed_point_multiply,
    "hardswish": _hardswish,
    "log10": _log("log10"),
    "log2": _log("log2"),
    "nn.dropout": _dropout,
    "nn.leaky_relu": _leaky_relu,
    "nn.prelu": _prelu,
    "nn.relu": _relu,
    "reinterpret": _reinterpret,
    "round": _round,
}
