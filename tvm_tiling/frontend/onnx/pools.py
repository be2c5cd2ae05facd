"""Pooling of ONNX on one common window geometry, so that each operator only defines how a window is reduced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ...figures import quantity
from .tensors import dtype_of, spatial_of


@dataclass(frozen=True)
class Windows:
    """The windows along one axis, in elements: `count` windows start `stride` apart, the first one `before` elements
    ahead of the axis; with ceil_mode the last one ends up to `beyond` elements past the padding."""

    extent: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    count: int

    @property
    def span(self) -> int:
        return (self.kernel - 1) * self.dilation + 1

    @property
    def beyond(self) -> int:
        return max(0, (self.count - 1) * self.stride + self.span - self.before - self.extent - self.after)

    @property
    def padded(self) -> np.ndarray:
        """Number of elements of each window that lie in the axis or its padding."""
        places = np.arange(self.count)[:, None] * self.stride + np.arange(self.kernel) * self.dilation
        return (places < self.before + self.extent + self.after).sum(axis=1)


def windows_of(attr: dict[str, Any], spatial: Sequence[int]) -> list[Windows]:
    """The windows of a pool along each spatial axis. Raises ValueError if a window exceeds the padded axis."""
    rank = len(spatial)
    kernel = [int(k) for k in attr["kernel_shape"]]
    if len(kernel) != rank:
        raise ValueError(f"kernel_shape {kernel} does not match images of {quantity(rank, 'axis', 'axes')}")
    strides, dilations = (list(attr.get(name, [1] * rank)) for name in ("strides", "dilations"))
    pads = list(attr.get("pads", [0] * 2 * rank))
    auto = attr.get("auto_pad", b"NOTSET")
    auto = auto.decode() if isinstance(auto, bytes) else auto
    ceil = bool(attr.get("ceil_mode", 0))
    axes = zip(spatial, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True)
    return [
        _windows(extent, taps, stride, dilation, before, after, auto, ceil)
        for extent, taps, stride, dilation, before, after in axes
    ]


def _windows(
    extent: int, kernel: int, stride: int, dilation: int, before: int, after: int, auto: str, ceil: bool
) -> Windows:
    span = (kernel - 1) * dilation + 1
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        count = -(-extent // stride)
        total = max((count - 1) * stride + span - extent, 0)
        before = total // 2 if auto == "SAME_UPPER" else total - total // 2
        return Windows(extent, kernel, stride, dilation, before, total - before, count)
    if auto == "VALID":
        before = after = 0
    left = extent + before + after - span
    count = (-(-left // stride) if ceil else left // stride) + 1
    if ceil and (count - 1) * stride >= extent + before:
        count -= 1  # No window starts in the padding after the axis.
    if count < 1:
        raise ValueError(
            f"a window spans {span} elements, more than an axis of {extent + before + after} with its padding"
        )
    return Windows(extent, kernel, stride, dilation, before, after, count)


def _windows_of_pool(operator: str, attr: dict[str, Any], data: relax.Expr) -> list[Windows]:
    """The windows of a pool as `windows_of` returns them, except where auto_pad results in negative padding: strides
    longer than the windows, so that the last window ends before the axis does.

    There the standard's formula is negative and the first window starts after the first element, as far as the
    standard's reference implementation and onnxruntime agree. Raises ValueError where they disagree or neither computes
    it.
    """
    windows = windows_of(attr, spatial_of(data))
    auto = attr.get("auto_pad", b"NOTSET")
    auto = auto.decode() if isinstance(auto, bytes) else auto
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        return windows
    return [_moved_back(operator, auto, w) for w in windows]


def _moved_back(operator: str, auto: str, windows: Windows) -> Windows:
    w = windows
    short = w.extent - (w.count - 1) * w.stride - w.span
    # A single surplus element is not removed at the front: the odd one is removed at the end.
    if short <= 0 or w.extent == 0 or (short == 1 and auto == "SAME_UPPER"):
        return w
    if auto == "SAME_UPPER" and short % 2 == 0 and operator != "AveragePool":
        return replace(w, before=-(short // 2))
    raise ValueError(
        f"auto_pad {auto} with windows of {w.span} elements and stride {w.stride} that end {short} before the "
        f"end of an axis of {w.extent}: the standard's reference implementation and onnxruntime place the "
        "windows differently; expected pads"
    )


def _pooled(name: str, data: relax.Expr, windows: list[Windows], padding: list[int], **more: Any) -> relax.Expr:
    """TVM's pool `name` over complete windows. Negative padding is cropped from the image."""
    cut = {2 + axis: -number for axis, number in enumerate(padding[: len(windows)]) if number < 0}
    if cut:
        extents = [0, 0, *spatial_of(data)]
        data = op.strided_slice(data, list(cut), list(cut.values()), [extents[axis] for axis in cut])
        padding = [max(number, 0) for number in padding]
    if len(windows) not in (1, 2, 3):
        raise ValueError(f"images of {len(windows)} axes are not supported; expected 1 to 3")
    pool = getattr(op.nn, f"{name}{len(windows)}d")
    sizes, strides, dilations = ([getattr(w, part) for w in windows] for part in ("kernel", "stride", "dilation"))
    return pool(data, sizes, strides, padding, dilations, **more)


