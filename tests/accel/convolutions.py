"""Convolutions for testing accelerator lowering: tensor expressions, and results computed by NumPy."""

from __future__ import annotations

import numpy as np
from tvm import te, topi

SUMS = {"int8": "int32", "int16": "int32", "float32": "float32", "float16": "float16", "bfloat16": "float32"}


def convolution(
    n=1, h=8, w=8, ci=8, co=8, kh=3, kw=3, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1, **options
):
    """Return y = conv(x, w) as a tensor expression; `layout` NCHW or NHWC, `dtype` of the operands."""
    layout, dtype = options.get("layout", "NHWC"), options.get("dtype", "int8")
    name = options.get("name", "y")
    shape = (n, h, w, ci) if layout == "NHWC" else (n, ci, h, w)
    x = te.placeholder(shape, name="x", dtype=dtype)
    k = te.placeholder(
        (kh, kw, ci // groups, co) if layout == "NHWC" else (co, ci // groups, kh, kw), name="w", dtype=dtype
    )
    top, left, bottom, right = padding
    border = [(top, bottom), (left, right)]
    pads = [(0, 0), *border, (0, 0)] if layout == "NHWC" else [(0, 0), (0, 0), *border]
    before, after = zip(*pads, strict=True)
    padded = topi.nn.pad(x, before, after, name="padded") if any(padding) else x
    ho, wo = (
        (size + sum(pad) - apart * (taps - 1) - 1) // step + 1
        for size, pad, apart, taps, step in zip((h, w), border, dilation, (kh, kw), stride, strict=True)
    )
    rc, rh, rw = (te.reduce_axis((0, size), name=axis) for size, axis in ((ci // groups, "c"), (kh, "r"), (kw, "s")))

    def element(b, y, z, o):
        group = o // (co // groups) * (ci // groups) if groups > 1 else 0
        row, column, channel = y * stride[0] + rh * dilation[0], z * stride[1] + rw * dilation[1], group + rc
        left_operand = padded[b, row, column, channel] if layout == "NHWC" else padded[b, channel, row, column]
        right_operand = k[rh, rw, rc, o] if layout == "NHWC" else k[o, rc, rh, rw]
        product = left_operand.astype(SUMS[dtype]) * right_operand.astype(SUMS[dtype])
        return te.sum(product, axis=[rc, rh, rw])

    if layout == "NHWC":
        return te.compute((n, ho, wo, co), element, name=name)
    return te.compute((n, co, ho, wo), lambda b, o, y, z: element(b, y, z, o), name=name)


def by_numpy(inputs, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1, layout="NHWC", **_):
    """Convolve arrays: exact for integers, in float64 otherwise."""
    x, k = inputs["x"], inputs["w"]
    whole = np.issubdtype(x.dtype, np.integer)
    x, k = (array.astype(np.int64 if whole else np.float64) for array in (x, k))
    if layout == "NCHW":
        x, k = x.transpose(0, 2, 3, 1), k.transpose(2, 3, 1, 0)
    kh, kw, per_group, co = k.shape
    top, left, bottom, right = padding
    x = np.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)])
    ho = (x.shape[1] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    wo = (x.shape[2] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    y = np.zeros((x.shape[0], ho, wo, co), x.dtype)
    for r in range(kh):
        for s in range(kw):
            rows = x[:, r * dilation[0] :: stride[0], s * dilation[1] :: stride[1]][:, :ho, :wo]
            for g in range(groups):
                own = slice(g * co // groups, (g + 1) * co // groups)
                y[..., own] += rows[..., g * per_group : (g + 1) * per_group] @ k[r, s, :, own]
    return y if layout == "NHWC" else y.transpose(0, 3, 1, 2)
