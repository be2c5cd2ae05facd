"""Convolutions and unpooling of ONNX, in the variants that TVM's importer lacks or reads differently."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ..open_shapes import whole
from .indexing import positions
from .pools import windows_of
from .tensors import as_inputs, known, rank_of, shape_of, spatial_of


def _constant_ints(value: relax.Expr, called: str) -> list[int]:
    numbers = known(value)
    if numbers is None:
        raise ValueError(f"{called} has to be known at compile time")
    return [int(number) for number in numbers.reshape(-1)]


# Layouts of data and weights, by the number of spatial axes.
_LAYOUTS = {1: ("NCW", "OIW"), 2: ("NCHW", "OIHW"), 3: ("NCDHW", "OIDHW")}


class Conv(tvm_onnx.OnnxOpConverter):
    """Convolution over one to three spatial axes; the kernel may not exceed the padded image."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data, weights, bias = inputs[:3]
        result = convolution(data, weights, attr)
        if bias is None:
            return result
        return op.add(bb.emit(result), bb.emit(op.reshape(bias, [1, -1] + [1] * (rank_of(data) - 2))))


def convolution(data: relax.Expr, weights: relax.Expr, attr: dict[str, Any], out_dtype: str = "") -> relax.Expr:
    """The convolution that a node's attributes describe. Raises ValueError if they are invalid."""
    spatial, kernel = [whole(extent) for extent in data.ty.shape.values[2:]], shape_of(weights)[2:]
    rank = len(spatial)
    if rank not in _LAYOUTS or len(kernel) != rank:
        raise ValueError(f"images of {rank} axes with kernels of {len(kernel)} axes are not supported; expected 1 to 3")
    strides, dilations = (list(attr.get(name, [1] * rank)) for name in ("strides", "dilations"))
    if all(isinstance(extent, int) for extent in spatial):
        windows = windows_of({**attr, "kernel_shape": kernel, "ceil_mode": 0}, spatial)
        padding = [w.before for w in windows] + [w.after for w in windows]
    else:
        padding = list(attr["pads"])  # set by open_windows.py
    layout, stored = _LAYOUTS[rank]
    return getattr(op.nn, f"conv{rank}d")(
        data,
        weights,
        strides=strides,
        padding=padding,
        dilation=dilations,
        groups=attr.get("group", 1),
        data_layout=layout,
        kernel_layout=stored,
        out_dtype=out_dtype or None,
    )


class ConvTranspose(tvm_onnx.ConvTranspose):
    """Transposed convolution; output_shape determines the padding."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        if "output_shape" not in attr:
            return super()._impl_v1(bb, inputs, attr, params)
        spatial = shape_of(inputs[0])[2:]
        kernel = attr.get("kernel_shape") or shape_of(inputs[1])[2:]
        rank = len(spatial)
        strides, dilations = (attr.get(name, [1] * rank) for name in ("strides", "dilations"))
        extra = list(attr.get("output_padding", [0] * rank))
        begin, end = [], []
        for i, wanted in enumerate(list(attr["output_shape"])[-rank:]):
            total = strides[i] * (spatial[i] - 1) + (kernel[i] - 1) * dilations[i] + 1 + extra[i] - wanted
            if total < 0:
                # The requested output exceeds the windows: append zeros, as output_padding does.
                extra[i], total = extra[i] - total, 0
            # The odd element of padding goes at the end only with SAME_UPPER.
            begin.append(total // 2 if attr.get("auto_pad") == b"SAME_UPPER" else total - total // 2)
            end.append(total - begin[i])
        # TVM's operator appends fewer zeros than its stride.
        close = [min(more, stride - 1) for more, stride in zip(extra, strides, strict=True)]
        given = {name: value for name, value in attr.items() if name not in ("output_shape", "auto_pad")}
        given |= {"pads": begin + end, "output_padding": close}
        result = bb.emit(super()._impl_v1(bb, as_inputs(inputs[0], inputs[1], None), given, params))
        beyond = [number for more, few in zip(extra, close, strict=True) for number in (0, more - few)]
        if any(beyond):
            result = bb.emit(op.nn.pad(result, [0, 0, 0, 0, *beyond]))
        return result if inputs[2] is None else result + bb.emit(op.reshape(inputs[2], [1, -1] + [1] * rank))


class MaxUnpool(tvm_onnx.MaxUnpool):
    """Unpooling; with an output shape, elements keep the row and column that their index denotes in the smaller
    image."""

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        image = bb.normalize(super()._impl_v9(bb, as_inputs(inputs[0], inputs[1], None), attr, params))
        elements = int(np.prod(shape_of(image)))
        inputs[1] = positions(bb, inputs[1], elements, attr, wraps=False)
        if inputs[2] is None:
            return super()._impl_v9(bb, inputs, attr, params)
        wanted = _constant_ints(inputs[2], "the shape of the output")
        plain = bb.normalize(super()._impl_v9(bb, as_inputs(inputs[0], inputs[1], None), attr, params))
        has = shape_of(plain)
        if any(new < old for new, old in zip(wanted, has, strict=True)):
            raise ValueError(f"output shape {wanted} is smaller than {has}")
        # Padding pairs for TVM, per axis: nothing before, the rest after.
        pads = [number for new, old in zip(wanted, has, strict=True) for number in (0, new - old)]
        return op.nn.pad(plain, pads)


class Col2Im(tvm_onnx.OnnxOpConverter):
    """Sums of overlapping blocks: each pixel gathers the values of the blocks that cover it."""

    @classmethod
    def _impl_v18(cls, bb, inputs, attr, params):
        image = _constant_ints(inputs[1], "the shape of the image")
        block = _constant_ints(inputs[2], "the shape of a block")
        rank = len(image)
        strides, dilations = (list(attr.get(name, [1] * rank)) for name in ("strides", "dilations"))
        pads = list(attr.get("pads", [0] * (2 * rank)))
        batch, rows = inputs[0].ty.shape[0], int(inputs[0].ty.shape[1])
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
    """Deformable convolution: bilinear samples at individual offsets, followed by one matrix multiplication."""

    @classmethod
    def _impl_v19(cls, bb, inputs, attr, params):
        x, w, offset, bias, mask = inputs[:5]
        n = x.ty.shape[0]
        channels, height, width = (int(extent) for extent in x.ty.shape.values[1:])
        outputs, _, kh, kw = shape_of(w)
        oh, ow = spatial_of(offset)
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


CONVERTERS: dict[str, Any] = {
    "Col2Im": Col2Im,
    "Conv": Conv,
    "ConvTranspose": ConvTranspose,
    "DeformConv": DeformConv,
    "MaxUnpool": MaxUnpool,
}
