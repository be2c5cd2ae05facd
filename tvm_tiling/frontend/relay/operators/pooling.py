"""Pooling: windowed, global, and adaptive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx, topi
from tvm.relax import op

from ..operands import OpenOperand, Operands, Value, extents_of, is_integer, numbers, shape_of
from .convolution import check_layout, relaid

_SPACE = {1: "W", 2: "HW", 3: "DHW"}
_WINDOWS = {
    ("max", 1): op.nn.max_pool1d,
    ("max", 2): op.nn.max_pool2d,
    ("max", 3): op.nn.max_pool3d,
    ("avg", 1): op.nn.avg_pool1d,
    ("avg", 2): op.nn.avg_pool2d,
    ("avg", 3): op.nn.avg_pool3d,
}
_TO_SIZE = {1: topi.nn.adaptive_pool1d, 2: topi.nn.adaptive_pool, 3: topi.nn.adaptive_pool3d}


def pooled(call: Operands, data: relax.Expr, kind: str, count: int) -> relax.Expr:
    """The maximum or mean of windows over `count` spatial dimensions."""
    layout = str(call["layout"])
    check_layout(layout, "NC" + _SPACE[count])
    if call["ceil_mode"] and not all(
        isinstance(extents_of(data)[layout.index(letter)], int) for letter in _SPACE[count]
    ):
        raise OpenOperand("ceil_mode along dynamic dimensions")
    if kind == "avg" and is_integer(data):
        return relaid(_integer_means(call, data, layout, count), layout, call["out_layout"])
    result = _WINDOWS[kind, count](
        data,
        pool_size=call.dims("pool_size", count),
        strides=call.dims("strides", count),
        padding=call.pads(count),
        dilation=call.dims("dilation", count),
        ceil_mode=bool(call["ceil_mode"]),
        count_include_pad=bool(call["count_include_pad"]) and kind == "avg",
        layout=layout,
    )
    return relaid(call.emit(result), layout, call["out_layout"])


def _integer_means(call: Operands, data: relax.Expr, layout: str, count: int) -> relax.Expr:
    """Means of integers, rounded towards zero. (TVM's own means return a different type than they declare.)"""
    places = [layout.index(letter) for letter in _SPACE[count]]
    size, strides, dilation = (call.dims(name, count) for name in ("pool_size", "strides", "dilation"))
    pads, everything = call.pads(count), bool(call["count_include_pad"])
    extents = [shape_of(data)[place] for place in places]
    shape, ends = shape_of(data), []
    for axis, place in enumerate(places):
        whole = extents[axis] + pads[axis] + pads[count + axis]
        over = whole - (size[axis] - 1) * dilation[axis] - 1
        shape[place] = (-(-over // strides[axis]) if call["ceil_mode"] else over // strides[axis]) + 1
        ends.append(extents[axis] + (pads[count + axis] if everything else 0))

    def means(x: te.Tensor) -> te.Tensor:
        taps = [te.reduce_axis((0, extent), name=f"tap{axis}") for axis, extent in enumerate(size)]

        def picked(at: Sequence[Any]) -> list[Any]:
            """Positions in the data along each spatial dimension."""
            starts = [at[place] * strides[axis] - pads[axis] for axis, place in enumerate(places)]
            return [start + tap * dilation[axis] for axis, (start, tap) in enumerate(zip(starts, taps, strict=True))]

        def value(*at: Any) -> Any:
            source, where = list(at), picked(at)
            for axis, place in enumerate(places):
                source[place] = where[axis]
            inside = [tirx.all(w >= 0, w < extent) for w, extent in zip(where, extents, strict=True)]
            zero = tirx.const(0, x.dtype)
            return te.sum(tirx.if_then_else(tirx.all(*inside), x[tuple(source)], zero), axis=taps)

        def number(*at: Any) -> Any:
            where = picked(at)
            least = [-pads[axis] if everything else 0 for axis in range(count)]
            counted = [tirx.all(w >= low, w < end) for w, low, end in zip(where, least, ends, strict=True)]
            one, zero = tirx.const(1, x.dtype), tirx.const(0, x.dtype)
            return te.sum(tirx.Select(tirx.all(*counted), one, zero), axis=taps)

        total, elements = te.compute(shape, value, name="total"), te.compute(shape, number, name="elements")
        return te.compute(shape, lambda *at: tirx.truncdiv(total[at], elements[at]), name="means")

    return call.te(means, data)


def _window(kind: str, count: int) -> Callable[[Operands], Value]:
    return lambda call: pooled(call, call.tensor(0), kind, count)


def _all_of_it(call: Operands, kind: str, count: int) -> relax.Expr:
    layout = str(call["layout"])
    check_layout(layout, "NC" + _SPACE[count])
    axes = [layout.index(letter) for letter in _SPACE[count]]
    function = op.mean if kind == "avg" else op.max
    return relaid(call.emit(function(call.tensor(0), axes, keepdims=True)), layout, call["out_layout"])


def _global(kind: str) -> Callable[[Operands], Value]:
    return lambda call: _all_of_it(call, kind, 2)


def _adaptive(kind: str, count: int) -> Callable[[Operands], Value]:
    def convert(call: Operands) -> Value:
        layout = str(call["layout"])
        check_layout(layout, "NC" + _SPACE[count])
        sizes = numbers(call["output_size"])
        extents = [call.extents(call.tensor(0))[layout.index(letter)] for letter in _SPACE[count]]
        fixed = [extent for extent in extents if isinstance(extent, int)]
        sizes = sizes * count if len(sizes) == 1 else sizes or fixed
        if len(sizes) != count:
            raise ValueError(f"output_size has {len(sizes)} numbers; expected 0, 1 or {count}")
        if sizes == [1] * count:
            return _all_of_it(call, kind, count)
        if len(fixed) < count:
            raise OpenOperand("a fixed number of windows along dynamic dimensions")
        result = call.te(_TO_SIZE[count], call.tensor(0), tuple(sizes), kind, layout)
        return relaid(result, layout, call["out_layout"])

    return convert


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    **{f"nn.{kind}_pool{count}d": _window(kind, count) for kind, count in _WINDOWS},
    **{f"nn.adaptive_{kind}_pool{count}d": _adaptive(kind, count) for kind, count in _WINDOWS},
    **{f"contrib.adaptive_{kind}_pool2d": _adaptive(kind, 2) for kind in ("avg", "max")},
    "nn.global_avg_pool2d": _global("avg"),
    "nn.global_max_pool2d": _global("max"),
}
