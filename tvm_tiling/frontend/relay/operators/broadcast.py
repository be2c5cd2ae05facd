"""Binary operators with broadcasting, and selection between two tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx, topi
from tvm.relax import op

from ....lowering.divisors import checked_divisors
from ...open_shapes import Size
from ..operands import Operands, Value, dtype_of, is_integer
from ..tree import WHERE_SPREADS, before, since

_SAME = (
    "add bitwise_and bitwise_or bitwise_xor divide equal floor_divide floor_mod greater greater_equal left_shift less "
    "less_equal logical_and logical_or logical_xor maximum minimum mod multiply not_equal power right_shift subtract"
)


def _binary(name: str) -> Callable[[Operands], Value]:
    def convert(call: Operands) -> Value:
        a, b = call.tensor(0), call.tensor(1)
        if dtype_of(a) != dtype_of(b):
            raise ValueError(f"operands have types {dtype_of(a)} and {dtype_of(b)}; expected equal types")
        return getattr(op, name)(a, b)

    return convert


def _truncated(function: Callable[..., Any], over_floats: Callable[..., Any]) -> Callable[[Operands], Value]:
    """Division with the quotient rounded towards zero, on integers natively."""

    def convert(call: Operands) -> Value:
        a, b = call.tensor(0), call.tensor(1)
        element = function if is_integer(a) else over_floats

        def divided(x: te.Tensor, y: te.Tensor) -> te.Tensor:
            shape = [int(extent) for extent in topi.add(x, y).shape]
            wide_x, wide_y = topi.broadcast_to(x, shape), topi.broadcast_to(y, shape)
            return te.compute(shape, lambda *at: element(wide_x[at], wide_y[at]), name="divided")

        return call.te(divided, a, checked_divisors(call.builder, b, call.op))

    return convert


def _where(call: Operands) -> Value:
    condition, a, b = call.tensor(0), call.tensor(1), call.tensor(2)
    if dtype_of(condition) != "bool":
        condition = call.emit(op.astype(condition, "bool"))
    if condition.ty.ndim == 1 and a.ty.ndim > 1 and _chooses_rows(call, call.extents(condition)[0], call.extents(a)):
        condition = call.emit(op.reshape(condition, call.extents(condition) + [1] * (a.ty.ndim - 1)))
    return op.where(condition, a, b)


def _chooses_rows(call: Operands, length: Size, shape: list[Size]) -> bool:
    """Return whether a condition vector applies along the first axis; for an unknown release its length decides."""
    if before(call.release, WHERE_SPREADS) or since(call.release, WHERE_SPREADS):
        return before(call.release, WHERE_SPREADS)
    return call.shapes.same(length, shape[0]) and not any(call.shapes.same(length, size) for size in (1, shape[-1]))


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    **{name: _binary(name) for name in _SAME.split()},
    "trunc_divide": _truncated(tirx.truncdiv, lambda a, b: tirx.trunc(a / b)),
    "trunc_mod": _truncated(tirx.truncmod, lambda a, b: a - b * tirx.trunc(a / b)),
    "where": _where,
}
