"""Cumulative extremes, and cumulative log-sum-exp, along an axis."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as tir

from ..translation import Translation, Unsupported, converter, dtype_of, shape_of
from ..types import computed_in, is_float
from .functions import log1p
from .loops import from_lines, lines, looped


def _register_extreme(name: str, *, largest: bool) -> None:
    @converter(f"{name}.default")
    def convert(t: Translation, self: relax.Expr, dim: int) -> tuple[relax.Expr, relax.Expr]:
        """The extreme of all elements up to each one, and its index: the last of equal ones; NaN propagates."""
        if not t.shape:
            return self, t.cast(0, "int64")
        axis = dim % len(t.shape)
        wide = "uint8" if t.dtype == "bool" else computed_in(t.dtype)
        rows = lines(t, t.cast(self, wide), axis)
        count, length = shape_of(rows)

        def beyond(new: tirx.Expr, old: tirx.Expr) -> tirx.Expr:
            ahead = new >= old if largest else new <= old
            if not is_float(wide):
                return ahead
            return tirx.any(tirx.isnan(new), tirx.all(tirx.Not(tirx.isnan(old)), ahead))

        def body(x: Any, values: Any, places: Any) -> None:
            with tir.parallel(0, count) as i:
                values[i, 0] = x[i, 0]
                places[i, 0] = tirx.const(0, "int64")
                with tir.serial(1, length) as k:
                    taken = beyond(x[i, k], values[i, k - 1])
                    places[i, k] = tirx.Select(taken, tirx.Cast("int64", k), places[i, k - 1])
                    values[i, k] = tirx.Select(taken, x[i, k], values[i, k - 1])

        found = looped(t, name, [rows], [((count, length), wide), ((count, length), "int64")], body)
        values, places = (from_lines(t, value, axis, t.shape) for value in found)
        return t.cast(values, t.dtype), places


_register_extreme("cummax", largest=True)
_register_extreme("cummin", largest=False)


@converter("logcumsumexp.default")
def _logcumsumexp(t: Translation, self: relax.Expr, dim: int) -> relax.Expr:
    if not is_float(t.dtype):
        raise Unsupported(f"type {t.dtype} is not supported; expected floats")
    if not t.shape:
        return self
    axis = dim % len(t.shape)
    rows = lines(t, t.cast(self, computed_in(t.dtype)), axis)
    count, length = shape_of(rows)

    def joined(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        """log(e^a + e^b) without overflow."""
        low, high = tirx.Select(a < b, a, b), tirx.Select(a < b, b, a)
        found = high + log1p(tirx.exp(low - high))
        # The difference of two equal infinities is NaN.
        found = tirx.Select(tirx.all(tirx.EQ(a, b), tirx.isinf(a)), a, found)
        return tirx.Select(tirx.any(tirx.isnan(a), tirx.isnan(b)), a + b, found)

    def body(x: Any, sums: Any) -> None:
        with tir.parallel(0, count) as i:
            sums[i, 0] = x[i, 0]
            with tir.serial(1, length) as k:
                sums[i, k] = joined(sums[i, k - 1], x[i, k])

    (found,) = looped(t, "logcumsumexp", [rows], [((count, length), dtype_of(rows))], body)
    return t.cast(from_lines(t, found, axis, t.shape), t.dtype)
