"""Binary search in sorted tensors, and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from tvm import relax, tirx
from tvm.relax import op
from tvm.script.ir_builder import tirx as tir

from ..translation import Translation, Unsupported, Value, converter, dtype_of, shape_of
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
    """The number of sorted bounds, along their last axis, before each value; with `right`, including equal ones. By
    bisection, so that bounds with NaN give the same results as in PyTorch."""
    if "uint64" in (dtype_of(bounds), "" if number(values) else dtype_of(values)):
        raise Unsupported("type uint64 is not supported; expected other types")
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
    edges = _edges(t, self, bins, range)
    return _histogram_of(t, self, [edges], weight, density), edges


@converter("histogram.bins_tensor")
def _histogram_between(
    t: Translation, self: relax.Expr, bins: relax.Expr, weight: Value, density: bool
) -> tuple[relax.Expr, relax.Expr]:
    return _histogram_of(t, self, [bins], weight, density), bins


@converter("_histogramdd_bin_edges.default")
def _edges_of_axes(
    t: Translation, self: relax.Expr, bins: Sequence[int], range: Any, weight: Value, density: bool
) -> list[relax.Expr]:
    """Equally spaced edges for each coordinate of points."""
    rows, axes = prod(shape_of(self)[:-1]), len(bins)
    points = reshaped(t, self, (rows, axes))
    return [
        _edges(t, part(t, points, 1, axis, axis + 1), count, range and range[2 * axis : 2 * axis + 2])
        for axis, count in enumerate(bins)
    ]


@converter("_histogramdd_from_bin_cts.default")
def _histogram_of_points(
    t: Translation, self: relax.Expr, bins: Sequence[int], range: Any, weight: Value, density: bool
) -> relax.Expr:
    edges = _edges_of_axes(t, self, bins, range, weight, density)
    return _histogram_of(t, self, edges, weight, density)


@converter("_histogramdd_from_bin_tensors.default")
def _histogram_of_points_between(
    t: Translation, self: relax.Expr, bins: Sequence[relax.Expr], weight: Value, density: bool
) -> relax.Expr:
    return _histogram_of(t, self, bins, weight, density)


def _edges(t: Translation, x: relax.Expr, bins: int, range: Any) -> relax.Expr:
    """Edges that divide a range, by default that of the elements, into `bins` equal parts."""
    count, dtype = prod(shape_of(x)), dtype_of(x)
    if range is not None:
        low, high = (t.cast(float(each), dtype) for each in range)
    elif count:
        flat = reshaped(t, x, (count,))
        low, high = (t.emit(function(flat)) for function in (op.min, op.max))
    else:
        low, high = t.cast(0.0, dtype), t.cast(1.0, dtype)
    shares = t.constant(torch.arange(bins + 1).to(DTYPES[dtype]))

    def edge(k: tirx.Expr, first: tirx.Expr, last: tirx.Expr) -> tirx.Expr:
        # As in PyTorch's linspace: from the nearer end; a range of a single number is extended by one half on each
        # side.
        same = tirx.EQ(first, last)
        start = tirx.Select(same, first - real(0.5, first), first)
        end = tirx.Select(same, last + real(0.5, last), last)
        step = (end - start) / real(bins, first)
        return tirx.Select(k < real((bins + 1) // 2, k), start + step * k, end - step * (real(bins, k) - k))

    return kernel(t, "edges", edge, shares, low, high)


def _histogram_of(
    t: Translation, x: relax.Expr, edges: Sequence[relax.Expr], weight: Value, density: bool
) -> relax.Expr:
    """Sums of the weights of points, whose coordinates are stored consecutively, between edges per coordinate; the last
    edges belong to the last bins."""
    bins, dtype = [shape_of(each)[0] - 1 for each in edges], dtype_of(x)
    count = prod(shape_of(x)) // len(edges)
    if not count:
        return t.emit(op.full(relax.ShapeExpr(bins), t.cast(float("nan") if density else 0, dtype), dtype))
    data = reshaped(t, x, (count, len(edges)))
    weights = t.cast(1, dtype) if weight is None else reshaped(t, t.cast(weight, dtype), (count,))
    weights = expanded(t, weights, (count,))

    def body(value: Any, share: Any, *rest: Any) -> None:
        edge, (held, place, low, high) = rest[: len(bins)], rest[len(bins) :]
        with tir.serial(0, prod(bins)) as k:
            held[k] = real(0, held[k])
        with tir.serial(0, count) as i:
            bounds = [
                (value[i, axis] >= edge[axis][0], value[i, axis] <= edge[axis][parts])
                for axis, parts in enumerate(bins)
            ]
            with tir.If(tirx.all(*(bound for both in bounds for bound in both))), tir.Then():
                place[0] = tirx.const(0, "int64")
                for axis, parts in enumerate(bins):
                    low[0], high[0] = tirx.const(0, "int64"), tirx.const(parts, "int64")
                    # Find the bin with the last lower edge that does not exceed the value.
                    with tir.While(low[0] + tirx.const(1, "int64") < high[0]):
                        middle = tirx.truncdiv(low[0] + high[0], tirx.const(2, "int64"))
                        with tir.If(edge[axis][middle] <= value[i, axis]):
                            with tir.Then():
                                low[0] = middle
                            with tir.Else():
                                high[0] = middle
                    place[0] = place[0] * tirx.const(parts, "int64") + low[0]
                held[place[0]] = held[place[0]] + share[i]

    shapes = [((prod(bins),), dtype), *[((1,), "int64")] * 3]
    found = reshaped(t, looped(t, "histogram", [data, weights, *edges], shapes, body)[0], bins)
    if not density:
        return found
    volume = t.emit(op.sum(found))
    for axis, (each, parts) in enumerate(zip(edges, bins, strict=True)):
        widths = t.emit(op.subtract(part(t, each, 0, 1, parts + 1), part(t, each, 0, 0, parts)))
        shape = [parts if place == axis else 1 for place in range(len(bins))]
        volume = t.emit(op.multiply(volume, reshaped(t, widths, shape)))
    return t.emit(op.divide(found, volume))


@converter("histc.default")
def _histc(t: Translation, self: relax.Expr, bins: int, min: float, max: float) -> relax.Expr:
    """Counts of elements in equal parts of [min, max], or of the range of the elements if both are equal."""
    dtype = computed_in(t.dtype)
    if not is_float(dtype):
        raise Unsupported(f"type {t.dtype} is not supported; expected floats")
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