def _whole_padding(windows: list[Windows]) -> list[int]:
    """The padding before all axes, then after them, extended to the end of the last windows."""
    return [w.before for w in windows] + [w.after + w.beyond for w in windows]


def _sums(bb: relax.BlockBuilder, data: relax.Expr, windows: list[Windows]) -> relax.Expr:
    """The sum of each window; elements outside the image are zero."""
    sides = [number for w in windows for number in (max(w.before, 0), w.after + w.beyond)]
    padded = bb.emit(op.nn.pad(data, [0, 0, 0, 0, *sides])) if any(sides) else data
    cut = [min(w.before, 0) for w in windows]
    means = bb.emit(_pooled("avg_pool", padded, windows, [*cut, *[0] * len(windows)], count_include_pad=True))
    size = math.prod(w.kernel for w in windows)
    return bb.emit(op.multiply(means, relax.const(float(size), dtype_of(data))))


class AveragePool(tvm_onnx.OnnxOpConverter):
    """Means of windows; with ceil_mode the elements past the padding never count."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data = inputs[0]
        windows = _windows_of_pool("AveragePool", attr, data)
        counts_padding = bool(attr.get("count_include_pad", 0))
        if not counts_padding or not any(w.beyond for w in windows):
            padding = _whole_padding(windows)
            return _pooled("avg_pool", data, windows, padding, count_include_pad=counts_padding)
        counts = np.ones((1, 1, *(w.count for w in windows)))
        for axis, w in enumerate(windows):
            counts *= w.padded.reshape([-1 if place == axis + 2 else 1 for place in range(counts.ndim)])
        return op.divide(_sums(bb, data, windows), relax.const(counts, dtype_of(data)))


class LpPool(tvm_onnx.OnnxOpConverter):
    """The norm of each window."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data, p = inputs[0], float(attr.get("p", 2))
        if p < 1:
            raise ValueError(f"p is {p:g}; expected 1 or more")
        windows, dtype = _windows_of_pool("LpPool", attr, data), dtype_of(data)
        positive = bb.emit(op.abs(data))
        powers = positive if p == 1 else bb.emit(op.power(positive, relax.const(p, dtype)))
        total = _sums(bb, powers, windows)
        return total if p == 1 else op.power(total, relax.const(1 / p, dtype))


class MaxPool(tvm_onnx.OnnxOpConverter):
    """The largest element of each window, and its index if requested."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data = inputs[0]
        windows = _windows_of_pool("MaxPool", attr, data)
        result = bb.normalize(_pooled("max_pool", data, windows, _whole_padding(windows)))
        if attr["tvm_custom"]["num_outputs"] == 1:
            return result
        return relax.Tuple([result, places(bb, data, result, windows, bool(attr.get("storage_order", 0)))])


def places(
    bb: relax.BlockBuilder, data: relax.Expr, result: relax.Expr, windows: Sequence[Any], column_major: bool
) -> relax.Expr:
    """The index in `data` of the largest element of each window, or of its first NaN. `windows`: Windows, or objects
    with the same attributes and dynamic dimensions."""
    rank = len(windows)
    opened = [w.before for w in windows if not isinstance(w.before, int)]

    def indices(x: te.Tensor, best: te.Tensor, *sizes: Any) -> te.Tensor:
        given, spatial = iter(sizes), list(x.shape)[2:]
        before = [w.before if isinstance(w.before, int) else next(given) for w in windows]
        taps = [te.reduce_axis((0, w.kernel), name=f"k{i}") for i, w in enumerate(windows)]
        none = tirx.const(2**63 - 1, "int64")

        def element(*at: Any) -> Any:
            place = [at[2 + i] * w.stride + taps[i] * w.dilation - before[i] for i, w in enumerate(windows)]
            inside = tirx.all(*[tirx.all(p >= 0, p < extent) for p, extent in zip(place, spatial, strict=True)])
            clipped = [tirx.max(tirx.min(p, extent - 1), 0) for p, extent in zip(place, spatial, strict=True)]
            flat: Any = tirx.const(0, "int64")
            for i in reversed(range(rank)) if column_major else range(rank):
                flat = flat * spatial[i] + tirx.Cast("int64", place[i])
            plane = tirx.Cast("int64", at[0]) * x.shape[1] + tirx.Cast("int64", at[1])
            flat = flat + plane * math.prod(spatial)
            value = x[tuple([*at[:2], *clipped])]
            hit = value.equal(best[at])
            if "float" in str(x.dtype):
                hit = tirx.any(hit, tirx.isnan(value))
            return te.min(tirx.Select(tirx.all(inside, hit), flat, none), axis=taps)

        return te.compute(best.shape, element, name="indices")

    return bb.emit_te(indices, data, result, *opened, primfunc_name_hint="pool_indices")


CONVERTERS: dict[str, Any] = {"AveragePool": AveragePool, "LpPool": LpPool, "MaxPool": MaxPool}
