"""One convolution described as data: its arrays, its result in NumPy, its workload, its TIR from several frontends.

Arrays are held in one order, images [n, space..., ci] and kernels [co, space..., ci / groups], and converted to a
layout such as "NCHW16c" for their readers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from products import DTYPES, EPSILON
from tvm import te, tirx, topi
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from tvm_tiling.match import ConvProgram
from tvm_tiling.operand_types import ELEMENTS
from tvm_tiling.workload import ConvWorkload


@dataclass(frozen=True, kw_only=True)
class Conv:
    """A convolution in one to three dimensions; `before` and `behind` are its padding."""

    space: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    more: tuple[int, ...] = ()
    n: int = 2
    ci: int = 4
    co: int = 6
    groups: int = 1
    dtype: str = "float32"
    type_w: str | None = None
    transposed: bool = False

    def __post_init__(self) -> None:
        for name, value in (("stride", 1), ("before", 0), ("behind", 0), ("dilation", 1), ("more", 0)):
            object.__setattr__(self, name, getattr(self, name) or (value,) * len(self.space))

    @property
    def padding(self) -> tuple[int, ...]:
        return (*self.before, *self.behind)

    @property
    def span(self) -> tuple[int, ...]:
        return tuple(d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True))

    @property
    def points(self) -> tuple[int, ...]:
        sizes = zip(self.space, self.span, self.stride, self.before, self.behind, self.more, strict=True)
        if self.transposed:
            return tuple((h - 1) * s + k - p - q + more for h, k, s, p, q, more in sizes)
        return tuple((h + p + q - k) // s + 1 for h, k, s, p, q, _ in sizes)

    @property
    def possible(self) -> bool:
        return min(self.points) >= 1

    @property
    def reads(self) -> bool:
        """Whether along every axis some kernel position meets an element of the input, not only padding or gaps."""

        def met(axis: int) -> set[float]:
            stride, before, gap = self.stride[axis], self.before[axis], self.dilation[axis]
            steps = [(point, tap) for point in range(self.points[axis]) for tap in range(self.kernel[axis])]
            if self.transposed:
                return {(point + before - tap * gap) / stride for point, tap in steps}
            return {point * stride + tap * gap - before for point, tap in steps}

        return all(met(axis) & set(range(size)) for axis, size in enumerate(self.space))

    @property
    def shape_x(self) -> tuple[int, ...]:
        return (self.n, *self.space, self.ci)

    @property
    def shape_w(self) -> tuple[int, ...]:
        return (self.co, *self.kernel, self.ci // self.groups)

    @property
    def axes(self) -> str:
        return "DHW"[3 - len(self.space) :]

    def result(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Compute the convolution in float64 or int64, [n, space..., co]."""
        exact = np.float64 if self.dtype in EPSILON else np.int64
        x, w = x.astype(exact), w.astype(exact)
        if self.transposed:
            grid = [(h - 1) * s + k for h, s, k in zip(self.space, self.stride, self.span, strict=True)]
            more = [max(0, m - q) for m, q in zip(self.more, self.behind, strict=True)]
            whole = np.zeros((self.n, *(g + m for g, m in zip(grid, more, strict=True)), self.co), exact)
        else:
            x = np.pad(x, [(0, 0), *zip(self.before, self.behind, strict=True), (0, 0)])
            whole = np.zeros((self.n, *self.points, self.co), exact)
        per, out = self.ci // self.groups, self.co // self.groups
        for tap in itertools.product(*(range(k) for k in self.kernel)):
            for g in range(self.groups):
                ours, theirs = slice(g * per, (g + 1) * per), slice(g * out, (g + 1) * out)
                kernel = w[(theirs, *tap)].T
                starts = [t * d for t, d in zip(tap, self.dilation, strict=True)]
                counts = self.space if self.transposed else self.points
                stops = [a + (c - 1) * s + 1 for a, c, s in zip(starts, counts, self.stride, strict=True)]
                at = tuple(slice(a, b, s) for a, b, s in zip(starts, stops, self.stride, strict=True))
                if self.transposed:
                    whole[(slice(None), *at, theirs)] += x[..., ours] @ kernel
                else:
                    whole[..., theirs] += x[(slice(None), *at, ours)] @ kernel
        if self.transposed:
            crop = tuple(slice(p, p + o) for p, o in zip(self.before, self.points, strict=True))
            return whole[(slice(None), *crop)]
        return whole

    def workload(self, layout: str, **known: object) -> ConvWorkload:
        """Return the workload, with the padding that is read; a transposed one with stride 1 is an ordinary one with a
        rotated kernel."""
        before, behind, more, stride = list(self.before), list(self.behind), list(self.more), list(self.stride)
        transposed = self.transposed and max(stride) > 1
        for a, (h, k, o) in enumerate(zip(self.space, self.span, self.points, strict=True)):
            if transposed:
                left = (h - 1) * stride[a] + k - before[a] - o
                behind[a], more[a] = max(0, left), max(0, -left)
                # A single input row does not show the stride.
                stride[a] = stride[a] if self.space[a] > 1 else 1 + more[a]
            else:
                before[a] = k - 1 - before[a] if self.transposed else before[a]
                behind[a], more[a] = max(0, (o - 1) * stride[a] + k - h - before[a]), 0
        flat = 3 - len(self.space)

        def fill(values: list[int] | tuple[int, ...], default: int) -> list[int]:
            return [default] * flat + list(values)

        (d, h, w), (kd, kh, kw) = fill(self.space, 1), fill(self.kernel, 1)
        (sd, sh, sw), (dd, dh, dw) = fill(stride, 1), fill(self.dilation, 1)
        (pd, ph, pw), (qd, qh, qw), (md, mh, mw) = fill(before, 0), fill(behind, 0), fill(more, 0)
        fields = dict(n=self.n, h=h, w=w, ci=self.ci, co=self.co, kh=kh, kw=kw, stride=(sh, sw), d=d, kd=kd)
        fields |= dict(padding=(ph, pw, qh, qw), dilation=(dh, dw), groups=self.groups, layout=layout, stride_d=sd)
        fields |= dict(padding_d=(pd, qd), dilation_d=dd, transposed=transposed, output_padding=(mh, mw))
        fields |= dict(output_padding_d=md)
        return ConvWorkload(**{**fields, "dtype": self.dtype, "b_dtype": self.type_w, **known})

    @property
    def out_dtype(self) -> str:
        return ELEMENTS[self.dtype].accumulator


