"""Convolutions and pools of ONNX in the forms that TVM's importer lacks: all of them walk windows over an image."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from .versions import as_inputs


def _constant_ints(value: relax.Expr, called: str) -> list[int]:
    if not isinstance(value, tvm.ir.GenericConst):
        raise ValueError(f"{called} has to be known before the run")
    return [int(number) for number in value.value.numpy().reshape(-1)]


class ConvTranspose(tvm_onnx.ConvTranspose):
    """With output_shape the padding follows from it."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        if "output_shape" not in attr:
            return super()._impl_v1(bb, inputs, attr, params)
        spatial = [int(extent) for extent in inputs[0].ty.shape][2:]
        kernel = attr.get("kernel_shape") or [int(extent) for extent in inputs[1].ty.shape][2:]
        rank = len(spatial)
        strides, dilations = (attr.get(name, [1] * rank) for name in ("strides", "dilations"))
        extra = list(attr.get("output_padding", [0] * rank))
        wanted = list(attr["output_shape"])[-rank:]
        begin, end = [], []
        for i in range(rank):
            full = strides[i] * (spatial[i] - 1) + (kernel[i] - 1) * dilations[i] + 1
            total = full + extra[i] - wanted[i]
            if total < 0:
                # More is asked for than the windows reach: zeros behind, as by output_padding.
                extra[i], total = extra[i] - total, 0
            small = total // 2
            first = total - small if attr.get("auto_pad", b"NOTSET") in (b"SAME_LOWER", b"NOTSET") else small
            begin.append(first if attr.get("auto_pad") == b"SAME_LOWER" else small)
            end.append(total - begin[-1])
        given = {name: value for name, value in attr.items() if name not in ("output_shape", "auto_pad")}
        return super()._impl_v1(bb, inputs, {**given, "pads": begin + end, "output_padding": extra}, params)


