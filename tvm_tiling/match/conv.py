"""Matching of the convolution in a PrimFunc: its operands by image coordinates, and the operators fused around it."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

import numpy as np
from tvm import tirx
from tvm.ir import TensorLoad

from ..errors import WorkloadError
from ..workload import LAYOUTS, ConvWorkload
from .access import Access, Index, address, linear_strides, loads, simplified, strip_cast, substitute, variables
from .conv_input import AxisAccess, Channels, ConvInput, by_channel_and_row, conv_input
from .evaluate import evaluate
from .function import SumOfProducts, refuse, sum_of_products
from .image_axis import ImageAxis
from .padding import without_padding
from .program import MatchedProgram, acc_dtype, operand_types, write_back


@dataclass(frozen=True)
class ConvProgram(MatchedProgram):
    """y[n, d, y, x, co] = sum over (kd, kh, kw, c) of input * kernel, then `result`. Axes of the output: n d y x co."""

    workload: ConvWorkload
    input: Access  # axes (n, d, h, w, c)
    kernel: Access  # axes (co, kd, kh, kw, c)
    x: tirx.Buffer | None  # the input buffer if its elements are plain loads, possibly with a lossless cast
    w: tirx.Buffer | None  # likewise for the kernels
    x_strides: tuple[int, ...] | None  # elements per step of (n, d, h, w, c) in x; None if not linear
    channel_run: int  # length of aligned runs of channels that are adjacent in x
    out_strides: tuple[int, ...] | None  # elements per step of (n, d, y, x, co) in out; None if not linear
    out_run: int  # like channel_run, for the output
    # written over taps, possibly a single one, or in groups; otherwise a matrix multiplication, possibly batched
    has_taps: bool

    def input_at(self, n: Index, d: Index, y: Index, x: Index, c: Index, dtype: str | None = None) -> tirx.Expr:
        """The input element at a point of the image (outside: padding) and channel c of all ci, cast to `dtype`."""
        return simplified(self.input.at(n, d, y, x, c, dtype=dtype))

    def weight_at(self, co: Index, kd: Index, kh: Index, kw: Index, c: Index, dtype: str | None = None) -> tirx.Expr:
        """The kernel element; c counts the ci / groups channels of co's group."""
        return simplified(self.kernel.at(co, kd, kh, kw, c, dtype=dtype))


def match_conv(func: tirx.PrimFunc, name: str = "main") -> ConvProgram:
    """Match the convolution in `func`. Raises UnsupportedOperator with the condition that is not met.

    A transposed convolution of stride 1 is a plain one with the rotated kernel, and is matched as such.
    """
    return conv_of(sum_of_products(func, name))


def conv_of(found: SumOfProducts) -> ConvProgram:
    """The convolution equivalent to a sum of products, like match_conv."""
    name, extents = found.name, found.extents
    expr, kernels = roles(found)
    both = variables(expr, extents) & variables(kernels, extents)
    if any(v not in both and extents[v] > 1 for v in found.reduce):
        raise refuse(name, "a reduction axis is missing from one operand")
    kernels, taps = _kernel_taps(name, kernels, found)
    source = conv_input(found, expr, kernels, taps)
    if set(taps) - {axis_access.tap for axis_access in source.axis_accesses}:
        raise refuse(name, "the kernels are zero under a condition that does not depend on a single tap")
    images, rows = _image_axes(name, source)
    return _program(found, source, kernels, images, rows)


def walks_over_images(found: SumOfProducts) -> bool:
    """Return whether an index of one factor contains both a result axis that the other factor lacks and a reduction
    axis."""
    held = [variables(e, found.extents) for e in (found.left, found.right)]
    return any(
        _moves(expr, {v for v in found.spatial if v in own and v not in other}, set(found.reduce))
        for expr, own, other in ((found.left, *held), (found.right, *held[::-1]))
    )


