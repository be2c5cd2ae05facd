"""Reductions over parts of an axis with sizes given by tensors: segments, and embedding bags."""

from __future__ import annotations

import math
from math import prod
from typing import Any

from tvm import relax, tirx
from tvm.relax import op
from tvm.script.ir_builder import tirx as tir

from ..translation import Missing, Translation, Unsupported, Value, converter, shape_of
from ..types import computed_in
from .elementwise import real
from .loops import looped
from .views import reshaped

_STARTS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


@converter("segment_reduce.default")
def _segment_reduce(
    t: Translation,
    data: relax.Expr,
    reduce: str,
    lengths: Value,
    indices: Value,
    offsets: Value,
    axis: int,
    unsafe: bool,
    initial: Value,
) -> relax.Expr:
    """Reduce each segment of an axis to one element; an empty one gives `initial`, or NaN for means."""
    given = lengths if offsets is None else offsets
    if given is None or reduce not in _STARTS:
        raise Unsupported(
            f"reduce={reduce!r} with indices is not supported; expected lengths or offsets, and one of "
            f"{sorted(_STARTS)}"
        )
    by_offsets = offsets is not None
    shape, wide = shape_of(data), computed_in(t.dtype)
    outer, length, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    count = t.shape[axis]
    columns = shape_of(given)[-1]
    x = reshaped(t, t.cast(data, wide), (outer, length, inner))
    sizes = reshaped(t, t.cast(given, "int64"), (outer, columns))
    start = _STARTS[reduce] if initial is None else float(initial)

    def body(value: Any, size: Any, result: Any, first: Any) -> None:
        zero, limit = tirx.const(0, "int64"), tirx.const(length, "int64")
        with tir.parallel(0, outer) as o:
            first[o, 0], first[o, 1] = zero, zero
            with tir.serial(0, count) as s:
                if by_offsets:
                    first[o, 0], first[o, 1] = size[o, s], size[o, s + 1]
                else:
                    first[o, 0] = first[o, 1]
                    first[o, 1] = first[o, 0] + size[o, s]
                # Sizes that exceed the axis are clamped.
                first[o, 0] = tirx.max(tirx.min(first[o, 0], limit), zero)
                first[o, 1] = tirx.max(tirx.min(first[o, 1], limit), zero)
                with tir.serial(0, inner) as c:
                    result[o, s, c] = real(start, result[o, s, c])
                    with tir.serial(0, length) as k:
                        inside = tirx.all(tirx.Cast("int64", k) >= first[o, 0], tirx.Cast("int64", k) < first[o, 1])
                        with tir.If(inside), tir.Then():
                            result[o, s, c] = _combined(reduce, result[o, s, c], value[o, k, c])
                    if reduce == "mean":
                        held = first[o, 1] - first[o, 0]
                        average = result[o, s, c] / tirx.Cast(wide, tirx.max(held, tirx.const(1, "int64")))
                        empty = real(math.nan, average) if initial is None else result[o, s, c]
                        result[o, s, c] = tirx.Select(held > zero, average, empty)

    found = looped(t, "segment_reduce", [x, sizes], [((outer, count, inner), wide), ((outer, 2), "int64")], body)[0]
    return t.cast(reshaped(t, found, t.shape), t.dtype)


def _combined(reduce: str, old: tirx.Expr, new: tirx.Expr) -> tirx.Expr:
    if reduce == "prod":
        return old * new
    if reduce in ("max", "min"):
        ahead = new > old if reduce == "max" else new < old
        return tirx.Select(tirx.isnan(old), old, tirx.Select(tirx.any(tirx.isnan(new), ahead), new, old))
    return old + new


# ---- bags -----------------------------------------------------------------------------------------------------------

_BAGS = ("sum", "mean", "max")  # PyTorch's modes in order


@converter("_embedding_bag.default", "_embedding_bag_forward_only.default")
def _embedding_bag(
    t: Translation,
    weight: relax.Expr,
    indices: relax.Expr,
    offsets: relax.Expr,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Value,
    include_last_offset: bool,
    padding_idx: int,
) -> list[Value]:
    """Sums, means or maxima of rows per bag; an empty bag gives zeros."""
    wide = computed_in(t.dtype)
    count, bags = shape_of(indices)[0], t.shape[0]
    counted = t.emit(op.ones((count,), "int64"))
    if padding_idx >= 0:
        other = t.emit(op.not_equal(indices, t.cast(padding_idx, str(indices.ty.dtype))))
        counted = t.cast(other, "int64")
    rows = t.cast(t.emit(op.take(weight, t.cast(indices, "int64"), axis=0)), wide)
    if per_sample_weights is not None:
        rows = t.emit(op.multiply(rows, reshaped(t, t.cast(per_sample_weights, wide), (count, 1))))
    starts = t.cast(offsets, "int64")
    reduce, columns, held = _BAGS[mode], shape_of(weight)[1], shape_of(offsets)[0]

    def body(row: Any, is_counted: Any, start: Any, result: Any, size: Any, first: Any) -> None:
        zero, one, limit = (tirx.const(number, "int64") for number in (0, 1, count))
        with tir.parallel(0, bags) as b:
            # Out-of-range offsets are clamped.
            end = start[tirx.min(b + 1, held - 1)]
            first[b, 0] = tirx.max(tirx.min(start[b], limit), zero)
            first[b, 1] = tirx.max(tirx.min(tirx.Select(b + 1 < held, end, limit), limit), first[b, 0])
            size[b] = zero
            with tir.serial(0, columns) as c:
                result[b, c] = real(_STARTS[reduce], result[b, c])
            with tir.serial(0, first[b, 1] - first[b, 0]) as k:
                place = first[b, 0] + k
                with tir.If(is_counted[place] > zero), tir.Then():
                    size[b] = size[b] + one
                    with tir.serial(0, columns) as c:
                        result[b, c] = _combined(reduce, result[b, c], row[place, c])
            with tir.serial(0, columns) as c:
                if reduce == "max":
                    result[b, c] = tirx.Select(size[b] > zero, result[b, c], real(0, result[b, c]))
                if reduce == "mean":
                    result[b, c] = result[b, c] / tirx.Cast(wide, tirx.max(size[b], one))

    shapes = [((bags, columns), wide), ((bags,), "int64"), ((bags, 2), "int64")]
    found = looped(t, "embedding_bag", [rows, counted, starts], shapes, body)[0]
    return [t.cast(found, t.dtype), *(Missing(what) for what in ("bags of rows", "sizes of bags", "largest places"))]