class MaxPool(tvm_onnx.MaxPool):
    """With indices of the largest elements, where they are asked for."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        if attr["tvm_custom"]["num_outputs"] == 1:
            return super()._impl_v1(bb, inputs, attr, params)
        result = bb.normalize(super()._impl_v1(bb, inputs, attr, params))
        data, kernel = inputs[0], list(attr["kernel_shape"])
        rank = len(kernel)
        strides, dilations = (list(attr.get(name, [1] * rank)) for name in ("strides", "dilations"))
        spatial = [int(extent) for extent in data.ty.shape][2:]
        out = [int(extent) for extent in result.ty.shape][2:]
        pads = cls._begin(attr, spatial, out, kernel, strides, dilations)
        column_major = bool(attr.get("storage_order", 0))

        def indices(x: te.Tensor, best: te.Tensor) -> te.Tensor:
            taps = [te.reduce_axis((0, extent), name=f"k{i}") for i, extent in enumerate(kernel)]
            planes = int(np.prod(spatial))
            none = tirx.const(2**63 - 1, "int64")

            def element(*at: Any) -> Any:
                place = [at[2 + i] * strides[i] + taps[i] * dilations[i] - pads[i] for i in range(rank)]
                inside = tirx.all(*[tirx.all(p >= 0, p < extent) for p, extent in zip(place, spatial, strict=True)])
                clipped = [tirx.max(tirx.min(p, extent - 1), 0) for p, extent in zip(place, spatial, strict=True)]
                flat: Any = tirx.const(0, "int64")
                for i in reversed(range(rank)) if column_major else range(rank):
                    flat = flat * spatial[i] + tirx.Cast("int64", place[i])
                flat = flat + (tirx.Cast("int64", at[0]) * int(x.shape[1]) + tirx.Cast("int64", at[1])) * planes
                hit = tirx.all(inside, x[tuple([*at[:2], *clipped])] == best[at])
                return te.min(tirx.Select(hit, flat, none), axis=taps)

            return te.compute(best.shape, element, name="indices")

        return relax.Tuple([result, bb.emit_te(indices, data, result, primfunc_name_hint="pool_indices")])

    @classmethod
    def _begin(cls, attr: dict, spatial: list, out: list, kernel: list, strides: list, dilations: list) -> list[int]:
        """Padding before each axis."""
        auto = attr.get("auto_pad", b"NOTSET").decode()
        if auto not in ("SAME_UPPER", "SAME_LOWER"):
            none = [0] * (2 * len(kernel))
            return list(attr.get("pads", none) if auto == "NOTSET" else none)[: len(kernel)]
        totals = [
            max((out[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - spatial[i], 0)
            for i in range(len(kernel))
        ]
        return [total // 2 if auto == "SAME_UPPER" else total - total // 2 for total in totals]


class MaxUnpool(tvm_onnx.MaxUnpool):
    """With an output shape the elements keep the rows and columns that their indices mean in the smaller image."""

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        if inputs[2] is None:
            return super()._impl_v9(bb, inputs, attr, params)
        wanted = _constant_ints(inputs[2], "the shape of the output")
        plain = bb.normalize(super()._impl_v9(bb, as_inputs(inputs[0], inputs[1], None), attr, params))
        has = [int(extent) for extent in plain.ty.shape]
        if any(new < old for new, old in zip(wanted, has, strict=True)):
            raise ValueError(f"output shape {wanted} is smaller than {has}")
        # Pairs for TVM: nothing before, the rest behind, axis by axis.
        pads = [number for new, old in zip(wanted, has, strict=True) for number in (0, new - old)]
        return op.nn.pad(plain, pads)


class Col2Im(tvm_onnx.OnnxOpConverter):
    """Sums of overlapping blocks: each pixel gathers what the blocks over it hold."""

    @classmethod
    def _impl_v18(cls, bb, inputs, attr, params):
        image = _constant_ints(inputs[1], "the shape of the image")
        block = _constant_ints(inputs[2], "the shape of a block")
        rank = len(image)
        strides, dilations = (list(attr.get(name, [1] * rank)) for name in ("strides", "dilations"))
        pads = list(attr.get("pads", [0] * (2 * rank)))
        batch, rows, _ = (int(extent) for extent in inputs[0].ty.shape)
        taps = int(np.prod(block))
        counts = [
            (image[i] + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
            for i in range(rank)
        ]

        def gather(x: te.Tensor) -> te.Tensor:
            axes = [te.reduce_axis((0, extent), name=f"k{i}") for i, extent in enumerate(block)]

            def element(*at: Any) -> Any:
                row: Any = at[1]
                column: Any = tirx.const(0, "int32")
                fits: list[Any] = []
                for i in range(rank):
                    offset = at[2 + i] + pads[i] - axes[i] * dilations[i]
                    place = tirx.floordiv(offset, strides[i])
                    fits += [offset >= 0, tirx.floormod(offset, strides[i]) == 0, place < counts[i]]
                    row = row * block[i] + axes[i]
                    column = column * counts[i] + tirx.max(tirx.min(place, counts[i] - 1), 0)
                zero = tirx.const(0, x.dtype)
                return te.sum(tirx.if_then_else(tirx.all(*fits), x[at[0], row, column], zero), axis=axes)

            return te.compute((batch, rows // taps, *image), element, name="col2im")

        return bb.emit_te(gather, inputs[0])


class DeformConv(tvm_onnx.OnnxOpConverter):
    """A convolution whose taps lie at offsets of their own: samples between pixels, then one product."""

    @classmethod
    def _impl_v19(cls, bb, inputs, attr, params):
        x, w, offset, bias, mask = inputs[:5]
        n, channels, height, width = (int(extent) for extent in x.ty.shape)
        outputs, _, kh, kw = (int(extent) for extent in w.ty.shape)
        _, _, oh, ow = (int(extent) for extent in offset.ty.shape)
        groups, parts = attr.get("group", 1), attr.get("offset_group", 1)
        strides, dilations = (list(attr.get(name, [1, 1])) for name in ("strides", "dilations"))
        pads = list(attr.get("pads", [0] * 4))
        share = channels // parts

        def sample(data: te.Tensor, moved: te.Tensor, *scaled: te.Tensor) -> te.Tensor:
            def element(b: Any, c: Any, tap: Any, i: Any, j: Any) -> Any:
                group = tirx.floordiv(c, share) * (kh * kw) + tap
                dy, dx = moved[b, 2 * group, i, j], moved[b, 2 * group + 1, i, j]
                row = i * strides[0] - pads[0] + tirx.floordiv(tap, kw) * dilations[0]
                column = j * strides[1] - pads[1] + tirx.floormod(tap, kw) * dilations[1]
                y, z = tirx.Cast(data.dtype, row) + dy, tirx.Cast(data.dtype, column) + dx
                top, left = tirx.floor(y), tirx.floor(z)
                total: Any = tirx.const(0, data.dtype)
                for down in (0, 1):
                    for right in (0, 1):
                        r, s = tirx.Cast("int32", top) + down, tirx.Cast("int32", left) + right
                        inside = tirx.all(r >= 0, r < height, s >= 0, s < width)
                        near = (1 - abs_(y - tirx.Cast(data.dtype, r))) * (1 - abs_(z - tirx.Cast(data.dtype, s)))
                        at = data[b, c, clip(r, height), clip(s, width)]
                        total = total + tirx.if_then_else(inside, at * near, tirx.const(0, data.dtype))
                return total * scaled[0][b, group, i, j] if scaled else total

            return te.compute((n, channels, kh * kw, oh, ow), element, name="sample")

        def abs_(value: Any) -> Any:
            return tirx.abs(value)

        def clip(value: Any, extent: int) -> Any:
            return tirx.max(tirx.min(value, extent - 1), 0)

        sampled = bb.emit_te(sample, x, offset, *([] if mask is None else [mask]), primfunc_name_hint="deformed")
        columns = bb.emit(op.reshape(sampled, (n, groups, channels // groups * kh * kw, oh * ow)))
        kernels = bb.emit(op.reshape(w, (groups, outputs // groups, channels // groups * kh * kw)))
        result = bb.emit(op.reshape(op.matmul(kernels, columns), (n, outputs, oh, ow)))
        return result if bias is None else result + bb.emit(op.reshape(bias, (1, -1, 1, 1)))


class RoiAlign(tvm_onnx.RoiAlign):
    """Of averages; the largest sample is another thing in TVM than in ONNX."""

    @classmethod
    def _impl(cls, bb, inputs, attr, params, default_coordinate_transformation_mode):
        if attr.get("mode", b"avg") != b"avg":
            raise ValueError("mode is 'max'; accepted: 'avg'")
        return super()._impl(bb, inputs, attr, params, default_coordinate_transformation_mode)


CONVERTERS: dict[str, Any] = {
    "Col2Im": Col2Im,
    "ConvTranspose": ConvTranspose,
    "DeformConv": DeformConv,
    "MaxPool": MaxPool,
    "MaxUnpool": MaxUnpool,
    "RoiAlign": RoiAlign,
}