def to_layout(array: np.ndarray, axes: str, layout: str) -> np.ndarray:
    """Return `array`, whose axes are the letters `axes`, in `layout`; e.g. "NCHW16c" splits the channels into blocks of
    16."""
    names = list(axes)
    for count, name in re.findall(r"(\d+)([a-z])", layout):
        at = names.index(name.upper())
        shape = array.shape
        array = array.reshape(*shape[:at], shape[at] // int(count), int(count), *shape[at + 1 :])
        names.insert(at + 1, name)
    order = re.sub(r"\d", "", layout)
    return np.ascontiguousarray(array.transpose([names.index(name) for name in order]))


def naive(program: ConvProgram) -> tirx.PrimFunc:
    """Compute the program as one scalar loop nest over its own accessors, as its workload describes it."""
    size = program.workload
    front, top, left = size.padding_d[0], *size.padding[:2]
    total = size.acc_dtype or "float32"
    rows = ((size.stride_d, front, size.dilation_d), *zip(size.stride, (top, left), size.dilation, strict=True))
    extents = (size.d, size.h, size.w)
    group = size.ci // size.groups
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for parameter in program.func.params:
            T.arg(parameter.name, parameter)
        with T.sblock("root"):
            acc = T.sblock_alloc_buffer((1,), total)
            with T.grid(size.n, size.do, size.ho, size.wo, size.co) as (n, d, y, x, co):
                T.buffer_store(acc, tirx.const(0, total), [0])
                with T.grid(size.kd, size.kh, size.kw, group) as (kd, kh, kw, c):
                    inside, at = tirx.const(True), []
                    for (step, before, apart), rows_in, o, k in zip(
                        rows, extents, (d, y, x), (kd, kh, kw), strict=True
                    ):
                        if size.transposed:
                            spread = o + before - k * apart
                            row = tirx.floordiv(spread, step)
                            inside = tirx.And(inside, tirx.floormod(spread, step) == 0)
                        else:
                            row = o * step + k * apart - before
                        inside = tirx.And(inside, tirx.And(row >= 0, row < rows_in))
                        at.append(row)
                    channel = tirx.floordiv(co, size.co // size.groups) * group + c
                    with T.If(inside), T.Then():
                        product = program.input_at(n, *at, channel, total) * program.weight_at(co, kd, kh, kw, c, total)
                        T.buffer_store(acc, acc[0] + product, [0])
                T.buffer_store(program.out, program.result(acc[0], n, d, y, x, co), program.out_at(n, d, y, x, co))
    return builder.get()


# ---- Front ends -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """Tensors of a convolution as a frontend emits it, layouts of input and output, and the storage of kernels."""

    x: te.Tensor
    w: te.Tensor
    out: te.Tensor
    layout: str
    layout_out: str
    stored: Callable[[np.ndarray], np.ndarray]


def placeholders(conv: Conv, layout: str, stored: Callable[[np.ndarray], np.ndarray]) -> tuple[te.Tensor, te.Tensor]:
    """Return input and kernels in these layouts."""
    shape_x = to_layout(np.empty(conv.shape_x, np.int8), f"N{conv.axes}C", layout).shape
    shape_w = stored(np.empty(conv.shape_w, np.int8)).shape
    return te.placeholder(shape_x, conv.dtype, "X"), te.placeholder(shape_w, conv.type_w or conv.dtype, "W")


def kernels_as(conv: Conv, layout: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return kernels in `layout`, such as "OIHW16i16o"."""
    return lambda w: to_layout(w, f"O{conv.axes}I", layout)


def topi_conv(conv: Conv, layout: str, layout_w: str) -> Source:
    """topi's convolution in any dimension, which Relax calls as well."""
    stored = kernels_as(conv, layout_w)
    x, w = placeholders(conv, layout, stored)
    out = topi.nn.conv(
        x, w, conv.stride, conv.padding, conv.dilation, conv.groups, layout, layout_w, out_dtype=conv.out_dtype
    )
    return Source(x, w, out, layout, layout, stored)


def topi_depthwise(conv: Conv, layout: str) -> Source:
    """topi's depthwise convolution, kernels [ci, co / ci, ...] or [..., ci, co / ci]."""

    def stored(w: np.ndarray) -> np.ndarray:
        each = w[..., 0].reshape(conv.groups, conv.co // conv.groups, *conv.kernel)
        return each if layout == "NCHW" else np.ascontiguousarray(each.transpose(2, 3, 0, 1))

    x, w = placeholders(conv, layout, stored)
    function = topi.nn.depthwise_conv2d_nchw if layout == "NCHW" else topi.nn.depthwise_conv2d_nhwc
    return Source(x, w, function(x, w, conv.stride, conv.padding, conv.dilation), layout, layout, stored)


def topi_transposed(conv: Conv) -> Source:
    """topi's transposed convolution: channels first, kernels [ci, co / groups, space...], input dilated by the
    stride."""

    def stored(w: np.ndarray) -> np.ndarray:
        # [group, co of it, space..., ci of it] -> [group, ci of it, co of it, space...]
        parts = w.reshape(conv.groups, conv.co // conv.groups, *conv.kernel, conv.ci // conv.groups)
        return np.moveaxis(parts, -1, 1).reshape(conv.ci, conv.co // conv.groups, *conv.kernel)

    x, w = placeholders(conv, f"NC{conv.axes}", stored)
    kernels = topi.nn.dilate(w, (1, 1, *conv.dilation)) if max(conv.dilation) > 1 else w
    function = {
        1: topi.nn.group_conv1d_transpose_ncw,
        2: topi.nn.group_conv2d_transpose_nchw,
        3: topi.nn.group_conv3d_transpose_ncdhw,
    }[len(conv.space)]
    out = function(x, kernels, conv.stride, conv.padding, conv.out_dtype, conv.more, conv.groups)
    return Source(x, w, out, f"NC{conv.axes}", f"NC{conv.axes}", stored)


def blocked(conv: Conv, block: int, block_out: int, *, split: bool = False) -> Source:
    """NCHW with blocks of channels, kernels OIHW with both; `split`: input channels are summed over two axes.

    With one channel per group (then block = block_out) kernels have blocks of output channels only.
    """
    depthwise = conv.groups == conv.ci
    stored = kernels_as(conv, f"OIHW{block_out}o" if depthwise else f"OIHW{block}i{block_out}o")
    x, w = placeholders(conv, f"NCHW{block}c", stored)
    top, left, bottom, right = conv.padding
    padded = topi.nn.pad(x, (0, 0, top, left, 0), (0, 0, bottom, right, 0)) if any(conv.padding) else x
    kh, kw = (te.reduce_axis((0, k), name) for k, name in zip(conv.kernel, ("kh", "kw"), strict=True))
    group = conv.ci // conv.groups
    blocks = [te.reduce_axis((0, max(1, group // block)), "o"), te.reduce_axis((0, block), "i")]
    whole = te.reduce_axis((0, group), "c")

    def element(n, q, y, z, r):
        row = y * conv.stride[0] + kh * conv.dilation[0]
        column = z * conv.stride[1] + kw * conv.dilation[1]
        if depthwise:
            a, b, summed = padded[n, q, row, column, r], w[q, 0, kh, kw, r], []
        else:
            o, i = blocks if split else (whole // block, whole % block)
            first = q // (conv.co // conv.groups // block_out) * (group // block) if conv.groups > 1 else 0
            a, b, summed = padded[n, first + o, row, column, i], w[q, o, kh, kw, i, r], blocks if split else [whole]
        return te.sum(a.astype(conv.out_dtype) * b.astype(conv.out_dtype), [*summed, kh, kw])

    out = te.compute((conv.n, conv.co // block_out, *conv.points, block_out), element, "conv")
    return Source(x, w, out, f"NCHW{block}c", f"NCHW{block_out}c", stored)


def arrays(conv: Conv, source: Source) -> tuple[list[np.ndarray], np.ndarray]:
    """Return input and kernels as stored, small integers so that every sum is exact; and the result in its layout."""
    rng = np.random.default_rng(5)

    def whole(shape: tuple[int, ...], dtype: str) -> np.ndarray:
        return rng.integers(0 if dtype == "uint8" else -4, 5, shape).astype(DTYPES[dtype])

    x, w = whole(conv.shape_x, conv.dtype), whole(conv.shape_w, conv.type_w or conv.dtype)
    result = to_layout(conv.result(x, w), f"N{conv.axes}C", source.layout_out)
    return [to_layout(x, f"N{conv.axes}C", source.layout), np.ascontiguousarray(source.stored(w))], result


def run(func: tirx.PrimFunc, inputs: list[np.ndarray], shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return what `func` stores, compiled by TVM's default."""
    out = tvm.runtime.empty(shape, dtype)
    func = func.with_attr("global_symbol", "main")
    tvm.compile(tvm.IRModule({"main": func}), target="llvm")["main"](*(tvm.runtime.tensor(a) for a in inputs), out)
    return out.numpy()
