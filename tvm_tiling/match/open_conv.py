"""Matching of the convolution in a PrimFunc over images of dynamic height or width, channels last.

A static convolution is recognised by its index values at every point. Here it is recognised by the form of its indices:
an input row is stride * (output row) + dilation * tap - border, and the only condition on it is that it is a row of the
image. Channels may be in groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import tirx
from tvm.ir import TensorLoad

from ..errors import WorkloadError
from ..lowering.extents import number_of
from ..lowering.open_index import OpenIndices, Polynomial
from ..lowering.samples import Extent, is_open, sampled
from ..workload import ConvWorkload
from .access import Access, strip_cast, variables
from .conv import ConvProgram, roles
from .evaluate import evaluate
from .function import SumOfProducts, refuse, sum_of_products
from .padding import without_padding
from .program import acc_dtype, operand_types, write_back

_FROM_BELOW = (tirx.LE, tirx.LT)
_ORDERS = (*_FROM_BELOW, tirx.GE, tirx.GT)


@dataclass(frozen=True)
class OpenConvProgram(ConvProgram):
    """A convolution of images of dynamic shape; `workload` has them at the sample."""

    images: Extent
    size: tuple[Extent, Extent]  # rows and columns of the input
    points: tuple[Extent, Extent]  # rows and columns of the output

    def workloads(self, factors: Sequence[float]) -> list[ConvWorkload]:
        """The workload with its dynamic sizes multiplied by each factor."""
        w = self.workload
        (high, wide), (rows, columns) = (w.h, w.w), map(is_open, self.size)
        return [
            replace(w, h=round(high * factor) if rows else high, w=round(wide * factor) if columns else wide)
            for factor in factors
        ]


def match_open_conv(func: tirx.PrimFunc, name: str = "main") -> OpenConvProgram:
    """Match the convolution of dynamic images in `func`. Raises UnsupportedOperator with the condition that is not
    met."""
    found = sum_of_products(func, name, may_open=True)
    expr, kernels = roles(found)
    inside, conditions = without_padding(name, expr, found.extents)
    load, weights = strip_cast(inside), strip_cast(kernels)
    if not isinstance(load, TensorLoad) or not isinstance(weights, TensorLoad):
        raise refuse(
            name, "its input or its kernels are computed; with images of dynamic shape, both must be plain tensors"
        )
    if len(load.indices) != 4 or len(load.source.strides):
        raise refuse(name, "its images are not compact four-dimensional tensors")
    image, row, column, channel = load.indices
    own = {v for v in found.spatial if v not in variables(weights, found.extents)}
    if not isinstance(image, tirx.Var) or image not in own:
        raise refuse(name, "its input is not indexed by an image, a row, a column and a channel, in this order")
    summed = _summed_channels(name, channel, load, weights, found)
    places = OpenIndices([(v, found.sizes[v]) for v in found.extents])
    axes = [_axis(places, index, found, own - {image}) for index in (row, column)]
    if any(axis is None for axis in axes):
        raise refuse(name, "its rows or columns are not read at stride * row + dilation * tap - border")
    high, wide = (axis for axis in axes if axis is not None)
    _check_conditions(name, places, conditions, load)
    out_channels = tuple(v for v in found.spatial if v not in own)
    if not found.opened.keys() <= own or is_open(load.source.shape[3]):
        raise refuse(name, "its channels or taps are dynamic; expected dynamic images, rows and columns")
    if {*found.reduce} != {summed, high.tap, wide.tap} or len(out_channels) != 1 or len(own) != 3:
        raise refuse(name, "it has axes other than images, rows, columns, two taps and channels")
    if not all(isinstance(index, tirx.Var) for index in weights.indices):
        raise refuse(name, "its kernels are not indexed by taps and channels")
    out, indices, value = write_back(name, found.block, found.epilogue)
    if not indices or not indices[-1].same_as(out_channels[0]):
        raise refuse(name, "its output does not have channels last")
    out_axes = ((image,), (), (high.row,), (wide.row,), out_channels)
    sizes = found.sizes
    size = tuple(number_of(extent) for extent in load.source.shape[1:3])
    depth = tirx.Var("d", "int64")
    workload = _workload(found, load, weights, (high, wide), found.extents[summed])
    here = tuple(tirx.Var(axis, "int64") for axis in "nhwc")
    read = tirx.BufferLoad(load.source, list(here))
    return OpenConvProgram(
        func=found.func,
        name=name,
        out=out,
        out_indices=indices,
        out_axes=out_axes,
        out_extents=tuple(tuple(sizes[v] for v in axis) for axis in out_axes),
        value=value,
        has_epilogue=found.epilogue is not None,
        workload=workload,
        input=Access(
            read,
            ((here[0],), (), *((v,) for v in here[1:])),
            ((sizes[image],), (), *((extent,) for extent in size), (workload.ci,)),
            str(read.ty),
            None,
            None,
        ),
        kernel=Access(
            weights,
            (out_channels, (depth,), (high.tap,), (wide.tap,), (summed,)),
            ((workload.co,), (1,), (workload.kh,), (workload.kw,), (workload.ci // workload.groups,)),
            str(weights.ty),
            None,
            None,
        ),
        x=load.source,
        w=weights.source,
        x_strides=None,
        channel_run=workload.ci,
        out_strides=None,
        out_run=workload.co,
        has_taps=True,
        images=sizes[image],
        size=(size[0], size[1]),
        points=(sizes[high.row], sizes[wide.row]),
    )


@dataclass(frozen=True)
class _Axis:
    """The input rows: stride * row + dilation * tap - border."""

    row: tirx.Var
    tap: tirx.Var
    stride: int
    dilation: int
    border: int


def _axis(places: OpenIndices, index: tirx.Expr, found: SumOfProducts, own: set[tirx.Var]) -> _Axis | None:
    held = variables(index, found.extents)
    rows, taps = [v for v in held if v in own], [v for v in held if v in found.reduce]
    if len(rows) != 1 or len(taps) != 1 or len(held) != 2:
        return None
    steps = places.steps(index, [rows[0], taps[0]])
    if steps is None or any(set(part) - {()} for part in (*steps[0], steps[1])):
        return None
    (stride, dilation), start = (part.get((), 0) for part in steps[0]), steps[1].get((), 0)
    return _Axis(rows[0], taps[0], stride, dilation, -start) if stride > 0 and dilation > 0 and start <= 0 else None


def _check_conditions(name: str, places: OpenIndices, conditions: Sequence[tirx.Expr], load: TensorLoad) -> None:
    """Reject an input that is zero anywhere except outside its image."""
    ends: list[Polynomial] = []
    for index, extent in zip(load.indices[1:3], load.source.shape[1:3], strict=True):
        ends += [places.polynomial(index), places.polynomial(extent - index - tirx.const(1, "int64"))]
    for condition in conditions:
        if not isinstance(condition, _ORDERS) or not {str(condition.a.ty), str(condition.b.ty)} <= {"int32", "int64"}:
            raise refuse(name, "its input is zero under a condition other than being outside an image")
        low, high = (condition.a, condition.b) if isinstance(condition, _FROM_BELOW) else (condition.b, condition.a)
        strict = isinstance(condition, (tirx.LT, tirx.GT))
        if places.polynomial(high - low - tirx.const(int(strict), "int64")) not in ends:
            raise refuse(name, "its input is zero under a condition other than being outside an image")


def _summed_channels(
    name: str, channel: tirx.Expr, load: TensorLoad, weights: TensorLoad, found: SumOfProducts
) -> tirx.Var:
    """The axis of the input channels of an output channel: the index of the channel itself, or, in groups, counted from
    the first channel of the output channel's group."""
    extents, size = found.extents, load.source.shape[3]
    summed = [v for v in variables(channel, extents) if v in found.reduce]
    if len(summed) == 1 and channel.same_as(summed[0]):
        return summed[0]
    out = [v for v in variables(weights, extents) if v in found.spatial]
    if len(summed) == 1 and len(out) == 1 and not is_open(size) and int(size) % extents[summed[0]] == 0:
        each = extents[summed[0]]
        groups, channels = int(size) // each, extents[out[0]]
        o, c = np.ix_(np.arange(channels), np.arange(each))
        places = evaluate(channel, {out[0]: o, summed[0]: c})
        if channels % groups == 0 and places is not None and np.all(places == o // (channels // groups) * each + c):
            return summed[0]
    raise refuse(name, "its input is not indexed by an image, a row, a column and a channel, in this order")


def _workload(
    found: SumOfProducts, load: TensorLoad, weights: TensorLoad, axes: tuple[_Axis, _Axis], each: int
) -> ConvWorkload:
    """The workload at the sample; `each`: input channels of a group."""
    name, extents = found.name, found.extents
    types = operand_types(name, str(load.ty), str(weights.ty))
    high, wide = axes
    points = [sampled(found.sizes[axis.row]) for axis in axes]
    size = [sampled(number_of(extent)) for extent in load.source.shape[1:3]]
    kernel = [extents[axis.tap] for axis in axes]
    behind = [
        max(0, (count - 1) * axis.stride + (taps - 1) * axis.dilation - axis.border - before + 1)
        for axis, count, taps, before in zip(axes, points, kernel, size, strict=True)
    ]
    ci = int(load.source.shape[3])
    try:
        made = ConvWorkload(
            n=sampled(found.sizes[load.indices[0]]),
            h=size[0],
            w=size[1],
            ci=ci,
            co=next(extents[v] for v in found.spatial if v in variables(weights, extents)),
            kh=kernel[0],
            kw=kernel[1],
            stride=(high.stride, wide.stride),
            padding=(high.border, wide.border, behind[0], behind[1]),
            dilation=(high.dilation, wide.dilation),
            groups=ci // each,
            **types,
            acc_dtype=acc_dtype(name, types, found.sum_type, kernel[0] * kernel[1] * each),
            layout="NHWC",
        )
    except WorkloadError as error:
        raise refuse(name, str(error)) from error
    if [made.ho, made.wo] != points:
        raise refuse(name, "its output is smaller than its windows imply")
    return made
