"""Running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.relax import op

from ..translation import Table, Translation
from ..types import computed_in

table = Table()


def _running(t: Translation, function: Callable[..., relax.Expr], x: relax.Expr, dim: int) -> relax.Expr:
    """In the type of the result: integers and bools are added up as int64 unless another type is asked for."""
    data = t.cast(x, computed_in(t.dtype))
    if t.shape and 0 not in t.shape:
        data = t.emit(function(data, dim % len(t.shape), computed_in(t.dtype)))
    return t.cast(data, t.dtype)


@table("cumsum.default")
def _cumsum(t: Translation, self: relax.Expr, dim: int, dtype: Any) -> relax.Expr:
    return _running(t, op.cumsum, self, dim)


@table("cumprod.default")
def _cumprod(t: Translation, self: relax.Expr, dim: int, dtype: Any) -> relax.Expr:
    return _running(t, op.cumprod, self, dim)
