"""Pooling over windows of one to three axes, regular and adaptive, and unpooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any, TypeAlias

import numpy as np
import torch
from tvm import relax, te, tirx
from tvm.relax import op

from ..refusals import full_name
from ..translation import Missing, Translation, Unsupported, converter, dtype_of, shape_of
from ..types import DTYPES, computed_in, is_float
from .views import each, expanded, reshaped

# Along an axis: the input position of an output's tap, possibly out of range, and whether it counts.
Tap: TypeAlias = Callable[[Any, Any], tuple[Any, Any]]

_MAX = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVERAGE = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}
_ADAPTIVE = {1: op.nn.adaptive_avg_pool1d, 2: op.nn.adaptive_avg_pool2d, 3: op.nn.adaptive_avg_pool3d}


class _Windows:
    """Regular windows: kernel sizes, strides, and padding before and after each spatial axis."""

    def __init__(
        self,
        t: Translation,
        data: relax.Expr,
        rank: int,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
    ) -> None:
        self.rank = rank
        self.image = shape_of(data)[-rank:]
        self.counts = t.shape[-rank:]
        self.kernel = each(kernel_size, rank)
        self.stride = each(stride, rank) if len(stride) else self.kernel
        self.before = each(padding, rank)
        self.dilation = each(dilation, rank)
        # ceil_mode lets windows exceed the padding: extend the padding at the end.
        self.behind = [
            max(pad, (count - 1) * s + (k - 1) * d + 1 - size - pad)
            for count, s, k, d, size, pad in zip(
                self.counts, self.stride, self.kernel, self.dilation, self.image, self.before, strict=True
            )
        ]

    @property
    def pads(self) -> dict[str, Any]:
        """The attributes of Relax's pooling operators."""
        return {
            "pool_size": self.kernel,
            "strides": self.stride,
            "padding": [*self.before, *self.behind],
            "dilation": self.dilation,
        }

    def taps(self) -> list[Tap]:
        def tap(axis: int) -> Tap:
            def place(out: Any, k: Any) -> tuple[Any, Any]:
                at = out * self.stride[axis] + k * self.dilation[axis] - self.before[axis]
                return at, tirx.all(at >= 0, at < self.image[axis])

            return place

        return [tap(axis) for axis in range(self.rank)]

    def sizes(self, with_padding: bool) -> np.ndarray:
        """The number of elements counted by each window, with or without the requested padding."""
        total = np.ones(self.counts, "int64")
        for axis in range(self.rank):
            start = np.arange(self.counts[axis]) * self.stride[axis] - self.before[axis]
            end = np.minimum(start + self.kernel[axis], self.image[axis] + self.before[axis])
            if not with_padding:
                start, end = np.maximum(start, 0), np.minimum(end, self.image[axis])
            total *= (end - start).reshape([-1 if a == axis else 1 for a in range(self.rank)])
        return total


def batched(t: Translation, data: relax.Expr, rank: int) -> relax.Expr:
    """Images with leading batch and channel axes."""
    shape = shape_of(data)
    return data if len(shape) == rank + 2 else reshaped(t, data, [1] * (rank + 2 - len(shape)) + list(shape))


def _tap_axes(kernel: Sequence[int]) -> list[Any]:
    return [te.reduce_axis((0, extent), name=f"k{axis}") for axis, extent in enumerate(kernel)]


def _tapped(
    x: te.Tensor, at: Sequence[Any], taps: Sequence[Tap], tap_axes: Sequence[Any]
) -> tuple[Any, Any, list[Any]]:
    """For one tap of an output: an element, whether the tap is in range, and its position along each axis."""
    found = [tap(out, tap_axis) for tap, out, tap_axis in zip(taps, at[2:], tap_axes, strict=True)]
    limited = [tirx.max(tirx.min(place, size - 1), 0) for (place, _), size in zip(found, x.shape[2:], strict=True)]
    inside = tirx.all(*(counts for _, counts in found))
    return x[tuple([*at[:2], *limited])], inside, [place for place, _ in found]


# ---- maxima ---------------------------------------------------------------------------------------------------------


def _register_max(rank: int) -> None:
    @converter(f"max_pool{rank}d_with_indices.default")
    def convert(
        t: Translation,
        self: relax.Expr,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
    ) -> list[relax.Expr]:
        # The result shape determines ceil_mode.
        data = t.cast(batched(t, self, rank), computed_in(t.dtype))
        windows = _Windows(t, data, rank, kernel_size, stride, padding, dilation)
        best = t.emit(_MAX[rank](data, **windows.pads))
        if shape_of(best)[-rank:] != t.shape[-rank:]:
            raise Unsupported(f"windows give {shape_of(best)}; expected {t.shape} as in PyTorch")
        places = lambda: _places(t, data, best, windows.taps(), windows.kernel)  # noqa: E731
        return _both(t, best, places)


