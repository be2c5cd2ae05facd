"""Padding, and conversion between images and columns of windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.relax import op

from ..translation import Translation, converter, dtype_of, shape_of
from .views import part


def by_axis(widths: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """(before, after) for every axis from PyTorch's widths, which start with the last axis."""
    pairs = [(0, 0)] * rank
    for place in range(len(widths) // 2):
        pairs[rank - 1 - place] = (widths[2 * place], widths[2 * place + 1])
    return pairs


def padded(t: Translation, data: relax.Expr, pairs: Sequence[tuple[int, int]], value: Any = 0) -> relax.Expr:
    """`data` padded with `value`; negative widths crop."""
    for axis, (before, behind) in enumerate(pairs):
        extent = shape_of(data)[axis]
        data = part(t, data, axis, max(-before, 0), extent - max(-behind, 0))
    wide = [(max(before, 0), max(behind, 0)) for before, behind in pairs]
    if not any(map(any, wide)):
        return data
    if dtype_of(data) in ("float32", "float64"):
        return t.emit(op.nn.pad(data, [width for pair in wide for width in pair], "constant", float(value)))
    fill = t.cast(value, dtype_of(data))
    starts, ends = [pair[0] for pair in wide], [pair[1] for pair in wide]
    shape = shape_of(data)

    def pad(x: te.Tensor, number: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            moved = [place - width for place, width in zip(at, starts, strict=True)]
            inside = [
                condition
                for place, extent in zip(moved, shape, strict=True)
                for condition in (place >= 0, place < extent)
            ]
            return tirx.if_then_else(tirx.all(*inside), x[tuple(moved)], number[()])

        total = [a + extent + b for a, extent, b in zip(starts, shape, ends, strict=True)]
        return te.compute(total, element, name="pad")

    return t.te(pad, data, fill, primfunc_name_hint="pad")


@converter("constant_pad_nd.default")
def _constant_pad(t: Translation, self: relax.Expr, pad: Sequence[int], value: Any) -> relax.Expr:
    if 0 in shape_of(self) or any(
        extent + min(before, 0) + min(behind, 0) <= 0
        for extent, (before, behind) in zip(shape_of(self), by_axis(pad, len(t.shape)), strict=True)
    ):
        return t.emit(op.broadcast_to(t.cast(value, t.dtype), t.shape))  # nothing remains of the operand
    return padded(t, self, by_axis(pad, len(t.shape)), value)


def _inner(t: Translation, data: relax.Expr, widths: Sequence[int], source: Any) -> relax.Expr:
    """Pad with elements of the operand: `source` maps a position and the extent of its axis to the source position."""
    shape, pairs = shape_of(data), by_axis(widths, len(t.shape))
    result = t.shape

    def pad(x: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            places = zip(at, pairs, shape, strict=True)
            return x[tuple(p if pair == (0, 0) else source(p - pair[0], extent) for p, pair, extent in places)]

        return te.compute(result, element, name="pad")

    return t.te(pad, data, primfunc_name_hint="pad")


def _reflected(place: Any, extent: int) -> Any:
    folded = tirx.if_then_else(place < 0, -place, place)
    return tirx.if_then_else(folded >= extent, 2 * (extent - 1) - folded, folded)


def _limited(place: Any, extent: int) -> Any:
    return tirx.max(tirx.min(place, extent - 1), 0)


@converter("reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default")
def _reflection_pad(t: Translation, self: relax.Expr, padding: Sequence[int]) -> relax.Expr:
    return _inner(t, self, padding, _reflected)


@converter("replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default")
def _replication_pad(t: Translation, self: relax.Expr, padding: Sequence[int]) -> relax.Expr:
    return _inner(t, self, padding, _limited)


# ---- columns of windows ---------------------------------------------------------------------------------------------


def _counts(
    image: Sequence[int], kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> list[int]:
    """The number of windows along each axis."""
    axes = zip(image, kernel, dilation, padding, stride, strict=True)
    return [(size + 2 * pad - d * (k - 1) - 1) // s + 1 for size, k, d, pad, s in axes]


@converter("im2col.default")
def _im2col(
    t: Translation,
    self: relax.Expr,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> relax.Expr:
    *batch, channels, height, width = shape_of(self)
    data = padded(t, self, [(0, 0)] * (len(batch) + 1) + [(pad, pad) for pad in padding])
    rows, columns = _counts((height, width), kernel_size, dilation, padding, stride)
    high, wide = kernel_size

    def unfold(x: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            *outer, c, i, j, row, column = at
            place = (*outer, c, row * stride[0] + i * dilation[0], column * stride[1] + j * dilation[1])
            return x[place]

        return te.compute((*batch, channels, high, wide, rows, columns), element, name="unfold")

    windows = t.te(unfold, data, primfunc_name_hint="unfold")
    return t.emit(op.reshape(windows, t.shape))


@converter("col2im.default")
def _col2im(
    t: Translation,
    self: relax.Expr,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> relax.Expr:
    """Sums of overlapping windows: each pixel gathers the values of the windows that cover it."""
    *batch, channels, height, width = t.shape
    counts = _counts((height, width), kernel_size, dilation, padding, stride)
    columns = t.emit(op.reshape(self, (*batch, channels, *kernel_size, *counts)))

    def fold(x: te.Tensor) -> te.Tensor:
        taps = [te.reduce_axis((0, extent), name=f"k{axis}") for axis, extent in enumerate(kernel_size)]

        def element(*at: Any) -> Any:
            *outer, i, j = at
            fits, places = [], []
            for axis, place in enumerate((i, j)):
                moved = place + padding[axis] - taps[axis] * dilation[axis]
                window = tirx.floordiv(moved, stride[axis])
                fits += [moved >= 0, tirx.floormod(moved, stride[axis]) == 0, window < counts[axis]]
                places.append(tirx.max(tirx.min(window, counts[axis] - 1), 0))
            zero = tirx.const(0, x.dtype)
            source = (*outer, *taps, *places)
            return te.sum(tirx.if_then_else(tirx.all(*fits), x[source], zero), axis=taps)

        return te.compute(t.shape, element, name="fold")

    return t.te(fold, columns, primfunc_name_hint="fold")
