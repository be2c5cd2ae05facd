"""A convolution as unscheduled TVM code: NHWC, with the padding as a separate block."""

from __future__ import annotations

from typing import Any

from tvm_tiling.workload import ConvWorkload

from .tvm_product import stored


def conv(workload: ConvWorkload) -> Any:
    """Y[n, y, x, co] = sum over (ky, kx, c) of X[n, ..., c] K[ky, kx, c, co], as te and TVM's own operators define
    it."""
    from tvm import te, topi

    w = workload
    x = te.placeholder((w.n, w.h, w.w, w.ci), w.dtype, name="X")
    kernels = te.placeholder((w.kh, w.kw, w.ci // w.groups, w.co), w.dtype, name="K")
    top, left, bottom, right = w.padding
    image = topi.nn.pad(x, (0, top, left, 0), (0, bottom, right, 0), name="padded") if any(w.padding) else x
    ky, kx = te.reduce_axis((0, w.kh), name="ky"), te.reduce_axis((0, w.kw), name="kx")
    c = te.reduce_axis((0, w.ci // w.groups), name="c")

    def channel(co: Any) -> Any:
        return c if w.groups == 1 else co // (w.co // w.groups) * (w.ci // w.groups) + c

    def element(n: Any, row: Any, column: Any, co: Any) -> Any:
        place = (row * w.stride[0] + ky * w.dilation[0], column * w.stride[1] + kx * w.dilation[1])
        read = image[n, place[0], place[1], channel(co)].astype(w.acc_dtype)
        return te.sum(read * kernels[ky, kx, c, co].astype(w.acc_dtype), axis=[ky, kx, c])

    y = te.compute((w.n, w.ho, w.wo, w.co), element, name="Y")
    return te.create_prim_func([x, kernels, stored(y, w)])
