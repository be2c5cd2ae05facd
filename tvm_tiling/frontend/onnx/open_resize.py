"""Resize of ONNX along dynamic axes.

Integer factors repeat elements or interpolate between two. Other factors use tables of indices and weights as for fixed
axes, but computed at run time, in float64 and in the order of resize.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax import op

from ..interpolation import interpolated
from ..open_parts import upsampled
from ..open_shapes import Size, expr
from .open_node import OpenNode, Rule, axis_of
from .resize import LATEST, OLDER, Axis, Form, along, check_roi, check_scales, check_sizes, scaled
from .tensors import dtype_of

_SEARCHED = 1 << 16  # extents for which a product with a scale is compared
_LEAST_EXTENT = 4096  # up to which a scale must be exact
_WIDE = "float64"


@dataclass(frozen=True)
class OpenAxis:
    """The resizing of one axis, as in resize.Axis; `scale` is None if it is after / before."""

    index: int
    before: Size
    after: Size
    scale: float | None
    start: float = 0.0
    end: float = 1.0


def _resize(node: OpenNode) -> relax.Expr | None:
    extents = node.extents()
    form = Form.of(node.attr, LATEST if node.opset > 10 else OLDER)
    changed = [axis for axis in _axes(node, extents, form) if not _is_untouched(node, axis)]
    if all(isinstance(extent, int) for extent in extents) and all(isinstance(axis.after, int) for axis in changed):
        return None
    known = [axis for axis in changed if isinstance(axis.before, int) and isinstance(axis.after, int)]
    data = node.tensor()
    if known:
        data = node.bb.emit(along(node.bb, data, [_known(axis) for axis in known], form))
    for axis in changed:
        if axis not in known:
            data = _along(node, data, axis, form)
    return data


def _known(axis: OpenAxis) -> Axis:
    """Return an axis of fixed extents."""
    scale = (axis.after / axis.before if axis.before else 1.0) if axis.scale is None else axis.scale
    return Axis(axis.index, axis.before, axis.after, scale, axis.start, axis.end)


def _is_untouched(node: OpenNode, axis: OpenAxis) -> bool:
    whole = (axis.start, axis.end) == (0.0, 1.0)
    return whole and axis.scale in (None, 1.0) and node.shapes.same(axis.before, axis.after)


# ---- sizes ----------------------------------------------------------------------------------------------------------


def _axes(node: OpenNode, extents: list[Size], form: Form) -> list[OpenAxis]:
    given = node.attr.get("axes", range(len(extents)))
    axes = [axis_of(axis, len(extents)) for axis in given]
    sizes = node.sizes(3) if node.opset > 10 and node.has(3) else None
    if node.opset > 10 and node.has(3) and sizes is None:
        raise ValueError("sizes must follow from shapes or be known at compile time")
    roi = _numbers(node, 1, "roi") if form.place == "tf_crop_and_resize" and node.opset > 10 else None
    if roi is not None:
        check_roi(roi, len(axes))
    cuts = [(0.0, 1.0)] * len(axes) if roi is None else list(zip(roi[: len(axes)], roi[len(axes) :], strict=True))
    if sizes:
        check_sizes(sizes, [extents[axis] for axis in axes])
        if form.policy != "stretch":
            raise ValueError(
                f"keep_aspect_ratio_policy {form.policy!r} is not supported for tensors of dynamic shape; "
                "expected stretch"
            )
        for size in sizes:
            if not isinstance(size, int):
                node.shapes.require_at_least(size, 1)
        return [
            OpenAxis(axis, extents[axis], size, None, *cut) for axis, size, cut in zip(axes, sizes, cuts, strict=True)
        ]
    scales = _scales(node)
    check_scales(scales, len(axes))
    return [
        OpenAxis(axis, extents[axis], _scaled(node, extents[axis], scale), scale, *cut)
        for axis, scale, cut in zip(axes, scales, cuts, strict=True)
    ]


def _numbers(node: OpenNode, place: int, called: str) -> list[float] | None:
    """Return the numbers of an input; None if it is omitted or empty."""
    if not node.has(place):
        return None
    held = node.tensor(place)
    if not isinstance(held, tvm.ir.GenericConst):
        raise ValueError(f"{called} must be known at compile time")
    return [float(number) for number in held.value.numpy().reshape(-1)] or None


def _scales(node: OpenNode) -> list[float]:
    """Return the scales from an input, or in older versions an attribute."""
    place = 2 if node.opset > 10 else 1
    found = list(node.attr["scales"]) if "scales" in node.attr else _numbers(node, place, "scales")
    if found is None:
        raise ValueError("neither scales nor sizes are given")
    return [float(number) for number in found]


def _scaled(node: OpenNode, extent: Size, scale: float) -> Size:
    """Return the number of elements after scaling an axis: the product in float32 rounded down, as in resize.scaled().

    It is expressed as an integer quotient, with a guard on the largest extent for which that is exact.
    """
    if isinstance(extent, int):
        return scaled(extent, scale)
    known = np.arange(1, _SEARCHED + 1)
    wanted = np.floor(np.float32(scale) * known.astype("float32")).astype("int64")
    exact = Fraction(scale)
    best, most = exact, 0
    for bound in (16, 256, 4096, exact.denominator):
        share = exact.limit_denominator(bound)
        if share.numerator * _SEARCHED > 2**62 or share <= 0:
            continue
        other = known * share.numerator // share.denominator != wanted
        reach = int(np.argmax(other)) if other.any() else _SEARCHED
        if reach > most:
            best, most = share, reach
    if most < _LEAST_EXTENT:
        raise ValueError(f"scale = {scale:.9g} cannot be represented as an integer quotient for a dynamic axis")
    if best.denominator != 1:
        node.shapes.require_at_least(most, extent)
    after = node.shapes.simplified(tirx.floordiv(expr(extent * best.numerator), expr(best.denominator)))
    if scale < 1:
        node.shapes.require_at_least(after, 1)
    return after


# ---- elements -------------------------------------------------------------------------------------------------------


def _along(node: OpenNode, data: relax.Expr, axis: OpenAxis, form: Form) -> relax.Expr:
    """Return `data` resized along one axis."""
    if form.mode != "nearest" and "float" not in dtype_of(data):
        raise ValueError(
            f"mode {form.mode!r} is not supported for {dtype_of(data)} along dynamic axes; expected floats"
        )
    factor = _factor(node, axis)
    if factor is not None and form.repeats:
        return node.bb.emit(upsampled(node.bb, node.shapes, data, axis.index, factor, linear=form.mode == "linear"))
    places = _places(axis, form.place)
    if form.mode == "nearest":
        table = _table(node, axis, lambda x, *sizes: _nearest(places(x, *sizes), form.nearest, sizes[0]), "int64")
        result = node.bb.emit(op.take(data, table, axis=axis.index))
    else:
        result = _weighted(node, data, axis, form, places)
    if form.place != "tf_crop_and_resize":
        return result
    outside = _table(
        node, axis, lambda x, *sizes: _is_outside(places(x, *sizes), sizes[0]), "bool", len(data.ty.shape), axis.index
    )
    fill = relax.const(form.fill, dtype_of(data))
    return node.bb.emit(op.where(outside, fill, result))


def _factor(node: OpenNode, axis: OpenAxis) -> int | None:
    """Return the integer factor of an axis; None if the factor is not an integer."""
    if axis.scale is not None:
        return int(axis.scale) if axis.scale == int(axis.scale) else None
    if isinstance(axis.after, int):
        return None
    for factor in range(1, 17):
        if node.shapes.same(axis.after, axis.before * factor):
            return factor
    return None


Places = Callable[..., Any]  # of an index, and of the extents before and after


def _places(axis: OpenAxis, mode: str) -> Places:
    """Return the function that maps an output index to input coordinates."""

    def place(x: Any, before: Any, after: Any) -> Any:
        x = tirx.Cast(_WIDE, x)
        size, wanted = tirx.Cast(_WIDE, before), tirx.Cast(_WIDE, after)
        scale = wanted / size if axis.scale is None else _number(axis.scale)
        length = scale * size
        one, half = _number(1.0), _number(0.5)
        alone = length.equal(one)
        # The length is 1 here if the branch is not taken, so that nothing is divided by zero.
        apart = tirx.Select(alone, one, length - one)
        middle = (x + half) / scale - half
        if mode == "align_corners":
            return tirx.Select(alone, _number(0.0), x * (size - one) / apart)
        if mode == "asymmetric":
            return x / scale
        if mode == "tf_crop_and_resize":
            span = _number(axis.end - axis.start) * (size - one)
            first = _number(axis.start) * (size - one)
            return tirx.Select(alone, first + span / _number(2.0), first + x * span / apart)
        if mode == "half_pixel_symmetric":
            return size / _number(2.0) * (one - wanted / length) + middle
        if mode == "pytorch_half_pixel":
            return tirx.Select(alone, _number(0.0), middle)
        if mode == "half_pixel":
            return middle
        raise ValueError(f"unknown coordinate_transformation_mode {mode!r}")

    return place


def _number(value: float) -> Any:
    return tirx.const(value, _WIDE)


def _nearest(place: Any, mode: str, before: Any) -> Any:
    rounded = {
        "round_prefer_floor": lambda x: tirx.ceil(x - _number(0.5)),
        "round_prefer_ceil": lambda x: tirx.floor(x + _number(0.5)),
        "floor": tirx.floor,
        "ceil": tirx.ceil,
    }
    if mode not in rounded:
        raise ValueError(f"unknown nearest_mode {mode!r}")
    return _within(tirx.Cast("int64", rounded[mode](place)), before)


def _within(place: Any, before: Any) -> Any:
    return tirx.max(tirx.min(place, before - 1), tirx.const(0, "int64"))


def _is_outside(place: Any, before: Any) -> Any:
    return tirx.any(place < _number(0.0), place > tirx.Cast(_WIDE, before - 1))


def _table(
    node: OpenNode, axis: OpenAxis, function: Callable[..., Any], dtype: str, rank: int = 1, place: int = 0
) -> relax.Expr:
    """Return a function of each index of the resized axis and of the extents before and after, as a tensor of `rank`
    axes whose other extents are 1."""

    def computed(given: Sequence[Any]) -> te.Tensor:
        before, after = given
        shape = [expr(axis.after) if at == place else tirx.const(1, "int64") for at in range(rank)]
        return te.compute(shape, lambda *at: tirx.Cast(dtype, function(at[place], before, after)), name="places")

    return _of_sizes(node, computed, (axis.before, axis.after))


def _of_sizes(node: OpenNode, function: Callable[[Sequence[Any]], te.Tensor], sizes: Sequence[Size]) -> relax.Expr:
    """Return a tensor expression of sizes; symbolic ones are arguments of its kernel."""
    opened = [size for size in sizes if not isinstance(size, int)]

    def given(*numbers: Any) -> te.Tensor:
        left = iter(numbers)
        return function([expr(size) if isinstance(size, int) else next(left) for size in sizes])

    return node.bb.emit(node.bb.call_te(given, *opened, primfunc_name_hint="places"))


def _weighted(node: OpenNode, data: relax.Expr, axis: OpenAxis, form: Form, places: Places) -> relax.Expr:
    """Return weighted sums of a few elements along the axis."""
    reach = {"linear": 1, "cubic": 2}.get(form.mode)
    if reach is None:
        raise ValueError(f"unknown mode {form.mode!r}")
    narrow = 1.0
    if form.antialias:
        if axis.scale is None and not node.shapes.proves(expr(axis.after) >= expr(axis.before)):
            raise ValueError("antialias needs a scale that is known at compile time")
        # Antialiasing widens the kernel by the factor that the axis shrinks by.
        narrow = 1.0 if axis.scale is None else min(axis.scale, 1.0)
    first = math.floor(-reach / narrow) + 1
    taps = 2 * (1 - first)
    dtype = dtype_of(data)

    def left_of(x: Any, before: Any, after: Any) -> tuple[Any, Any]:
        place = places(x, before, after)
        return place, tirx.ceil(place) - _number(1.0)

    def index(x: Any, tap: Any, before: Any, after: Any) -> Any:
        return tirx.Cast("int64", left_of(x, before, after)[1]) + tap + first

    def weight(x: Any, tap: Any, before: Any, after: Any) -> Any:
        place, left = left_of(x, before, after)
        distance = tirx.abs(tirx.Cast(_WIDE, tap + first) - (place - left)) * _number(narrow)
        near = _linear(distance) if form.mode == "linear" else _cubic(distance, form.cubic)
        if not form.exclude_outside:
            return near
        at = index(x, tap, before, after)
        return tirx.Select(tirx.all(at >= 0, at < before), near, _number(0.0))

    def indices(given: Sequence[Any]) -> te.Tensor:
        shape = [expr(axis.after), tirx.const(taps, "int64")]
        return te.compute(shape, lambda x, tap: _within(index(x, tap, *given), given[0]), name="indices")

    def weights(given: Sequence[Any]) -> te.Tensor:
        def element(x: Any, tap: Any) -> Any:
            found = weight(x, tap, *given)
            if form.exclude_outside or narrow != 1.0:
                total = weight(x, tirx.const(0, "int64"), *given)
                for other in range(1, taps):
                    total = total + weight(x, tirx.const(other, "int64"), *given)
                found = found / total
            return tirx.Cast(dtype, found)

        return te.compute([expr(axis.after), tirx.const(taps, "int64")], element, name="weights")

    sizes = axis.before, axis.after
    tables = _of_sizes(node, indices, sizes), _of_sizes(node, weights, sizes)
    result = interpolated(node.bb, data, axis.index, *tables)
    return result if axis.scale is not None else _kept_where_equal(node, data, result, axis.index)


def _kept_where_equal(node: OpenNode, data: relax.Expr, result: relax.Expr, axis: int) -> relax.Expr:
    """Return `result`, or `data` itself if the axis has the same extent at run time: weights of 0 would turn infinities
    next to an element into NaN."""

    def kept(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            place = [tirx.min(i, x.shape[axis] - 1) if own == axis else i for own, i in enumerate(at)]
            return tirx.Select(x.shape[axis].equal(y.shape[axis]), x[tuple(place)], y[at])

        return te.compute(y.shape, element, name="resized")

    return node.bb.emit(node.bb.call_te(kept, data, result, primfunc_name_hint="resized"))


def _linear(distance: Any) -> Any:
    return tirx.max(tirx.min(_number(1.0) - distance, _number(1.0)), _number(0.0))


def _cubic(distance: Any, coefficient: float) -> Any:
    """Return the cubic convolution kernel of Keys."""
    a = coefficient
    near = ((_number(a + 2) * distance - _number(a + 3)) * distance * distance) + _number(1.0)
    far = ((_number(a) * distance - _number(5 * a)) * distance + _number(8 * a)) * distance - _number(4 * a)
    beyond = tirx.Select(distance < _number(2.0), far, _number(0.0))
    return tirx.Select(distance <= _number(1.0), near, beyond)


RESIZES: dict[str, Rule] = {"Resize": _resize, "Upsample": _resize}
