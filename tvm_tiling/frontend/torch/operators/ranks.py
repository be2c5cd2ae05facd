"""Medians, k-th smallest elements and modes, read from a sorted axis."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import relax, tirx
from tvm.relax import op
from tvm.script.ir_builder import tirx as tir

from ..translation import Translation, Unsupported, converter, dtype_of, shape_of
from ..types import computed_in, is_float
from .loops import lines, looped
from .sorting import order
from .views import reshaped

Pair = tuple[relax.Expr, relax.Expr]


def _sorted(t: Translation, x: relax.Expr, dim: int) -> Pair:
    """Rows along an axis, sorted with NaN last, and the indices of their elements."""
    rows = lines(t, x, dim % len(shape_of(x)))
    places = order(t, rows, 1, False)
    return t.emit(op.gather_elements(rows, places, 1)), places


def _chosen(t: Translation, rows: Pair, column: relax.Expr) -> Pair:
    """Elements and indices in one column of each row, as the node's results."""
    found = [reshaped(t, t.emit(op.gather_elements(part, column, 1)), t.shape) for part in rows]
    return found[0], found[1]


def _column(t: Translation, rows: Pair, column: int) -> relax.Expr:
    return t.emit(op.full(relax.ShapeExpr((shape_of(rows[0])[0], 1)), t.cast(column, "int64"), "int64"))


def _nans(t: Translation, values: relax.Expr) -> relax.Expr:
    """The number of NaN elements in each row; (rows, 1)."""
    found = t.cast(t.emit(op.isnan(t.cast(values, computed_in(dtype_of(values))))), "int64")
    return t.emit(op.sum(found, 1, keepdims=True))


@converter("kthvalue.default")
def _kth_value(t: Translation, self: relax.Expr, k: int, dim: int, keepdim: bool) -> Pair:
    if not shape_of(self):
        return self, t.cast(0, "int64")
    rows = _sorted(t, self, dim)
    return _chosen(t, rows, _column(t, rows, k - 1))


def _median(t: Translation, x: relax.Expr, dim: int, *, ignore_nan: bool) -> Pair:
    """The lower median; NaN if any element is NaN, unless `ignore_nan`."""
    rows = _sorted(t, x, dim)
    count = shape_of(rows[0])[1]
    if not count:
        raise Unsupported("a tensor without elements is not supported; expected one with elements")
    column = _column(t, rows, (count - 1) // 2)
    if is_float(t.dtype):
        nans = _nans(t, rows[0])
        first = t.emit(op.subtract(t.cast(count, "int64"), nans))
        if ignore_nan:
            middle = t.emit(op.floor_divide(t.emit(op.subtract(first, t.cast(1, "int64"))), t.cast(2, "int64")))
            column = t.emit(op.maximum(middle, t.cast(0, "int64")))
        else:
            column = t.emit(op.where(t.emit(op.greater(nans, t.cast(0, "int64"))), first, column))
    return _chosen(t, rows, column)


def _register_median(name: str, *, ignore_nan: bool) -> None:
    @converter(f"{name}.default")
    def of_all(t: Translation, self: relax.Expr) -> relax.Expr:
        return _median(t, reshaped(t, self, (prod(shape_of(self)),)), 0, ignore_nan=ignore_nan)[0]

    @converter(f"{name}.dim")
    def along(t: Translation, self: relax.Expr, dim: int, keepdim: bool) -> Pair:
        if not shape_of(self):
            return self, t.cast(0, "int64")
        return _median(t, self, dim, ignore_nan=ignore_nan)


_register_median("median", ignore_nan=False)
_register_median("nanmedian", ignore_nan=True)


@converter("mode.default")
def _mode(t: Translation, self: relax.Expr, dim: int, keepdim: bool) -> Pair:
    """The smallest of the most frequent elements, and the last of its indices."""
    if not shape_of(self):
        return self, t.cast(0, "int64")
    rows = _sorted(t, self, dim)
    count, length = shape_of(rows[0])
    values = t.cast(rows[0], "uint8" if t.dtype == "bool" else computed_in(t.dtype))

    def body(x: Any, best: Any, longest: Any, run: Any) -> None:
        with tir.parallel(0, count) as i:
            best[i, 0], longest[i], run[i] = (tirx.const(number, "int64") for number in (0, 1, 1))
            with tir.serial(1, length) as k:
                same = tirx.EQ(x[i, k], x[i, k - 1])
                run[i] = tirx.Select(same, run[i] + tirx.const(1, "int64"), tirx.const(1, "int64"))
                more = run[i] > longest[i]
                best[i, 0] = tirx.Select(more, tirx.Cast("int64", k), best[i, 0])
                longest[i] = tirx.max(longest[i], run[i])

    shapes = [((count, 1), "int64"), ((count,), "int64"), ((count,), "int64")]
    return _chosen(t, rows, looped(t, "mode", [values], shapes, body)[0])
