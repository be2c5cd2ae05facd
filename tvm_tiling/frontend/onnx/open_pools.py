"""ONNX pooling over images of dynamic shape: the number of windows and the padding are computed from sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx
from tvm.relax import op

from ..fitting import cast
from ..open_parts import padded
from ..open_shapes import Size, expr, plus
from .open_node import OpenNode, Rule, word
from .pools import places
from .tensors import dtype_of


@dataclass(frozen=True)
class OpenWindows:
    """The windows along one axis, as in pools.Windows; `extent`, `before`, `after` and `beyond` may be symbolic.

    A symbolic `beyond` is negative if elements remain after the last window: image and padding are cropped there, so
    that the number of windows is a short expression.
    """

    extent: Size
    kernel: int
    stride: int
    dilation: int
    before: Size
    after: Size
    beyond: Size = 0

    @property
    def span(self) -> int:
        return (self.kernel - 1) * self.dilation + 1

    @property
    def sides(self) -> tuple[Size, Size]:
        """The padding before the axis, and the total after it."""
        return self.before, plus(self.after, self.beyond)


def open_windows(node: OpenNode, kernel: Sequence[int], *, ceil: bool = False) -> list[OpenWindows]:
    """Return the windows of `kernel` elements on images, with a guard if one may exceed its axis. `ceil`: elements that
    remain after the last window get another one."""
    spatial = node.extents()[2:]
    rank = len(spatial)
    if len(kernel) != rank or rank not in (1, 2, 3):
        raise ValueError(f"images have {rank} axes and windows {len(kernel)}; expected 1 to 3, equal")
    strides, dilations = (list(node.attr.get(name, [1] * rank)) for name in ("strides", "dilations"))
    given, auto = list(node.attr.get("pads", [0] * 2 * rank)), word(node.attr.get("auto_pad", "NOTSET"))
    found = []
    for axis, extent in enumerate(spatial):
        own = kernel[axis], strides[axis], dilations[axis]
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            found.append(_same(node, extent, *own, lower=auto == "SAME_LOWER"))
            continue
        before, after = (0, 0) if auto == "VALID" else (given[axis], given[axis + rank])
        windows = OpenWindows(extent, *own, before, after)
        node.shapes.require_at_least(plus(extent, before, after), windows.span)
        found.append(_with_last(node, windows) if ceil else windows)
    return found


def _same(node: OpenNode, extent: Size, kernel: int, stride: int, dilation: int, *, lower: bool) -> OpenWindows:
    """Return as many windows as steps; the odd element of padding comes first if `lower`."""
    shapes, span = node.shapes, (kernel - 1) * dilation + 1
    last = tirx.floordiv(expr(plus(extent, -1)), expr(stride)) * stride
    total = shapes.simplified(plus(last, span, -1 * extent))
    if span < stride:  # otherwise it is at least 0, which TVM would not prove
        total = shapes.larger(total, 0)
    half = shapes.simplified(tirx.floordiv(expr(total), expr(2)))
    rest = shapes.simplified(plus(total, -1 * half))
    before, after = (rest, half) if lower else (half, rest)
    return OpenWindows(extent, kernel, stride, dilation, before, after)


def _with_last(node: OpenNode, windows: OpenWindows) -> OpenWindows:
    """Return the windows with another one for remaining elements, unless it would start in the padding after the
    axis."""
    shapes, stride = node.shapes, windows.stride
    left = plus(windows.extent, windows.before, windows.after, -windows.span)
    steps = shapes.simplified(tirx.floordiv(expr(plus(left, stride - 1)), expr(stride)))
    inside = shapes.simplified(tirx.floordiv(expr(plus(windows.extent, windows.before, -1)), expr(stride)))
    last = shapes.smaller(steps, inside)
    beyond = shapes.simplified(plus(last * stride, -1 * left))
    if isinstance(beyond, int):
        beyond = max(beyond, 0)
    return OpenWindows(windows.extent, windows.kernel, stride, windows.dilation, windows.before, windows.after, beyond)


def around(
    node: OpenNode, data: relax.Expr, windows: Sequence[OpenWindows], fill: Any, *, always: bool = False
) -> tuple[relax.Expr, list[int]]:
    """Return the images padded for their windows if the padding is symbolic or `always`, and the remaining padding,
    before all axes and then after them."""
    sides = [w.sides for w in windows]
    fixed = all(isinstance(number, int) for pair in sides for number in pair)
    if fixed and not always:
        return data, [*(pair[0] for pair in sides), *(pair[1] for pair in sides)]
    if any(not isinstance(number, int) or number for pair in sides for number in pair):
        data = node.bb.emit(padded(node.bb, node.shapes, data, [(0, 0), (0, 0), *sides], fill, "constant"))
    return data, [0] * 2 * len(windows)


def _pooled(
    name: str, data: relax.Expr, windows: Sequence[OpenWindows], padding: Sequence[int], **more: Any
) -> relax.Expr:
    sizes, strides, dilations = ([getattr(w, part) for w in windows] for part in ("kernel", "stride", "dilation"))
    return getattr(op.nn, f"{name}{len(windows)}d")(data, sizes, strides, list(padding), dilations, **more)


def _of_pool(node: OpenNode) -> tuple[relax.Expr, list[OpenWindows]] | None:
    """Return the images and windows of a pool with at least one dynamic axis; None if all are fixed."""
    if all(isinstance(extent, int) for extent in node.extents()[2:]):
        return None
    windows = open_windows(node, list(node.attr["kernel_shape"]), ceil=bool(node.attr.get("ceil_mode", 0)))
    by_itself = word(node.attr.get("auto_pad", "NOTSET")) in ("SAME_UPPER", "SAME_LOWER")
    if by_itself and any(w.span < w.stride for w in windows):
        # If windows skip elements, the standard and onnxruntime disagree on where they start.
        raise ValueError("auto_pad with strides larger than windows is not supported along dynamic axes")
    return cast(node.bb, node.tensor(), node.extents()), windows


def _max_pool(node: OpenNode) -> relax.Expr | None:
    found = _of_pool(node)
    if found is None:
        return None
    data, windows = found
    padding, left = around(node, data, windows, _lowest(dtype_of(data)))
    result = node.bb.emit(_pooled("max_pool", padding, windows, left))
    if node.attr["tvm_custom"]["num_outputs"] == 1:
        return result
    return relax.Tuple([result, places(node.bb, data, result, windows, bool(node.attr.get("storage_order", 0)))])


def _lowest(dtype: str) -> Any:
    return float("-inf") if "float" in dtype else int(tirx.min_value(dtype).value)


def _sums(node: OpenNode, data: relax.Expr, windows: Sequence[OpenWindows]) -> relax.Expr:
    """Return the sum of each window, with zeros outside the image."""
    data, padding = around(node, data, windows, 0)
    means = node.bb.emit(_pooled("avg_pool", data, windows, padding, count_include_pad=True))
    size = math.prod(w.kernel for w in windows)
    return node.bb.emit(op.multiply(means, relax.const(float(size), dtype_of(data))))


def _average_pool(node: OpenNode) -> relax.Expr | None:
    found = _of_pool(node)
    if found is None:
        return None
    data, windows = found
    counts_padding = bool(node.attr.get("count_include_pad", 0))
    beyond = any(not isinstance(w.beyond, int) for w in windows)
    if not beyond and all(isinstance(number, int) for w in windows for number in w.sides):
        padding = around(node, data, windows, 0)[1]
        return _pooled("avg_pool", data, windows, padding, count_include_pad=counts_padding)
    return _over_counts(node, _sums(node, data, windows), windows, counts_padding)


def _over_counts(node: OpenNode, sums: relax.Expr, windows: Sequence[OpenWindows], counts_padding: bool) -> relax.Expr:
    """Return sums of windows divided by the number of elements of the image, or of the image and its padding, in
    each."""
    dtype = dtype_of(sums)
    numbers = [(w.extent, w.before, w.after) for w in windows]
    opened = [size for part in numbers for size in part if not isinstance(size, int)]

    def divided(x: te.Tensor, *sizes: Any) -> te.Tensor:
        given = iter(sizes)
        known = [[size if isinstance(size, int) else next(given) for size in part] for part in numbers]

        def element(*at: Any) -> Any:
            total: Any = tirx.const(1.0, dtype)
            for place, w, (extent, before, after) in zip(at[2:], windows, known, strict=True):
                start = tirx.Cast("int64", place) * w.stride
                # Taps lie in the padded axis, or only in the axis.
                first, end = (0, extent + before + after) if counts_padding else (before, extent + before)
                low = tirx.max(tirx.floordiv(first - start + w.dilation - 1, w.dilation), 0)
                high = tirx.min(tirx.floordiv(end - start + w.dilation - 1, w.dilation), w.kernel)
                total = total * tirx.Cast(dtype, high - low)
            return x[at] / total

        return te.compute(x.shape, element, name="mean")

    return node.bb.call_te(divided, sums, *opened, primfunc_name_hint="mean")


def _lp_pool(node: OpenNode) -> relax.Expr | None:
    found = _of_pool(node)
    if found is None:
        return None
    data, windows = found
    p, dtype = float(node.attr.get("p", 2)), dtype_of(data)
    if p < 1:
        raise ValueError(f"p = {p:g}; expected at least 1")
    positive = node.bb.emit(op.abs(data))
    powers = positive if p == 1 else node.bb.emit(op.power(positive, relax.const(p, dtype)))
    total = _sums(node, powers, windows)
    return total if p == 1 else op.power(total, relax.const(1 / p, dtype))


POOLS: dict[str, Rule] = {"AveragePool": _average_pool, "LpPool": _lp_pool, "MaxPool": _max_pool}
