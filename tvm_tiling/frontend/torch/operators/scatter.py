"""Writes at positions given by tensors.

All of them become scatter_elements if the index has the shape of the data except along the axis, otherwise scatter_nd,
with positions along every axis. Several writes to one element happen in order, so that sums are complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from tvm import relax
from tvm.relax import op

from ..translation import Translation, Unsupported, Value, converter, dtype_of, shape_of
from ..types import DTYPES, computed_in, is_float
from .elementwise import binary
from .indexing import from_start, places_of, wrapped
from .views import expanded, part, permuted, reshaped

# Reduction names of PyTorch and of Relax.
_REDUCTIONS = {
    **{"sum": "add", "add": "add", "prod": "mul", "multiply": "mul"},
    **{"amax": "max", "amin": "min"},
}
# Relax's equivalents for bools, which are written as bytes.
_OF_BOOLS = {"add": "max", "mul": "min"}


def _written_in(dtype: str) -> str:
    """The type in which several writes to one element are combined."""
    return "uint8" if dtype == "bool" else computed_in(dtype)


def _reduction(reduce: str, dtype: str) -> str:
    """Relax's name of a reduction for an element type."""
    found = _REDUCTIONS[reduce]
    return _OF_BOOLS.get(found, found) if dtype == "bool" else found


def _rounded(source: Value, dtype: str) -> Value:
    """A number rounded to type `dtype`; tensors unchanged."""
    return source if isinstance(source, relax.Expr) else torch.tensor(source, dtype=DTYPES[dtype]).item()


def _elements(
    t: Translation, data: relax.Expr, axis: int, index: relax.Expr, source: relax.Expr, reduction: str
) -> relax.Expr:
    """Write the elements of `source`, which has the shape of the index, into `data` at `index` along `axis`."""
    shape, places = shape_of(data), shape_of(index)
    if all(own == given for a, (own, given) in enumerate(zip(shape, places, strict=True)) if a != axis):
        return t.emit(op.scatter_elements(data, index, source, axis, reduction))
    lined = torch.meshgrid(*(torch.arange(extent) for extent in places), indexing="ij")
    columns = [
        t.emit(op.expand_dims(index if a == axis else t.constant(lined[a].contiguous()), len(places)))
        for a in range(len(places))
    ]
    return t.emit(op.scatter_nd(data, t.emit(op.concat(columns, len(places))), source, reduction))


def _scattered(
    t: Translation, data: relax.Expr, dim: int, index: relax.Expr, source: Value, reduction: str
) -> relax.Expr:
    """Like `_elements`, for PyTorch operands: scalars, a longer source, or a number as source."""
    if 0 in shape_of(index):
        return data
    shape = t.shape
    data, index = (reshaped(t, value, shape_of(value) or (1,)) for value in (data, index))
    axis = dim % len(shape_of(data))
    places = from_start(t, index, shape_of(data)[axis])
    if isinstance(source, relax.Expr):
        source = reshaped(t, t.cast(source, dtype_of(data)), shape_of(source) or (1,))
        for place, extent in enumerate(shape_of(places)):
            source = part(t, source, place, 0, extent)
    else:
        source = expanded(t, t.cast(source, dtype_of(data)), shape_of(places))
    return reshaped(t, _elements(t, data, axis, places, source, reduction), shape)


@converter("scatter.src", "scatter.value")
def _scatter(
    t: Translation, self: relax.Expr, dim: int, index: relax.Expr, src: Value = None, value: Value = None
) -> relax.Expr:
    return _scattered(t, self, dim, index, value if src is None else src, "update")


@converter("scatter_add.default")
def _scatter_add(t: Translation, self: relax.Expr, dim: int, index: relax.Expr, src: relax.Expr) -> relax.Expr:
    return _accumulated(t, self, dim, index, src, "sum")


@converter("scatter.reduce", "scatter.value_reduce")
def _scatter_reduced(
    t: Translation,
    self: relax.Expr,
    dim: int,
    index: relax.Expr,
    src: Value = None,
    value: Value = None,
    *,
    reduce: str,
) -> relax.Expr:
    return _accumulated(t, self, dim, index, value if src is None else src, reduce)


def _accumulated(
    t: Translation, data: relax.Expr, dim: int, index: relax.Expr, source: Value, reduce: str
) -> relax.Expr:
    data, source = t.cast(data, _written_in(t.dtype)), _rounded(source, t.dtype)
    return t.cast(_scattered(t, data, dim, index, source, _reduction(reduce, t.dtype)), t.dtype)


@converter("scatter_reduce.two")
def _scatter_reduce(
    t: Translation,
    self: relax.Expr,
    dim: int,
    index: relax.Expr,
    src: relax.Expr,
    reduce: str,
    include_self: bool,
) -> relax.Expr:
    kept, mean = self, reduce == "mean"
    wide = _written_in(t.dtype)
    data, source = t.cast(self, wide), t.cast(src, wide)
    start = _start(reduce, wide)
    if not include_self:
        data = _scattered(t, data, dim, index, start, "update")
    result = _scattered(t, data, dim, index, source, "add" if mean else _reduction(reduce, t.dtype))
    if mean:
        ones = expanded(t, t.cast(1, wide), t.shape)
        if not include_self:
            ones = _scattered(t, ones, dim, index, 0, "update")
        count = _scattered(t, ones, dim, index, 1, "add")
        result = t.emit((op.divide if is_float(wide) else op.floor_divide)(result, count))
    result = t.cast(result, t.dtype)
    if include_self:
        return result
    touched = _scattered(t, expanded(t, t.cast(False, "bool"), t.shape), dim, index, True, "update")
    return t.emit(op.where(touched, result, kept))


