"""Places in sorted tensors, and counts of elements between bounds."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from tvm import relax, tirx
from tvm.relax import op
from tvm.script.ir_builder import tirx as tir

from ..translation import Translation, Unserved, Value, converter, dtype_of, shape_of
from ..types import DTYPES, computed_in, is_float
from .elementwise import kernel, number, promoted, real
from .loops import looped
from .views import expanded, part, reshaped


@converter("searchsorted.Tensor", "searchsorted.Scalar")
def _searchsorted(
    t: Translation,
    sorted_sequence: relax.Expr,
    self: Value,
    out_int32: bool,
    right: bool,
    side: str | None,
    sorter: Value,
) -> relax.Expr:
    if side is not None:
        right = side == "right"
    bounds = sorted_sequence
    if sorter is not None:
        bounds = t.emit(op.gather_elements(bounds, sorter, len(shape_of(bounds)) - 1))
    return _placed(t, bounds, self, right)


@converter("bucketize.Tensor", "bucketize.Scalar")
def _bucketize(t: Translation, self: Value, boundaries: relax.Expr, out_int32: bool, right: bool) -> relax.Expr:
    return _placed(t, boundaries, self, right)


def _placed(t: Translation, bounds: relax.Expr, values: Value, right: bool) -> relax.Expr:
    """How many of the sorted bounds, along their last axis, come before each value; with `right`, those that equal
    it too. By bisection, so that among bounds with NaN it gives what PyTorch does."""
    if "uint64" in (dtype_of(bounds), "" if number(values) else dtype_of(values)):
        raise Unserved("uint64; expected other types")
    dtype = computed_in(promoted(values, bounds))
    dtype = "uint8" if dtype == "bool" else dtype
    several = len(shape_of(bounds)) > 1
    length = shape_of(bounds)[-1]
    rows = prod(shape_of(bounds)[:-1])
    count = prod(t.shape)
    if not length:
        return t.emit(op.zeros(t.shape, t.dtype))
    known = reshaped(t, t.cast(bounds, dtype), (rows, length))
    asked = reshaped(t, t.cast(values, dtype), (count,))
    each = t.shape[-1] if several else count

    def body(edge: Any, value: Any, low: Any, high: Any, middle: Any) -> None:
        with tir.parallel(0, count) as i:
            low[i] = tirx.const(0, "int64")
            high[i] = tirx.const(length, "int64")
            with tir.serial(0, length.bit_length()), tir.If(low[i] < high[i]), tir.Then():
                middle[i] = tirx.truncdiv(low[i] + high[i], tirx.const(2, "int64"))
                at = edge[tirx.floordiv(i, each), middle[i]]
                behind = at > value[i] if right else at >= value[i]
                high[i] = tirx.Select(behind, middle[i], high[i])
                low[i] = tirx.Select(behind, low[i], middle[i] + tirx.const(1, "int64"))

    low = looped(t, "searchsorted", [known, asked], [((count,), "int64")] * 3, body)[0]
    return reshaped(t, t.cast(low, t.dtype), t.shape)


@converter("histogram.bin_ct")
def _histogram(
    t: Translation, self: relax.Expr, bins: int, range: Any, weight: Value, density: bool
) -> tuple[relax.Expr, relax.Expr]:
    """Counts, or sums of weights, between equally spaced edges, and the edges."""
    count = prod(shape_of(self))
    dtype = t.dtype
    if range is not None:
        low, high = (t.cast(float(each), dtype) for each in range)
    elif count:
        flat = reshaped(t, self, (count,))
        low, high = (t.emit(function(flat)) for function in (op.min, op.max))
    else:
        low, high = t.cast(0.0, dtype), t.cast(1.0, dtype)
    shares = t.constant(torch.arange(bins + 1).to(DTYPES[dtype]))

    def edge(k: tirx.Expr, first: tirx.Expr, last: tirx.Expr) -> tirx.Expr:
        # As PyTorch's linspace: from the nearer end; around a single number half to each side.
        same = tirx.EQ(first, last)
        start = tirx.Select(same, first - real(0.5, first), first)
        end = tirx.Select(same, last + real(0.5, last), last)
        step = (end - start) / real(bins, first)
        return tirx.Select(k < real((bins + 1) // 2, k), start + step * k, end - step * (real(bins, k) - k))

    edges = kernel(t, "edges", edge, shares, low, high)
    return _histogram_of(t, self, edges, weight, density), edges


@converter("histogram.bins_tensor")
def _histogram_between(
    t: Translation, self: relax.Expr, bins: relax.Expr, weight: Value, density: bool
) -> tuple[relax.Expr, relax.Expr]:
    return _histogram_of(t, self, bins, weight, density), bins


def _histogram_of(t: Translation, x: relax.Expr, edges: relax.Expr, weight: Value, density: bool) -> relax.Expr:
    """Sums of the weights of elements between edges, the last of which belongs to the last part."""
    count, bins, dtype = prod(shape_of(x)), shape_of(edges)[0] - 1, t.dtype
    if not count:
        return t.emit(op.full(relax.ShapeExpr((bins,)), t.cast(float("nan") if density else 0, dtype), dtype))
    data = reshaped(t, x, (count,))
    weights = t.cast(1, dtype) if weight is None else reshaped(t, t.cast(weight, dtype), (count,))
    weights = expanded(t, weights, (count,))

    def body(value: Any, edge: Any, share: Any, held: Any, low: Any, high: Any) -> None:
        with tir.serial(0, bins) as k:
            held[k] = real(0, held[k])
        with tir.serial(0, count) as i:
            inside = tirx.all(value[i] >= edge[0], value[i] <= edge[bins])
            with tir.If(inside), tir.Then():
                low[0], high[0] = tirx.const(0, "int64"), tirx.const(bins, "int64")
                # The part whose lower edge is the last one that is not above the value.
                with tir.While(low[0] + tirx.const(1, "int64") < high[0]):
                    middle = tirx.truncdiv(low[0] + high[0], tirx.const(2, "int64"))
                    with tir.If(edge[middle] <= value[i]):
                        with tir.Then():
                            low[0] = middle
                        with tir.Else():
                            high[0] = middle
                held[low[0]] = held[low[0]] + share[i]

    shapes = [((bins,), dtype), ((1,), "int64"), ((1,), "int64")]
    found = looped(t, "histogram", [data, edges, weights], shapes, body)[0]
    if not density:
        return found
    widths = t.emit(op.subtract(part(t, edges, 0, 1, bins + 1), part(t, edges, 0, 0, bins)))
    total = t.emit(op.sum(found))
    return t.emit(op.divide(found, t.emit(op.multiply(widths, total))))


@converter("histc.default")
def _histc(t: Translation, self: relax.Expr, bins: int, min: float, max: float) -> relax.Expr:
    """Counts of elements in equal parts of [min, max], or of the elements' own range where both are the same."""
    dtype = computed_in(t.dtype)
    if not is_float(dtype):
        raise Unserved(f"type {t.dtype}; expected floats")
    count = prod(shape_of(self))
    if not count:
        return t.emit(op.zeros(t.shape, t.dtype))
    x = reshaped(t, t.cast(self, dtype), (count,))
    if min == max:
        low, high = (t.emit(function(x)) for function in (op.min, op.max))
    else:
        low, high = t.cast(float(min), dtype), t.cast(float(max), dtype)

    def body(data: Any, first: Any, last: Any, held: Any, edge: Any) -> None:
        with tir.serial(0, bins) as k:
            held[k] = real(0, edge[0])
        same = tirx.EQ(first[()], last[()])
        edge[0] = tirx.Select(same, first[()] - real(1, first[()]), first[()])
        edge[1] = tirx.Select(same, last[()] + real(1, last[()]), last[()])
        with tir.serial(0, count) as i:
            value = data[i]
            with tir.If(tirx.all(value >= edge[0], value <= edge[1])), tir.Then():
                share = (value - edge[0]) * real(bins, value) / (edge[1] - edge[0])
                place = tirx.Cast("int64", tirx.max(tirx.min(share, real(bins - 1, value)), real(0, value)))
                held[place] = held[place] + real(1, value)

    found, _ = looped(t, "histc", [x, low, high], [((bins,), dtype), ((2,), dtype)], body)
    return t.cast(found, t.dtype)