def roles(found: SumOfProducts) -> tuple[tirx.Expr, tirx.Expr]:
    """(input, kernels) of the two factors: the input is indexed by the result's own axes together with taps."""
    extents = found.extents
    held = [variables(e, extents) for e in (found.left, found.right)]

    def likeness(which: int) -> tuple[bool, int, bool]:
        own = {v for v in found.spatial if v in held[which] and v not in held[1 - which]}
        expr = (found.left, found.right)[which]
        return _moves(expr, own, set(found.reduce)), len(own), found.spatial[0] in own if found.spatial else False

    left, right = likeness(0), likeness(1)
    return (found.left, found.right) if left >= right else (found.right, found.left)


def _moves(expr: tirx.Expr, own: set[tirx.Var], reduce: set[tirx.Var]) -> bool:
    """Return whether an index of `expr` contains a result axis and a reduction axis."""
    return any(variables(i, own) and variables(i, reduce) for load in loads(expr) for i in load.indices)


def _kernel_taps(name: str, kernels: tirx.Expr, found: SumOfProducts) -> tuple[tirx.Expr, dict[tirx.Var, np.ndarray]]:
    """The kernels without the zeros between dilated taps, and the remaining taps by reduction axis."""
    inside, conditions = without_padding(name, kernels, found.extents)
    taps: dict[tirx.Var, np.ndarray] = {}
    for condition in conditions:
        held = variables(condition, found.extents)
        tap = next(iter(held))
        values = np.arange(found.extents[tap])
        holds = evaluate(condition, {tap: values})
        if held - {tap} or tap not in found.reduce or holds is None:
            raise refuse(name, "the kernels are zero under a condition that does not depend on a single tap")
        taps[tap] = taps.get(tap, np.ones(len(values), bool)) & holds
    return inside, taps


def _image_axes(name: str, source: ConvInput) -> tuple[list[AxisAccess], list[tuple[AxisAccess | None, ImageAxis]]]:
    """The batch axes, and those of depth, rows and columns."""
    axes = [axis_access.axis(transposed=False) for axis_access in source.axis_accesses]
    if any(isinstance(axis, str) for axis in axes):
        spread = [axis_access.axis(transposed=True) for axis_access in source.axis_accesses]
        for axis_access, axis, other in zip(source.axis_accesses, axes, spread, strict=True):
            if isinstance(other, str):
                why = axis if isinstance(axis, str) else other
                raise refuse(name, f"along {source.load.source.name}'s axis {axis_access.dim} {why}")
        axes = spread
    known = [
        (axis_access, axis)
        for axis_access, axis in zip(source.axis_accesses, axes, strict=True)
        if isinstance(axis, ImageAxis)
    ]
    plain = [
        axis_access
        for axis_access, axis in known
        if axis_access.tap is None and not axis_access.padded and axis.is_plain
    ]
    images = plain[: max(1, len(known) - 3)]
    rows: list[tuple[AxisAccess | None, ImageAxis]] = [
        (axis_access, axis) for axis_access, axis in known if axis_access not in images
    ]
    if len(rows) > 3:
        raise refuse(name, f"its kernels have {len(rows)} dimensions; at most three are supported")
    return images, [(None, ImageAxis(1, 1, 1))] * (3 - len(rows)) + rows