def _both(t: Translation, best: relax.Expr, places: Callable[[], relax.Expr]) -> list[relax.Expr]:
    """Values and indices; the latter are computed only if the graph reads them."""
    used = {user.args[1] for user in t.node.users}  # type: ignore[union-attr]
    indices = reshaped(t, places(), t.shape) if 1 in used else None
    return [reshaped(t, t.cast(best, t.dtype), t.shape), Missing("indices") if indices is None else indices]


def _places(
    t: Translation, data: relax.Expr, best: relax.Expr, taps: Sequence[Tap], kernel: Sequence[int]
) -> relax.Expr:
    """The index in its plane of each window's maximum: the first of equal ones, the last of NaNs."""
    rank = len(kernel)
    image = shape_of(data)[-rank:]
    floating = is_float(dtype_of(data))
    none = tirx.const(2**63 - 1, "int64")

    def find(x: te.Tensor, y: te.Tensor, *, last: bool) -> te.Tensor:
        tap_axes = _tap_axes(kernel)

        def element(*at: Any) -> Any:
            value, inside, places = _tapped(x, at, taps, tap_axes)
            flat: Any = tirx.const(0, "int64")
            for place, size in zip(places, image, strict=True):
                flat = flat * size + tirx.Cast("int64", place)
            if last:
                # No NaN is at least minus infinity; TVM simplifies value == value to true.
                nowhere = tirx.const(-1, "int64")
                hit = tirx.Select(tirx.LE(tirx.const(-inf, str(x.dtype)), value), nowhere, flat)
                return te.max(tirx.Select(inside, hit, nowhere), axis=tap_axes)
            return te.min(tirx.Select(tirx.all(inside, value == y[at]), flat, none), axis=tap_axes)

        return te.compute(y.shape, element, name="places")

    first = t.te(find, data, best, last=False, primfunc_name_hint="pool_places")
    if not floating:
        return first
    last = t.te(find, data, best, last=True, primfunc_name_hint="pool_places_of_nan")
    return t.emit(op.where(t.emit(op.greater_equal(last, relax.const(0, "int64"))), last, first))


def _register_adaptive_max(rank: int) -> None:
    @converter(f"adaptive_max_pool{rank}d.default")
    def convert(t: Translation, self: relax.Expr, output_size: Sequence[int]) -> list[relax.Expr]:
        data = t.cast(batched(t, self, rank), computed_in(t.dtype))
        image, counts = shape_of(data)[-rank:], t.shape[-rank:]
        taps, kernel = _adaptive_taps(image, counts)
        dtype = dtype_of(data)
        least = -inf if is_float(dtype) else torch.iinfo(DTYPES[dtype]).min
        shape = (*shape_of(data)[:2], *counts)

        def largest(x: te.Tensor) -> te.Tensor:
            tap_axes = _tap_axes(kernel)

            def element(*at: Any) -> Any:
                value, inside, _ = _tapped(x, at, taps, tap_axes)
                return te.max(tirx.if_then_else(inside, value, tirx.const(least, dtype)), axis=tap_axes)

            return te.compute(shape, element, name="adaptive_max")

        best = t.te(largest, data, primfunc_name_hint="adaptive_max_pool")
        return _both(t, best, lambda: _places(t, data, best, taps, kernel))


