"""Convolutions of one to three dimensions, plain, grouped, transposed and deformable."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax, topi
from tvm.relax import op

from ....figures import quantity
from ..operands import OpenOperand, Operands, Value, dtype_of, extents_of, shape_of
from ..tree import INPUTS_FIRST, before

_SPACE = {1: "W", 2: "HW", 3: "DHW"}


def convolved(call: Operands, data: relax.Expr, weight: relax.Expr, count: int, out: str) -> relax.Expr:
    """The convolution over `count` spatial dimensions that the attributes describe, in the type `out`."""
    layout, kernel = str(call["data_layout"]), str(call["kernel_layout"])
    check_layout(layout, "NC" + _SPACE[count])
    check_layout(kernel, "OI" + _SPACE[count])
    groups = int(call["groups"])
    data = _with_channels(call, data, layout, shape_of(weight)[kernel.index("I")] * groups)
    weight = by_channels(call, data, weight, layout, kernel, groups)
    function = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[count]
    result = call.emit(
        function(
            data,
            weight,
            strides=call.dims("strides", count),
            padding=call.pads(count),
            dilation=call.dims("dilation", count),
            groups=groups,
            data_layout=layout,
            kernel_layout=kernel,
            out_dtype=out,
        )
    )
    return relaid(result, layout, call["out_layout"])


def _with_channels(call: Operands, data: relax.Expr, layout: str, channels: int) -> relax.Expr:
    """`data` with the channel count of its weight if its own is dynamic."""
    place = layout.index("C")
    return data if isinstance(extents_of(data)[place], int) else call.bound(data, place, channels)


def check_layout(layout: str, letters: str) -> None:
    """Raise ValueError unless `layout` contains each of `letters` once."""
    if sorted(layout) != sorted(letters):
        raise ValueError(f"the layout {layout!r} is not supported; expected a permutation of {letters}")


def relaid(tensor: relax.Expr, layout: str, wanted: str | None) -> relax.Expr:
    """`tensor` converted from `layout` to the layout `wanted`, if it differs."""
    if not wanted or wanted == layout:
        return tensor
    check_layout(wanted, layout)
    return op.permute_dims(tensor, [layout.index(letter) for letter in wanted])


def by_channels(
    call: Operands, data: relax.Expr, weight: relax.Expr, layout: str, kernel: str, groups: int
) -> relax.Expr:
    """The weight of a convolution; a depthwise one with all output channels in O and 1 in I.

    Relay also stores the input channels and the number of outputs per channel in these two dimensions.
    """
    channels, extents = int(extents_of(data)[layout.index("C")]), shape_of(weight)
    out_place, in_place = kernel.index("O"), kernel.index("I")
    if groups == 1 or extents[in_place] * groups == channels:
        return weight
    first, second = sorted((out_place, in_place))
    if extents[first] != channels or second != first + 1 or groups % channels:
        raise ValueError(
            f"a weight of shape {tuple(extents)} and layout {kernel} does not match {quantity(channels, 'channel')} in "
            f"{quantity(groups, 'group')}"
        )
    merged = list(extents)
    merged[out_place], merged[in_place] = extents[first] * extents[second], 1
    return call.emit(op.reshape(weight, merged))


def _convolution(count: int) -> Callable[[Operands], Value]:
    def convert(call: Operands) -> Value:
        data, weight = call.tensor(0), call.tensor(1)
        return convolved(call, data, weight, count, call["out_dtype"] or dtype_of(data))

    return convert


def transposed(call: Operands, data: relax.Expr, weight: relax.Expr, count: int, out: str) -> relax.Expr:
    """The transposed convolution that the attributes describe, in the type `out`, computed channels-first."""
    space = _SPACE[count]
    layout, first = str(call["data_layout"]), "NC" + space
    check_layout(layout, first)
    groups = int(call["groups"])
    channels = extents_of(data)[layout.index("C")]
    if not isinstance(channels, int):
        raise OpenOperand("a dynamic number of channels")
    weight = call.emit(inputs_first(call, weight, space, channels))
    function = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}[count]
    result = function(
        call.emit(relaid(data, layout, first)),
        weight,
        strides=call.dims("strides", count),
        padding=call.pads(count),
        output_padding=call.dims("output_padding", count),
        dilation=call.dims("dilation", count),
        groups=groups,
        data_layout=first,
        kernel_layout="IO" + space,
        out_dtype=out,
    )
    return relaid(call.emit(result), first, call["out_layout"] or layout)


def inputs_first(call: Operands, weight: relax.Expr, space: str, channels: int) -> relax.Expr:
    """The weight of a transposed convolution as [input channels, output channels / groups, ...space].

    Until 0.11 its layout was named OI... although the input channels come first; since 0.12 it is named IO....
    """
    stated = call["kernel_layout"]
    layout = str(stated or "IO" + space)
    check_layout(layout, "OI" + space)
    old = before(call.release, INPUTS_FIRST)
    if layout == "OI" + space and (old or shape_of(weight)[1] != channels):
        layout = "IO" + space
    found = shape_of(weight)[layout.index("I")]
    if found != channels:
        raise ValueError(
            f"a weight of shape {tuple(shape_of(weight))} and layout {layout} does not match {channels} channels"
        )
    return relaid(weight, layout, "IO" + space)


def _transposed(count: int) -> Callable[[Operands], Value]:
    def convert(call: Operands) -> Value:
        data, weight = call.tensor(0), call.tensor(1)
        return transposed(call, data, weight, count, call["out_dtype"] or dtype_of(data))

    return convert


def _deformable(call: Operands) -> Value:
    data, offset, weight = (call.tensor(place) for place in range(3))
    functions = {"NCHW": topi.nn.deformable_conv2d_nchw, "NHWC": topi.nn.deformable_conv2d_nhwc}
    layout = str(call["data_layout"])
    if layout not in functions:
        raise ValueError(f"the layout {layout!r} is not supported; expected {', '.join(functions)}")
    return call.te(
        functions[layout],
        data,
        offset,
        weight,
        call.dims("strides", 2),
        call.pads(2),
        call.dims("dilation", 2),
        int(call["deformable_groups"]),
        int(call["groups"]),
        call["out_dtype"] or dtype_of(data),
    )


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    **{f"nn.conv{count}d": _convolution(count) for count in (1, 2, 3)},
    **{f"nn.conv{count}d_transpose": _transposed(count) for count in (1, 2, 3)},
    "nn.deformable_conv2d": _deformable,
}