def _program(
    found: SumOfProducts,
    source: ConvInput,
    kernels: tirx.Expr,
    images: list[AxisAccess],
    rows: list[tuple[AxisAccess | None, ImageAxis]],
) -> ConvProgram:
    name, extents, channels = found.name, found.extents, source.channels
    counted = tuple(axis_access.row for axis_access in images)
    x = _input(name, source, images, rows, counted, extents)
    w = _kernels(name, kernels, rows, channels, extents)
    if x.dtype != w.dtype and {x.dtype, w.dtype} != {"int8", "uint8"}:
        # Of different types: use the converted factors of the source.
        x = _input(name, source, images, rows, counted, extents, converted=True)
        w = _kernels(name, kernels, rows, channels, extents, converted=True)
    out, indices, value = write_back(name, found.block, found.epilogue)
    of_rows = tuple((axis_access.row,) if axis_access is not None else () for axis_access, _ in rows)
    placed = {*counted, *channels.out, *(v for axis in of_rows for v in axis)}
    rest = tuple(v for v in found.spatial if v not in placed)
    if any(extents[v] > 1 for v in rest):
        raise refuse(name, "an axis of the result is in neither operand")
    out_axes = (counted + rest, *of_rows, channels.out)
    out_extents = tuple(tuple(extents[v] for v in axis) for axis in out_axes)
    stored = tirx.BufferLoad(out, indices)
    workload = _workload(found, source, x, w, prod(out_extents[0]), [axis for _, axis in rows])
    windowed = workload.transposed or any(axis != ImageAxis(axis.size, axis.points, 1) for _, axis in rows)
    return ConvProgram(
        func=found.func,
        name=name,
        out=out,
        out_indices=indices,
        out_axes=out_axes,
        out_extents=out_extents,
        value=value,
        has_epilogue=found.epilogue is not None,
        workload=workload,
        input=x,
        kernel=w,
        x=x.expr.source if isinstance(x.expr, TensorLoad) else None,
        w=w.expr.source if isinstance(w.expr, TensorLoad) else None,
        x_strides=x.strides,
        channel_run=_run(x.expr, x.axes[4], x.extents[4]) if isinstance(x.expr, TensorLoad) else 1,
        out_strides=linear_strides(stored, out_axes, out_extents),
        out_run=_run(stored, out_axes[4], out_extents[4]),
        has_taps=windowed
        or any(axis_access.tap is not None for axis_access in source.axis_accesses)
        or not channels.batched,
    )


def _input(
    name: str,
    source: ConvInput,
    images: list[AxisAccess],
    rows: list[tuple[AxisAccess | None, ImageAxis]],
    counted: tuple[tirx.Var, ...],
    extents: dict[tirx.Var, int],
    *,
    converted: bool = False,
) -> Access:
    """The input by (n, d, h, w, c), before or after its conversion to another type."""
    d, h, w, c = (tirx.Var(axis, "int32") for axis in "dhwc")
    axis_accesses = [
        (axis_access, ImageAxis(extents[v], extents[v], 1), v) for axis_access, v in zip(images, counted, strict=True)
    ]
    axis_accesses += [
        (axis_access, axis, v)
        for (axis_access, axis), v in zip(rows, (d, h, w), strict=True)
        if axis_access is not None
    ]
    expr = by_channel_and_row(name, source, axis_accesses, c)
    axes = (counted, (d,), (h,), (w,), (c,))
    sizes = (tuple(extents[v] for v in counted), *((axis.size,) for _, axis in rows), (source.channels.ci,))
    access = _access(expr if converted else strip_cast(expr), axes, sizes)
    if isinstance(access.expr, TensorLoad):
        _check_bounds(name, access.expr, {c: source.channels.ci})
    return access


def _kernels(
    name: str,
    expr: tirx.Expr,
    rows: list[tuple[AxisAccess | None, ImageAxis]],
    channels: Channels,
    extents: dict[tirx.Var, int],
    *,
    converted: bool = False,
) -> Access:
    """The kernels by (co, kd, kh, kw, c), before or after their conversion to another type."""
    taps = tuple(tirx.Var(f"k{axis}", "int32") for axis in "dhw")
    mapping = {
        axis_access.tap: axis.tap_first + axis.tap_step * tap
        for (axis_access, axis), tap in zip(rows, taps, strict=True)
        if axis_access is not None and axis_access.tap is not None
    }
    axes = (channels.out, *((tap,) for tap in taps), channels.summed)
    sizes = (
        tuple(extents[v] for v in channels.out),
        *((axis.kernel,) for _, axis in rows),
        tuple(extents[v] for v in channels.summed),
    )
    element = simplified(substitute(expr, mapping))
    access = _access(element if converted else strip_cast(element), axes, sizes)
    if isinstance(access.expr, TensorLoad):
        known = {v: n for axis, size in zip(axes, sizes, strict=True) for v, n in zip(axis, size, strict=True)}
        _check_bounds(name, access.expr, known)
    return access