@converter("index_reduce.default")
def _index_reduce(
    t: Translation,
    self: relax.Expr,
    dim: int,
    index: relax.Expr,
    source: relax.Expr,
    reduce: str,
    include_self: bool,
) -> relax.Expr:
    shape = shape_of(source)
    if not shape:
        return _scatter_reduce(t, self, dim, reshaped(t, index, ()), source, reduce, include_self)
    along = [extent if axis == dim % len(shape) else 1 for axis, extent in enumerate(shape)]
    places = expanded(t, reshaped(t, index, along), shape)
    return _scatter_reduce(t, self, dim, places, source, reduce, include_self)


def _start(reduce: str, dtype: str) -> float:
    """The neutral element of a reduction."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if is_float(dtype):
        return float("-inf" if reduce == "amax" else "inf")
    limits = torch.iinfo(getattr(torch, dtype))
    return limits.min if reduce == "amax" else limits.max


# ---- index expressions ----------------------------------------------------------------------------------------------


@converter("index_put.default", "_unsafe_index_put.default")
def _index_put(
    t: Translation, self: relax.Expr, indices: Sequence[Value], values: relax.Expr, accumulate: bool
) -> relax.Expr:
    shape = t.shape
    values = t.cast(values, t.dtype)
    masked = _by_mask(t, self, indices, values, accumulate)
    if masked is not None:
        return masked
    places = places_of(t, self, indices)
    if not places.axes:
        values = expanded(t, values, shape)
        return _sum(t, self, values) if accumulate else values
    if 0 in places.shape:
        return self
    rank = len(shape)
    front = places.front(rank)
    others = [shape[axis] for axis in front[len(places.axes) :]]
    order = places.result_order(rank)
    written = [[*places.shape, *others][axis] for axis in order]
    # Values have the axis order of the result of a read; move the index axes first.
    values = permuted(t, expanded(t, values, written), [order.index(axis) for axis in range(len(order))])
    columns = [
        t.emit(op.expand_dims(expanded(t, tensor, places.shape), len(places.shape))) for tensor in places.tensors
    ]
    index = columns[0] if len(columns) == 1 else t.emit(op.concat(columns, len(places.shape)))
    data = permuted(t, self, front)
    if accumulate:
        data, values = (t.cast(operand, _written_in(t.dtype)) for operand in (data, values))
    result = t.emit(op.scatter_nd(data, index, values, _reduction("sum", t.dtype) if accumulate else "update"))
    return permuted(t, t.cast(result, t.dtype), [front.index(axis) for axis in range(rank)])


def _sum(t: Translation, left: relax.Expr, right: relax.Expr) -> relax.Expr:
    """left + right; for bools, logical or."""
    return binary(t, op.logical_or if t.dtype == "bool" else op.add, left, right)


def _by_mask(
    t: Translation, data: relax.Expr, indices: Sequence[Value], values: relax.Expr, accumulate: bool
) -> relax.Expr | None:
    """Assignment of equal values to all elements of one mask, as a selection. None for anything else."""
    given = [(place, index) for place, index in enumerate(indices) if index is not None]
    if len(given) != 1 or dtype_of(given[0][1]) != "bool" or t.content(given[0][1]) is not None:
        return None
    before, mask = given[0]
    own, rank = shape_of(mask), len(t.shape)
    behind = rank - before - len(own)
    given_shape = shape_of(values)
    if prod(given_shape) == 1:
        values = reshaped(t, values, ())
    elif len(given_shape) > behind and (len(given_shape) != behind + 1 or given_shape[0] != 1):
        raise Unsupported("individual values for masked elements are not supported; expected one value for all of them")
    elif len(given_shape) > behind:
        values = reshaped(t, values, given_shape[1:])
    chosen = reshaped(t, mask, (1,) * before + own + (1,) * behind)
    if accumulate:
        values = _sum(t, data, values)
    return expanded(t, t.emit(op.where(chosen, values, data)), t.shape)


@converter("put.default")
def _put(t: Translation, self: relax.Expr, index: relax.Expr, source: relax.Expr, accumulate: bool) -> relax.Expr:
    count, writes = prod(t.shape), prod(shape_of(index))
    if not writes:
        return self
    places = wrapped(t, reshaped(t, index, [writes]), count, "index")
    flat, new = reshaped(t, self, [count]), reshaped(t, t.cast(source, t.dtype), [writes])
    if accumulate:
        flat, new = (t.cast(operand, _written_in(t.dtype)) for operand in (flat, new))
    reduction = _reduction("sum", t.dtype) if accumulate else "update"
    written = t.emit(op.scatter_elements(flat, places, new, 0, reduction))
    return reshaped(t, t.cast(written, t.dtype), t.shape)


@converter("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(t: Translation, self: relax.Expr, mask: relax.Expr, value: Value) -> relax.Expr:
    chosen = t.emit(op.where(mask, t.cast(value, t.dtype), self))
    return expanded(t, chosen, t.shape)
