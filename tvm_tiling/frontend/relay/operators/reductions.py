"""Reductions such as sums and extremes, arg-reductions, and cumulative sums."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax, topi
from tvm.relax import op

from ...open_shapes import plus
from ..operands import Operands, Value, axis_in, dtype_of, is_integer, numbers, rank_of


def reduced_axes(call: Operands, rank: int) -> list[int]:
    """The reduced axes: all if none are stated; with `exclude`, all but the stated ones."""
    stated = call["axis"]
    if stated is None or stated == []:
        return list(range(rank))
    axes = sorted({axis_in(axis, rank) for axis in numbers(stated)})
    return [axis for axis in range(rank) if axis not in axes] if call["exclude"] else axes


def _reduce(function: Callable[..., relax.Expr]) -> Callable[[Operands], Value]:
    def convert(call: Operands) -> Value:
        x = call.tensor(0)
        axes = reduced_axes(call, rank_of(x))
        return function(x, axes, keepdims=bool(call["keepdims"])) if axes else x

    return convert


def _mean(call: Operands) -> Value:
    x = call.tensor(0)
    extents = call.extents(x)
    axes = reduced_axes(call, len(extents))
    keep = bool(call["keepdims"])
    if not is_integer(x):
        return op.mean(x, axes, keepdims=keep)
    count = call.shapes.product(extents[axis] for axis in axes)
    return op.divide(call.emit(op.sum(x, axes, keepdims=keep)), call.number(count, dtype_of(x)))


def _logical(function: Callable[..., relax.Expr]) -> Callable[[Operands], Value]:
    """Whether all or any of the elements are true."""

    def convert(call: Operands) -> Value:
        x = call.tensor(0)
        axes = reduced_axes(call, rank_of(x))
        numbers_of = call.emit(op.astype(x, "int8"))
        return op.astype(call.emit(function(numbers_of, axes, keepdims=bool(call["keepdims"]))), "bool")

    return convert


def _position(function: Callable[..., relax.Expr]) -> Callable[[Operands], Value]:
    def convert(call: Operands) -> Value:
        x = call.tensor(0)
        axes = reduced_axes(call, rank_of(x))
        found = call.te(function, x, axes, bool(call["keepdims"]), bool(call["select_last_index"]))
        return found if dtype_of(found) == "int32" else op.astype(found, "int32")

    return convert


def _variance(call: Operands) -> Value:
    x, mean = call.tensor(0), call.tensor(1)
    extents = call.extents(x)
    axes = reduced_axes(call, len(extents))
    elements = call.shapes.product(extents[axis] for axis in axes)
    count = call.shapes.simplified(plus(elements, -1 if call["unbiased"] else 0))
    away = call.emit(op.subtract(x, mean))
    total = call.emit(op.sum(op.multiply(away, away), axes, keepdims=bool(call["keepdims"])))
    return op.divide(total, call.number(count, dtype_of(x)))


def _running(function: Callable[..., relax.Expr]) -> Callable[[Operands], Value]:
    def convert(call: Operands) -> Value:
        x, axis = call.tensor(0), call["axis"]
        if axis is None:
            x, axis = call.emit(op.reshape(x, [-1])), 0
        dtype = call["dtype"] or dtype_of(x)
        return function(x, axis=axis_in(axis, rank_of(x)), dtype=str(dtype), exclusive=bool(call["exclusive"] or False))

    return convert


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "all": _logical(op.min),
    "any": _logical(op.max),
    "argmax": _position(topi.argmax),
    "argmin": _position(topi.argmin),
    "cumprod": _running(op.cumprod),
    "cumsum": _running(op.cumsum),
    "max": _reduce(op.max),
    "mean": _mean,
    "min": _reduce(op.min),
    "prod": _reduce(op.prod),
    "sum": _reduce(op.sum),
    "variance": _variance,
}
