"""Reductions: sums, means, extremes and logical reductions; cumulative sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax
from tvm.relax import op

from ..translation import Translation, Unsupported, Value, converter, dtype_of, shape_of
from ..types import computed_in
from .elementwise import in_libm, kernel, real


def reduced_axes(x: relax.Expr, dim: int | Sequence[int] | None) -> list[int]:
    """The axes named by `dim`: all for None and for an empty list; none for a scalar tensor."""
    rank = len(shape_of(x))
    if not rank:
        return []
    if dim is None or (not isinstance(dim, int) and not dim):
        return list(range(rank))
    return sorted({axis % rank for axis in ([dim] if isinstance(dim, int) else dim)})


def over(
    t: Translation,
    function: Callable[..., relax.Expr],
    x: relax.Expr,
    axes: Sequence[int],
    keepdim: bool,
    nothing: Value,
) -> relax.Expr:
    """Reduce a tensor over axes by `function`, in the tensor's own type; `nothing` is the result for no elements.

    Raises Unsupported if no result is defined for an empty reduction.
    """
    shape = shape_of(x)
    if 0 in shape:
        kept = [1 if axis in axes else extent for axis, extent in enumerate(shape)]
        kept = kept if keepdim else [extent for axis, extent in enumerate(shape) if axis not in axes]
        if nothing is None and 0 not in kept:
            raise Unsupported(f"a tensor of shape {shape} is not supported; expected one with elements")
        return t.emit(op.full(relax.ShapeExpr(kept), t.cast(nothing or 0, dtype_of(x)), dtype_of(x)))
    if not axes:
        return x
    return t.emit(function(x, axis=list(axes), keepdims=keepdim))


def widened(t: Translation, x: relax.Expr, dtype: str) -> relax.Expr:
    """A tensor in the type in which PyTorch accumulates a result of type `dtype`."""
    return t.cast(x, computed_in(dtype))


@converter("sum.default", "sum.dim_IntList")
def _sum(t: Translation, self: relax.Expr, dtype: Any, dim: Any = None, keepdim: bool = False) -> relax.Expr:
    if t.dtype == "bool":
        return _truth(t, op.max, self, dim, keepdim, False)
    x = widened(t, self, t.dtype)
    return t.cast(over(t, op.sum, x, reduced_axes(x, dim), keepdim, 0), t.dtype)


@converter("mean.default", "mean.dim")
def _mean(t: Translation, self: relax.Expr, dtype: Any, dim: Any = None, keepdim: bool = False) -> relax.Expr:
    x = widened(t, self, t.dtype)
    return t.cast(over(t, op.mean, x, reduced_axes(x, dim), keepdim, math.nan), t.dtype)


@converter("prod.default", "prod.dim_int")
def _prod(t: Translation, self: relax.Expr, dtype: Any, dim: Any = None, keepdim: bool = False) -> relax.Expr:
    if t.dtype == "bool":
        return _truth(t, op.min, self, dim, keepdim, True)
    x = widened(t, self, t.dtype)
    return t.cast(over(t, op.prod, x, reduced_axes(x, dim), keepdim, 1), t.dtype)


def _register_running(name: str, function: Callable[..., relax.Expr]) -> None:
    @converter(f"{name}.default")
    def convert(t: Translation, self: relax.Expr, dim: int, dtype: Any) -> relax.Expr:
        # In the type of the result: integers and bools accumulate in int64 unless another type is requested.
        data = widened(t, self, t.dtype)
        if t.shape and 0 not in t.shape:
            data = t.emit(function(data, dim % len(t.shape), computed_in(t.dtype)))
        return t.cast(data, t.dtype)


_register_running("cumsum", op.cumsum)
_register_running("cumprod", op.cumprod)


# ---- variance -------------------------------------------------------------------------------------------------------


@converter("var_mean.correction")
def _var_mean(
    t: Translation, self: relax.Expr, dim: Any, correction: float | None, keepdim: bool
) -> tuple[relax.Expr, relax.Expr]:
    """The variance, as the sum of squared deviations over the number of elements minus `correction`; and the mean."""
    axes = reduced_axes(self, dim)
    x = widened(t, self, t.dtype)
    dtype, count = dtype_of(x), math.prod(shape_of(x)[axis] for axis in axes)
    mean = over(t, op.mean, x, axes, True, math.nan)
    away = t.emit(op.subtract(x, mean))
    total = over(t, op.sum, t.emit(op.multiply(away, away)), axes, keepdim, 0)
    divisor = max(0.0, count - (1 if correction is None else correction))
    share = t.cast(1 / divisor if divisor else math.inf, dtype)
    variance = t.emit(op.multiply(total, share))
    mean = t.emit(op.reshape(mean, relax.ShapeExpr(t.shape)))
    return t.cast(variance, t.dtype), t.cast(mean, t.dtype)


@converter("var.correction", "var.dim")
def _var(
    t: Translation, self: relax.Expr, dim: Any, keepdim: bool, correction: float | None = None, unbiased: bool = True
) -> relax.Expr:
    return _var_mean(t, self, dim, correction if unbiased else 0, keepdim)[0]


@converter("linalg_vector_norm.default")
def _vector_norm(
    t: Translation,
    self: relax.Expr,
    ord: float,
    dim: Any,
    keepdim: bool,
    dtype: Any,
) -> relax.Expr:
    """(sum of |x|^ord)^(1/ord); for infinite ord the extreme of |x|, for 0 the number of nonzero elements."""
    x = widened(t, self, t.dtype)
    kind, axes = dtype_of(x), reduced_axes(x, dim)
    size = t.emit(op.abs(x))
    if ord == math.inf:
        result = over(t, op.max, size, axes, keepdim, None)
    elif ord == -math.inf:
        result = over(t, op.min, size, axes, keepdim, None)
    elif ord == 0:
        result = over(t, op.sum, t.cast(t.cast(x, "bool"), kind), axes, keepdim, 0)
    elif ord == 1:
        result = over(t, op.sum, size, axes, keepdim, 0)
    elif ord == 2:
        result = t.emit(op.sqrt(over(t, op.sum, t.emit(op.multiply(x, x)), axes, keepdim, 0)))
    else:
        power = in_libm("pow")
        powers = kernel(t, "power", lambda a: power(a, real(ord, a)), size)
        total = over(t, op.sum, powers, axes, keepdim, 0)
        result = kernel(t, "power", lambda a: power(a, real(1 / ord, a)), total)
    return t.cast(result, t.dtype)


@converter("dist.default")
def _dist(t: Translation, self: relax.Expr, other: relax.Expr, p: float) -> relax.Expr:
    """The norm of the difference, which is rounded to the type of the result first."""
    away = t.emit(op.subtract(widened(t, self, t.dtype), widened(t, other, t.dtype)))
    return _vector_norm(t, t.cast(away, t.dtype), p, None, False, None)


# ---- extremes -------------------------------------------------------------------------------------------------------


def _ordered(t: Translation, x: relax.Expr) -> relax.Expr:
    """A tensor in a type that TVM can compare: bools as bytes, 16-bit floats as float32."""
    return t.cast(x, "uint8" if dtype_of(x) == "bool" else computed_in(dtype_of(x)))


def _extreme(t: Translation, function: Callable[..., relax.Expr], x: relax.Expr, dim: Any, keepdim: bool) -> relax.Expr:
    """The extreme; NaN if any element is NaN."""
    found = over(t, function, _ordered(t, x), reduced_axes(x, dim), keepdim, None)
    return t.cast(found, dtype_of(x))


def _place(
    t: Translation, function: Callable[..., relax.Expr], x: relax.Expr, dim: int | None, keepdim: bool
) -> relax.Expr:
    """The first index of the extreme, or of a NaN if there is one; over all axes, the index into the flattened
    tensor."""
    shape = shape_of(x)
    if 0 in shape:
        raise Unsupported(f"a tensor of shape {shape} is not supported; expected one with elements")
    data = _ordered(t, x)
    if dim is None or not shape:
        data = t.emit(op.reshape(data, (math.prod(shape),)))
        found = t.emit(function(data, axis=0, keepdims=False))
        kept = (1,) * len(shape) if keepdim else ()
        return t.emit(op.reshape(found, kept))
    return t.emit(function(data, axis=dim % len(shape), keepdims=keepdim))


def _register_extreme(name: str, function: Callable[..., relax.Expr], place: Callable[..., relax.Expr]) -> None:
    @converter(f"a{name}.default", f"{name}.default")
    def extreme(t: Translation, self: relax.Expr, dim: Any = None, keepdim: bool = False) -> relax.Expr:
        return _extreme(t, function, self, dim, keepdim)

    @converter(f"{name}.dim")
    def extreme_and_place(t: Translation, self: relax.Expr, dim: int, keepdim: bool) -> tuple[relax.Expr, relax.Expr]:
        return _extreme(t, function, self, dim, keepdim), _place(t, place, self, dim, keepdim)

    @converter(f"arg{name}.default")
    def only_place(t: Translation, self: relax.Expr, dim: int | None, keepdim: bool) -> relax.Expr:
        return _place(t, place, self, dim, keepdim)


_register_extreme("max", op.max, op.argmax)
_register_extreme("min", op.min, op.argmin)


# ---- truth values ---------------------------------------------------------------------------------------------------


def _truth(
    t: Translation, function: Callable[..., relax.Expr], x: relax.Expr, dim: Any, keepdim: bool, nothing: bool
) -> relax.Expr:
    """Reduce truth values by `function`: max for any, min for all."""
    data = t.cast(t.cast(x, "bool"), "uint8")
    return t.cast(over(t, function, data, reduced_axes(x, dim), keepdim, nothing), t.dtype)


@converter("any.default", "any.dim", "any.dims")
def _any(t: Translation, self: relax.Expr, dim: Any = None, keepdim: bool = False) -> relax.Expr:
    return _truth(t, op.max, self, dim, keepdim, False)


@converter("all.default", "all.dim", "all.dims")
def _all(t: Translation, self: relax.Expr, dim: Any = None, keepdim: bool = False) -> relax.Expr:
    return _truth(t, op.min, self, dim, keepdim, True)
