"""Tensors created from a shape, and shapes as tensors. Values known at compile time become constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.relax import op

from ...open_parts import sequence
from ...open_shapes import Size, expr, plus
from ...size_values import SizeValue, size_value
from ..operands import Operands, Value, bounded, constant, dtype_of, numbers, rank_of, value_of


def _shape(call: Operands, place: int) -> list[Size]:
    """The shape in the attributes, or in an operand that is constant or derived from shapes."""
    if call["shape"] is not None:
        return [*numbers(call["shape"])]
    found = call.sizes(place, "the shape")
    for extent in found:
        call.shapes.require_at_least(extent, 0)
    return found


def _filled(shape: list[Size], fill: relax.Expr, dtype: str) -> relax.Expr:
    return op.full(shape, fill, dtype)


def _full(call: Operands) -> Value:
    fill = call.tensor(0)
    dtype = str(call["dtype"] or dtype_of(fill))
    scalar = fill if fill.ty.ndim == 0 else call.emit(op.reshape(fill, []))
    return _filled(_shape(call, 1), scalar, dtype)


def _of(value: int) -> Callable[[Operands], Value]:
    def convert(call: Operands) -> Value:
        dtype = str(call["dtype"] or "float32")
        return _filled(_shape(call, 0), constant(value, dtype), dtype)

    return convert


def _like(value: int) -> Callable[[Operands], Value]:
    def convert(call: Operands) -> Value:
        dtype = dtype_of(call.tensor(0))
        return _filled(call.extents(call.tensor(0)), constant(value, dtype), dtype)

    return convert


def _full_like(call: Operands) -> Value:
    x, fill = call.tensor(0), call.tensor(1)
    scalar = fill if fill.ty.ndim == 0 else call.emit(op.reshape(fill, []))
    return _filled(call.extents(x), scalar, dtype_of(x))


def _arange(call: Operands) -> Value:
    if any(isinstance(bound, SizeValue) and not bound.is_known for bound in call.args):
        return _counted(call, *(call.sizes(place, "a bound")[0] for place in range(3)))
    start, stop, step = (call.known(place, "a bound").item() for place in range(3))
    if step == 0 or not all(map(math.isfinite, (start, stop, step))):
        raise ValueError(
            f"a range from {start} to {stop} by {step} is invalid; expected finite bounds and a nonzero step"
        )
    count = bounded(max(0, math.ceil((stop - start) / step)), "numbers")
    return constant(start + np.arange(count) * step, str(call["dtype"]))


def _counted(call: Operands, start: Size, stop: Size, step: Size) -> Value:
    """A range whose bounds are dynamic dimensions."""
    if not isinstance(step, int) or step == 0:
        raise ValueError("the step has to be nonzero and known at compile time")
    over = plus(stop, -1 * start, step - 1) if step > 0 else plus(start, -1 * stop, -step - 1)
    count = tirx.floordiv(expr(call.shapes.simplified(over)), expr(abs(step)))
    length = call.shapes.larger(call.shapes.simplified(count), 0)
    return sequence(call.builder, start, step, length, str(call["dtype"]))


def _of_sizes(elements: Any, dtype: str) -> Value:
    """A size, or a list of sizes: a constant if it is known."""
    found = size_value(elements, dtype)
    return constant(found.values.astype(dtype), dtype) if found.is_known else found


def _shape_of(call: Operands) -> Value:
    return _of_sizes(call.extents(call.tensor(0)), str(call["dtype"] or "int32"))


def _size_of(call: Operands) -> Value:
    return _of_sizes(call.shapes.product(call.extents(call.tensor(0))), str(call["dtype"] or "int32"))


def _meshgrid(call: Operands) -> Value:
    vectors = call.tensors(0)
    sizes = [call.shapes.product(call.extents(vector)) for vector in vectors]
    order = list(range(len(vectors)))
    if call["indexing"] == "xy" and len(vectors) > 1:
        order[:2] = [1, 0]
    shape = [sizes[place] for place in order]
    spread = []
    for number, vector in enumerate(vectors):
        line = [sizes[number] if place == order.index(number) else 1 for place in range(len(order))]
        spread.append(call.emit(call.spread(call.emit(op.reshape(vector, line)), shape)))
    return spread


def _one_hot(call: Operands) -> Value:
    indices, on, off = call.tensor(0), call.tensor(1), call.tensor(2)
    dtype = str(call["dtype"] or dtype_of(on))
    rank = rank_of(indices) + 1
    axis = int(call["axis"]) % rank
    depth = int(call.known(3, "the depth").item()) if len(call.args) > 3 else int(call["depth"])
    bounded(depth, "depth")
    line = [depth if place == axis else 1 for place in range(rank)]
    kinds = constant(np.arange(depth).reshape(line), dtype_of(indices))
    apart = call.extents(indices)
    apart.insert(axis, 1)
    chosen = call.emit(op.equal(call.emit(op.reshape(indices, apart)), kinds))
    values = []
    for value in (on, off):
        known = value_of(value)
        if known is not None:
            values.append(constant(known.reshape(()), dtype))
        else:
            values.append(call.emit(op.astype(op.reshape(value, []), dtype)))
    return op.where(chosen, *values)


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "arange": _arange,
    "dyn.full": _full,
    "dyn.one_hot": _one_hot,
    "dyn.ones": _of(1),
    "dyn.zeros": _of(0),
    "full": _full,
    "full_like": _full_like,
    "meshgrid": _meshgrid,
    "ndarray_size": _size_of,
    "one_hot": _one_hot,
    "ones": _of(1),
    "ones_like": _like(1),
    "shape_of": _shape_of,
    "zeros": _of(0),
    "zeros_like": _like(0),
}
