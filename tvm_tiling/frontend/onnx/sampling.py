"""GridSample and RoiAlign of ONNX: output pixels sample an image at computed positions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from .indexing import positions
from .tensors import dtype_of, rank_of


class GridSample(tvm_onnx.GridSample):
    """GridSample; along an axis of one pixel, every sample is that pixel if corners are aligned and the image is
    reflected."""

    @classmethod
    def _impl_v16(cls, bb, inputs, attr, params):
        data = inputs[0]
        if dtype_of(data) == "float16":
            wide = [bb.emit(op.astype(value, "float32")) for value in inputs[:2]]
            return op.astype(bb.emit(cls._impl_v16(bb, wide, attr, params)), "float16")
        if attr.get("align_corners", 0) and attr.get("padding_mode", b"zeros") == b"reflection":
            # TVM divides by the distance from the first to the last pixel: duplicate a single pixel to have one.
            for axis in range(2, rank_of(data)):
                if int(data.ty.shape[axis]) == 1:
                    data = bb.emit(op.concat([data, data], axis=axis))
        return super()._impl_v16(bb, tvm_onnx.onnx_input([data, *inputs[1:]]), attr, params)


class RoiAlign(tvm_onnx.OnnxOpConverter):
    """Averages of samples, or the largest contribution of any pixel to one."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        return cls._aligned(bb, inputs, attr, b"output_half_pixel")

    @classmethod
    def _impl_v16(cls, bb, inputs, attr, params):
        return cls._aligned(bb, inputs, attr, b"half_pixel")

    @classmethod
    def _aligned(cls, bb: relax.BlockBuilder, inputs: list, attr: dict[str, Any], default: bytes) -> relax.Expr:
        data, rois, batch = inputs[:3]
        mode = attr.get("mode", b"avg")
        if mode not in (b"avg", b"max"):
            raise ValueError(f"mode is {mode!r}; expected avg, max")
        place = attr.get("coordinate_transformation_mode", default)
        if place not in (b"half_pixel", b"output_half_pixel"):
            raise ValueError(f"coordinate_transformation_mode is {place!r}; expected half_pixel, output_half_pixel")
        sampled = RoiSamples(
            height=attr.get("output_height", 1),
            width=attr.get("output_width", 1),
            ratio=attr.get("sampling_ratio", 0),
            scale=attr.get("spatial_scale", 1.0),
            half_pixel=place == b"half_pixel",
            largest=mode == b"max",
        )
        numbers = bb.emit(op.astype(positions(bb, batch, data.ty.shape[0], attr, wraps=False), "int32"))
        return bb.emit_te(sampled.bins, data, rois, numbers, primfunc_name_hint="roi_align")


@dataclass(frozen=True)
class RoiSamples:
    """Sampling positions of a RoiAlign: each region has `height` x `width` bins with `ratio` x `ratio` samples each,
    or, for ratio 0, as many as the bin has pixels. Regions are multiplied by `scale`. An empty bin, which TVM's
    operator leaves uninitialised, is 0. A bin is the average of its samples, or with `largest` the largest product of a
    pixel and its weight in any of them, as in the standard's reference implementation and unlike TVM's operator."""

    height: int
    width: int
    ratio: int
    scale: float
    half_pixel: bool
    largest: bool

    def bins(self, data: te.Tensor, rois: te.Tensor, batch: te.Tensor) -> te.Tensor:
        """All bins: regions x channels x height x width."""
        dtype = str(data.dtype)
        extents = list(data.shape[2:])
        bins = (self.height, self.width)

        def number(value: float) -> Any:
            return tirx.const(value, dtype)

        def sides(region: Any) -> list[tuple[Any, Any]]:
            """For height and width: the start of the region and the size of a bin."""
            found = []
            for first, count in ((1, bins[0]), (0, bins[1])):
                start, end = (rois[region, first + 2 * k] * number(self.scale) for k in (0, 1))
                if self.half_pixel:
                    start, end = start - number(0.5), end - number(0.5)
                length = end - start if self.half_pixel else tirx.max(end - start, number(1.0))
                found.append((start, length / number(count)))
            return found

        def samples(size: Any) -> Any:
            if self.ratio > 0:
                return tirx.const(self.ratio, "int32")
            return tirx.max(tirx.Cast("int32", tirx.ceil(size)), tirx.const(1, "int32"))

        def element(region: Any, channel: Any, row: Any, column: Any) -> Any:
            places = sides(region)
            counts = [samples(size) for _, size in places]
            taps = [te.reduce_axis((0, count), name=f"s{axis}") for axis, count in enumerate(counts)]
            at, filled = [], []
            for (start, size), step, tap, count in zip(places, (row, column), taps, counts, strict=True):
                within = (tirx.Cast(dtype, tap.var) + number(0.5)) / tirx.Cast(dtype, count)
                at.append(start + (tirx.Cast(dtype, step) + within) * size)
                filled += [] if self.ratio > 0 else [size > number(0.0)]
            value = between(data, (batch[region], channel), at, extents, tirx.max if self.largest else operator.add)
            if filled:
                value = tirx.if_then_else(tirx.all(*filled), value, number(0.0))
            if self.largest:
                return te.max(value, axis=taps)
            return te.sum(value / tirx.Cast(dtype, counts[0] * counts[1]), axis=taps)

        return te.compute((rois.shape[0], data.shape[1], *bins), element, name="roi_align")


def between(
    data: te.Tensor, plane: tuple[Any, Any], at: list[Any], extents: list[Any], joined: Callable[[Any, Any], Any]
) -> Any:
    """The image `plane` at a position between its pixels; `joined` combines their weighted values. 0 if more than a
    pixel outside the image."""
    dtype = str(data.dtype)
    inside, lows, highs, parts = [], [], [], []
    for place, extent in zip(at, extents, strict=True):
        inside += [place >= tirx.const(-1.0, dtype), place <= tirx.Cast(dtype, extent)]
        kept = tirx.max(tirx.min(place, tirx.Cast(dtype, extent - 1)), tirx.const(0.0, dtype))
        low = tirx.Cast("int32", tirx.floor(kept))
        lows.append(low)
        highs.append(tirx.min(low + 1, tirx.Cast("int32", extent - 1)))
        parts.append(kept - tirx.floor(kept))
    (y, x), one = parts, tirx.const(1.0, dtype)
    corners = [[data[plane[0], plane[1], row, column] for column in (lows[1], highs[1])] for row in (lows[0], highs[0])]
    upper, lower = (joined(left * (one - x), right * x) for left, right in corners)
    return tirx.if_then_else(tirx.all(*inside), joined(upper * (one - y), lower * y), tirx.const(0.0, dtype))


CONVERTERS: dict[str, Any] = {"GridSample": GridSample, "RoiAlign": RoiAlign}
