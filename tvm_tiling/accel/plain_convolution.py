"""Reference TE implementation of a convolution workload."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from ..errors import UnsupportedOperator
from ..workload import ConvWorkload

LAYOUTS = ("NHWC", "NCHW")


def plain_convolution(workload: ConvWorkload) -> tuple[list[te.Tensor], te.Tensor]:
    """Return x and w, and y = conv(x, w), with the sizes, types and layout of the workload. Kernels are laid out kh,
    kw, ci, co with NHWC and co, ci, kh, kw with NCHW. UnsupportedOperator for transposed and three-dimensional
    convolutions and for blocked channels."""
    c = workload
    if c.transposed or c.d > 1 or c.kd > 1 or c.layout not in LAYOUTS:
        raise UnsupportedOperator(
            f"conv: transposed = {c.transposed}, d = {c.d}, kd = {c.kd}, layout = {c.layout!r} are not "
            "simulated from a description; expected two-dimensional convolutions, not transposed, in "
            f"{', '.join(LAYOUTS)}"
        )
    last, per_group = c.layout == "NHWC", c.ci // c.groups
    x = te.placeholder(_image(c.n, c.h, c.w, c.ci, last), c.dtype, name="x")
    shape = (c.kh, c.kw, per_group, c.co) if last else (c.co, per_group, c.kh, c.kw)
    w = te.placeholder(shape, c.types.b, name="w")
    padded = _padded(x, c, last)
    rc, rh, rw = (te.reduce_axis((0, size), name=name) for name, size in (("c", per_group), ("r", c.kh), ("s", c.kw)))

    def element(*at: Any) -> Any:
        n, y, z, o = at if last else (at[0], at[2], at[3], at[1])
        first = o // (c.co // c.groups) * per_group if c.groups > 1 else 0
        point = _image(n, y * c.stride[0] + rh * c.dilation[0], z * c.stride[1] + rw * c.dilation[1], first + rc, last)
        kernel = w[(rh, rw, rc, o) if last else (o, rc, rh, rw)]
        return te.sum(padded[point].astype(c.acc_dtype) * kernel.astype(c.acc_dtype), axis=[rc, rh, rw])

    return [x, w], te.compute(_image(c.n, c.ho, c.wo, c.co, last), element, name="y")


def _image(n: Any, h: Any, w: Any, c: Any, last: bool) -> tuple[Any, ...]:
    return (n, h, w, c) if last else (n, c, h, w)


def _padded(x: te.Tensor, c: ConvWorkload, last: bool) -> te.Tensor:
    """Return the image with its border of zeros."""
    top, left, bottom, right = c.padding
    if not any(c.padding):
        return x

    def element(*at: Any) -> Any:
        n, h, w, channel = at if last else (at[0], at[2], at[3], at[1])
        inside = tirx.all(h >= top, h < top + c.h, w >= left, w < left + c.w)
        return tirx.if_then_else(inside, x[_image(n, h - top, w - left, channel, last)], tirx.const(0, c.dtype))

    return te.compute(_image(c.n, c.h + top + bottom, c.w + left + right, c.ci, last), element, name="padded")