def _adaptive_taps(image: Sequence[int], counts: Sequence[int]) -> tuple[list[Tap], list[int]]:
    """Windows that partition an axis, and the maximum number of elements of any of them."""

    def tap(size: int, count: int) -> Tap:
        def place(out: Any, k: Any) -> tuple[Any, Any]:
            at = tirx.floordiv(out * size, count) + k
            return at, at < tirx.floordiv((out + 1) * size + count - 1, count)

        return place

    pairs = list(zip(image, counts, strict=True))
    widest = [max(-(-(i + 1) * size // count) - i * size // count for i in range(count)) for size, count in pairs]
    return [tap(size, count) for size, count in pairs], widest


# ---- averages -------------------------------------------------------------------------------------------------------


def _register_average(rank: int) -> None:
    @converter(f"avg_pool{rank}d.default")
    def convert(
        t: Translation,
        self: relax.Expr,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None = None,
    ) -> relax.Expr:
        wide = computed_in(t.dtype)
        data = t.cast(batched(t, self, rank), wide)
        windows = _Windows(t, data, rank, kernel_size, stride, padding, [1])
        sizes = windows.sizes(count_include_pad)
        if divisor_override is not None:
            sizes = np.full_like(sizes, divisor_override)
        if not is_float(wide):
            return reshaped(t, _whole_average(t, data, windows, sizes), t.shape)
        taps = prod(windows.kernel)
        plain = bool((sizes == taps).all())
        by_inside = divisor_override is None and not count_include_pad and windows.behind == windows.before
        result = t.emit(_AVERAGE[rank](data, **windows.pads, count_include_pad=plain or not by_inside))
        if not plain and not by_inside:
            factor = torch.from_numpy(taps / sizes).to(DTYPES[wide])
            if (sizes == sizes.flat[0]).all():
                factor = factor.reshape(-1)[0]
            result = t.emit(op.multiply(result, t.constant(factor)))
        return t.cast(reshaped(t, result, t.shape), t.dtype)


def _whole_average(t: Translation, data: relax.Expr, windows: _Windows, sizes: np.ndarray) -> relax.Expr:
    """Averages of integers, rounded towards 0."""
    taps, kernel = windows.taps(), windows.kernel
    dtype = dtype_of(data)

    def average(x: te.Tensor, divisor: te.Tensor) -> te.Tensor:
        tap_axes = _tap_axes(kernel)

        def element(*at: Any) -> Any:
            value, inside, _ = _tapped(x, at, taps, tap_axes)
            return te.sum(tirx.if_then_else(inside, value, tirx.const(0, dtype)), axis=tap_axes)

        total = te.compute((*x.shape[:2], *windows.counts), element, name="total")
        return te.compute(total.shape, lambda *at: tirx.truncdiv(total[at], divisor[at[2:]]), name="average")

    held = t.constant(torch.from_numpy(sizes).to(DTYPES[dtype]))
    return t.te(average, data, held, primfunc_name_hint="average")


def _register_adaptive_average(rank: int) -> None:
    @converter(f"adaptive_avg_pool{rank}d.default", f"_adaptive_avg_pool{rank}d.default")
    def convert(t: Translation, self: relax.Expr, output_size: Sequence[int]) -> relax.Expr:
        wide = computed_in(t.dtype)
        data = t.cast(batched(t, self, rank), wide)
        counts = t.shape[-rank:]
        if not is_float(wide):
            raise Unsupported(f"averages of {t.dtype} are not supported; expected floats")
        if all(count == 1 for count in counts):
            result = t.emit(op.mean(data, list(range(2, 2 + rank)), keepdims=True))
        else:
            result = t.emit(_ADAPTIVE[rank](data, list(counts)))
        return t.cast(reshaped(t, result, t.shape), t.dtype)


# ---- unpooling and gradients ----------------------------------------------------------------------------------------


def _register_unpool(rank: int) -> None:
    @converter(f"max_unpool{rank}d.default")
    def convert(
        t: Translation,
        self: relax.Expr,
        indices: relax.Expr,
        output_size: Sequence[int],
        stride: Any = None,
        padding: Any = None,
    ) -> relax.Expr:
        """Scatter the elements into a zero plane at their indices; stride and padding add nothing to the size."""
        planes, taken, plane = prod(t.shape[:-rank]), prod(shape_of(self)[-rank:]), prod(t.shape[-rank:])
        zeros = expanded(t, t.cast(0, t.dtype), [planes, plane])
        places, values = (reshaped(t, operand, [planes, taken]) for operand in (indices, self))
        return reshaped(t, t.emit(op.scatter_elements(zeros, places, values, 1, "update")), t.shape)


@converter("max_pool2d_with_indices_backward.default", "max_pool3d_with_indices_backward.default")
def _max_pool_backward(
    t: Translation,
    grad_output: relax.Expr,
    self: relax.Expr,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: relax.Expr,
) -> relax.Expr:
    """The gradient of each window at the position of its maximum; the windows are those of the indices."""
    rank = 2 if "2d" in full_name(t.node.target) else 3  # type: ignore[union-attr]
    wide = computed_in(t.dtype)
    planes, taken, plane = prod(t.shape[:-rank]), prod(shape_of(indices)[-rank:]), prod(t.shape[-rank:])
    zeros = expanded(t, t.cast(0, wide), [planes, plane])
    places, values = (reshaped(t, operand, [planes, taken]) for operand in (indices, t.cast(grad_output, wide)))
    found = t.emit(op.scatter_elements(zeros, places, values, 1, "add"))
    return t.cast(reshaped(t, found, t.shape), t.dtype)


for _rank in (1, 2, 3):
    _register_adaptive_average(_rank)
    _register_average(_rank)
    if _rank > 1:
        _register_adaptive_max(_rank)
        _register_max(_rank)
        _register_unpool(_rank)