def _access(expr: tirx.Expr, axes: tuple[tuple[tirx.Var, ...], ...], sizes: tuple[tuple[int, ...], ...]) -> Access:
    strides = linear_strides(expr, axes, sizes) if isinstance(expr, TensorLoad) else None
    return Access(expr, axes, sizes, str(expr.ty), expr.source if strides is not None else None, strides)


def _check_bounds(name: str, load: TensorLoad, extents: dict[tirx.Var, int]) -> None:
    """Reject a load that exceeds its buffer within `extents`."""
    for d, (index, size) in enumerate(zip(load.indices, load.source.shape, strict=True)):
        held = list(variables(index, extents))
        if not held:
            continue
        grids = np.ix_(*(np.arange(extents[v]) for v in held))
        value = evaluate(index, dict(zip(held, grids, strict=True)))
        if value is not None and (value.min() < 0 or value.max() >= int(size)):
            raise refuse(
                name, f"{load.source.name}'s axis {d} is read up to {int(value.max()) + 1}, but has {size} elements"
            )


def _run(load: TensorLoad, axis: tuple[tirx.Var, ...], sizes: tuple[int, ...]) -> int:
    """Length of the aligned runs along a fused axis that are adjacent in memory."""
    count = prod(sizes)
    place = address(load)
    grids = np.unravel_index(np.arange(count), sizes) if sizes else ()
    others = {v: np.asarray(0) for v in variables(place)}
    addresses = evaluate(place, others | dict(zip(axis, grids, strict=True)))
    if addresses is None:
        return 1
    breaks = np.flatnonzero(np.diff(np.broadcast_to(addresses, (count,))) != 1) + 1
    return gcd(count, *(int(b) for b in breaks))


def _workload(
    found: SumOfProducts, source: ConvInput, x: Access, w: Access, images: int, axes: list[ImageAxis]
) -> ConvWorkload:
    name, channels = found.name, source.channels
    deep, high, wide = axes
    types = operand_types(name, x.dtype, w.dtype)
    terms = deep.kernel * high.kernel * wide.kernel * (channels.ci // channels.groups)
    try:
        return ConvWorkload(
            n=images,
            h=high.size,
            w=wide.size,
            ci=channels.ci,
            co=channels.co,
            kh=high.kernel,
            kw=wide.kernel,
            stride=(high.stride, wide.stride),
            padding=(high.before, wide.before, high.behind, wide.behind),
            dilation=(high.dilation, wide.dilation),
            groups=channels.groups,
            **types,
            acc_dtype=acc_dtype(name, types, found.sum_type, terms),
            layout=_layout(source),
            d=deep.size,
            kd=deep.kernel,
            stride_d=deep.stride,
            padding_d=(deep.before, deep.behind),
            dilation_d=deep.dilation,
            transposed=any(axis.transposed for axis in axes),
            output_padding=(high.more, wide.more),
            output_padding_d=deep.more,
        )
    except WorkloadError as error:
        raise refuse(name, str(error)) from error


def _layout(source: ConvInput) -> str:
    """The workload's name for the dimension order of the input; NCHW for orders without a name."""
    rank = len(source.load.indices)
    walked = [axis_access.dim for axis_access in source.axis_accesses]
    held = source.channels.dims or tuple(d for d in range(rank) if d not in walked)
    if held and min(held) > max(walked, default=-1):
        return "NHWC"
    if not held or max(held) != rank - 1:
        return "NCHW"
    blocked = f"NCHW{int(source.load.source.shape[rank - 1])}c"
    return blocked if blocked in LAYOUTS else "NCHW"
