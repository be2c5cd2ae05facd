"""Slice, Split and Pad of ONNX, including parts without elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, sym, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ...limits import MAX_EXTENT
from .tensors import as_inputs, constant


def _known(value: relax.Expr | None) -> list[int] | None:
    return None if value is None else [int(number) for number in value.value.numpy().reshape(-1)]


def clamped(start: int, end: int, step: int, extent: int) -> tuple[int, int]:
    """Start and end of a slice within an axis, clamped as in the standard; equal if the slice is empty."""
    start, end = (place + extent if place < 0 else place for place in (start, end))
    if step > 0:
        first, last = min(max(start, 0), extent), min(max(end, 0), extent)
        return first, max(first, last)
    first, last = min(max(start, 0), extent - 1), min(max(end, -1), extent - 1)
    if last >= first:
        return max(first, 0), max(first, 0)
    # Before the first element: -1 would count from the end.
    return first, last if last >= 0 else -extent - 1


def _open_slice(bb: relax.BlockBuilder, data: relax.Expr, axis: int, given: tuple[int, int, int]) -> relax.Expr:
    """[start, end) with a step along a dynamic axis; a negative step slices the reversed axis."""
    start, end, step = given
    extent = data.ty.shape[axis]
    zero, most = tirx.const(0, "int64"), extent
    if step > 0:
        first, last = (tirx.const(place, "int64") if place >= 0 else extent + place for place in (start, end))
    else:
        data = bb.emit(op.flip(data, axis))
        first, last = (tirx.const(-1 - place, "int64") if place < 0 else extent - 1 - place for place in (start, end))
        most = tirx.max(extent - 1, zero)
    first = tirx.min(tirx.max(first, zero), most)
    last = tirx.max(_within(tirx.max(last, zero), extent), first)
    analyzer = sym.Analyzer()
    bounds = [analyzer.simplify(first)], [analyzer.simplify(last)]
    return op.strided_slice(data, [axis], *bounds, [abs(step)], assume_inbound=True)


def _within(end: tirx.Expr, extent: tirx.Expr) -> tirx.Expr:
    """The minimum of both: the extent itself if no extent reaches the end, so that the two are known to be equal."""
    reached = not isinstance(end, tirx.IntImm) or int(end) < MAX_EXTENT
    return tirx.min(end, extent) if reached else extent


class Slice(tvm_onnx.Slice):
    """Slice 1 (starts, ends and axes are attributes) and later versions (they are inputs)."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        axes = attr.get("axes")
        given = (constant(attr["starts"]), constant(attr["ends"]), None if axes is None else constant(axes))
        return cls._impl_v13(bb, as_inputs(inputs[0], *given), attr, params)

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        return cls._impl_v13(bb, inputs, attr, params)

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        data, bounds = inputs[0], inputs[1:5]
        if not all(value is None or isinstance(value, tvm.ir.GenericConst) for value in bounds):
            return super()._impl_v13(bb, inputs, attr, params)
        if not isinstance(data, relax.Expr) or not isinstance(data.ty, relax.TensorType):
            return super()._impl_v13(bb, inputs, attr, params)
        starts, ends, axes, steps = (_known(value) for value in bounds)
        assert starts is not None and ends is not None
        rank = len(data.ty.shape)
        axes = list(range(len(starts))) if axes is None else [axis % rank for axis in axes]
        steps = [1] * len(starts) if steps is None else steps
        if not len(starts) == len(ends) == len(axes) == len(steps) == len(set(axes)):
            raise ValueError(
                f"{len(starts)} starts, {len(ends)} ends, {len(set(axes))} distinct axes and {len(steps)} steps "
                "are given; expected equal counts"
            )
        if 0 in steps:
            raise ValueError("a step is 0; expected nonzero numbers")
        ranges = []
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            extent = data.ty.shape[axis]
            if isinstance(extent, tirx.IntImm):
                ranges.append((axis, *clamped(start, end, step, int(extent)), step))
            else:
                data = bb.emit(_open_slice(bb, data, axis, (start, end, step)))
        return op.strided_slice(data, *([part[place] for part in ranges] for place in range(4))) if ranges else data


class Split(tvm_onnx.OnnxOpConverter):
    """Parts along an axis: of given sizes, or as equal as possible with a smaller last one."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return cls._parts(bb, inputs[0], attr, attr.get("split"))

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        if inputs[1] is not None and not isinstance(inputs[1], tvm.ir.GenericConst):
            raise ValueError("the sizes of the parts have to be known at compile time")
        return cls._parts(bb, inputs[0], attr, _known(inputs[1]))

    @classmethod
    def _parts(cls, bb: relax.BlockBuilder, data: relax.Expr, attr: dict, sizes: list[int] | None) -> relax.Expr:
        axis = attr.get("axis", 0) % len(data.ty.shape)
        extent = int(data.ty.shape[axis])
        if sizes is None:
            count = attr.get("num_outputs", attr["tvm_custom"]["num_outputs"])
            size = -(-extent // count)
            sizes = [max(0, min(size, extent - size * place)) for place in range(count)]
        if min(sizes) < 0 or sum(sizes) != extent:
            raise ValueError(f"parts have sizes {sizes}; expected sizes from 0 that add up to {extent}")
        if len(sizes) == 1:
            return relax.Tuple([data])
        ends = np.cumsum(sizes)
        if min(sizes) > 0:
            parts = bb.emit(op.split(data, [int(end) for end in ends[:-1]], axis))
            return relax.Tuple([bb.emit(relax.TupleGetItem(parts, place)) for place in range(len(sizes))])
        bounds = zip(ends - sizes, ends, strict=True)
        return relax.Tuple([bb.emit(op.strided_slice(data, [axis], [int(a)], [int(b)])) for a, b in bounds])


class Pad(tvm_onnx.Pad):
    """Padding with constant pads, value and axes."""

    @classmethod
    def _parse_pads_and_axes(cls, inputs, params):
        for name, value in zip(("pads", "elements", "axes"), list(inputs)[1:], strict=False):
            if value is not None and not isinstance(tvm_onnx.get_constant(value, params), tvm.ir.GenericConst):
                raise ValueError(f"{name} have to be known at compile time")
        return super()._parse_pads_and_axes(inputs, params)


CONVERTERS: dict[str, Any] = {"Pad": Pad, "Slice": Slice, "Split": Split}
