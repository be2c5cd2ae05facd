"""Convolutions in plain form for an accelerator: image and kernels on the chip, the sums, and the epilogue.

Every operand has its own axes, independent of the layout of the source, with channels innermost. One schedule therefore
serves all layouts, and also matrix multiplications, as convolutions with one tap:

    image[n, d, h, w, g, c]           the padded input: images, depth, rows, columns, groups, channels
    kernels[g, o, kd, kh, kw, c]      groups, output channels, taps and channels
    sums[n, d, y, x, g, o]

Stride-fold leaves both buffers unchanged: columns and channels are adjacent in both, so a folded column is `fold`
columns, and the reduction covers fold * channels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ...decide.conv.stride_fold import StrideFold
from ...errors import UnsupportedOperator
from ...match import ConvProgram, GemmProgram
from ...match.access import bind, substitute
from ...workload import ConvWorkload

Expr: TypeAlias = tirx.Expr
IMAGE, OUT, KERNELS = "n d h w g c", "n d y x g o", "g o kd kh kw c"  # axes of the buffers


@dataclass(frozen=True)
class Border:
    """An axis of `size` elements, with `front` zeros before it and zeros after it up to `whole`."""

    front: int
    size: int
    whole: int


@dataclass(frozen=True)
class ImageLayout:
    """Sizes of a convolution on the chip; triples are depth, rows and columns."""

    groups: int
    images: int
    out: tuple[int, int, int]
    taps: tuple[int, int, int]  # taps of the reduction; folded ones if columns are folded
    stride: tuple[int, int, int]
    dilation: tuple[int, int, int]
    front: tuple[int, int, int]  # padding in front of the image in its buffer
    image: tuple[int, int, int]
    size: tuple[int, int, int]  # of the buffer
    ci: int  # of one group
    co: int  # of one group
    fold: int = 1
    kernel_front: int = 0  # zero columns in front of a kernel
    kernel_dilation: int = 1  # dilation along columns, expanded in the buffer
    kernel_taps: tuple[int, int, int] = (1, 1, 1)  # of the source
    kernel_columns: int = 1  # of the buffer

    @property
    def summed(self) -> int:
        """Channels of the reduction per tap."""
        return self.ci * self.fold

    @property
    def borders(self) -> list[Border]:
        """Padding of the image along depth, rows and columns."""
        return [Border(*axis) for axis in zip(self.front, self.image, self.size, strict=True)]


def plain_layout(conv: ConvWorkload) -> ImageLayout:
    """Return the layout of a convolution without folding."""
    out, taps = (conv.do, conv.ho, conv.wo), (conv.kd, conv.kh, conv.kw)
    stride, dilation = (conv.stride_d, *conv.stride), (conv.dilation_d, *conv.dilation)
    front, image = (conv.padding_d[0], *conv.padding[:2]), (conv.d, conv.h, conv.w)
    return ImageLayout(
        groups=conv.groups,
        images=conv.n,
        out=out,
        taps=taps,
        stride=stride,
        dilation=dilation,
        front=front,
        image=image,
        size=_sizes(out, taps, stride, dilation, front, image),
        ci=conv.ci // conv.groups,
        co=conv.co // conv.groups,
        kernel_taps=taps,
        kernel_columns=conv.kw,
    )


def folded_layout(fold: StrideFold) -> ImageLayout:
    """Return the layout of a convolution with its stride along W folded into channels and kernels dilated along W
    expanded; a stride of 1 folds nothing."""
    conv, factor = fold.workload, fold.factor
    out, taps = (conv.do, conv.ho, conv.wo), (conv.kd, conv.kh, fold.kernel_width)
    stride, dilation = (conv.stride_d, conv.stride[0], 1), (conv.dilation_d, conv.dilation[0], 1)
    left = fold.shift if fold.moves_data else fold.left * factor
    front, image = (conv.padding_d[0], conv.padding[0], left), (conv.d, conv.h, conv.w)
    deep, high, wide = _sizes(out, taps, stride, dilation, front, image)
    columns = -(-max((conv.wo - 1 + fold.kernel_width) * factor, wide) // factor) * factor
    return ImageLayout(
        groups=conv.groups,
        images=conv.n,
        out=out,
        taps=taps,
        stride=stride,
        dilation=dilation,
        front=front,
        image=image,
        size=(deep, high, columns),
        ci=conv.ci // conv.groups,
        co=conv.co // conv.groups,
        fold=factor,
        kernel_front=fold.zeros,
        kernel_dilation=conv.dilation[1],
        kernel_taps=(conv.kd, conv.kh, conv.kw),
        kernel_columns=fold.kernel_width * factor,
    )


def _sizes(
    out: Sequence[int],
    taps: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    front: Sequence[int],
    image: Sequence[int],
) -> tuple[int, int, int]:
    """Return the buffer's size along each axis: what the outputs need and all of the image, including elements that no
    tap reads."""
    needed = [
        max((points - 1) * step + (count - 1) * apart + 1, before + size)
        for points, count, step, apart, before, size in zip(out, taps, stride, dilation, front, image, strict=True)
    ]
    return needed[0], needed[1], needed[2]


class Operands(Protocol):
    """Elements of the source, addressed by the axes above."""

    def image(self, n: Expr, d: Expr, h: Expr, w: Expr, g: Expr, c: Expr) -> Expr: ...

    def kernel(self, g: Expr, o: Expr, kd: Expr, kh: Expr, kw: Expr, c: Expr) -> Expr: ...

    def result(self, sums: Expr, n: Expr, d: Expr, y: Expr, x: Expr, g: Expr, o: Expr) -> Expr: ...

    def place(self, n: Expr, d: Expr, y: Expr, x: Expr, g: Expr, o: Expr) -> list[Expr]: ...


def types_of(program: ConvProgram | GemmProgram, sums: dict[str, str]) -> tuple[str, str]:
    """Return the types of operands and of sums. Raises UnsupportedOperator if an operand is computed, or if `sums`, the
    machine's accumulator types, does not list the operand type."""
    if isinstance(program, ConvProgram):
        operands = ((program.x, program.input), (program.w, program.kernel))
    else:
        operands = ((program.a.buffer, program.a), (program.b.buffer, program.b))
    for buffer, access in operands:
        if buffer is None:
            raise UnsupportedOperator(
                f"{program.name}: the operand {access.expr} is computed; expected operands that are read from memory"
            )
    left, right = (access.dtype for _, access in operands)
    if left not in sums or left != right:
        raise UnsupportedOperator(
            f"{program.name}: multiplication of {left} by {right}; expected two operands of the same type, one of "
            f"{', '.join(sums)}"
        )
    return left, sums[left]


class ConvOperands:
    """The operands of a matched convolution."""

    def __init__(self, program: ConvProgram) -> None:
        self.program = program
        self.ci = program.workload.ci // program.workload.groups
        self.co = program.workload.co // program.workload.groups

    def image(self, n: Expr, d: Expr, h: Expr, w: Expr, g: Expr, c: Expr) -> Expr:
        return self.program.input_at(n, d, h, w, g * self.ci + c)

    def kernel(self, g: Expr, o: Expr, kd: Expr, kh: Expr, kw: Expr, c: Expr) -> Expr:
        return self.program.weight_at(g * self.co + o, kd, kh, kw, c)

    def result(self, sums: Expr, n: Expr, d: Expr, y: Expr, x: Expr, g: Expr, o: Expr) -> Expr:
        return _result(self.program, sums, n, d, y, x, g * self.co + o)

    def place(self, n: Expr, d: Expr, y: Expr, x: Expr, g: Expr, o: Expr) -> list[Expr]:
        return self.program.out_at(n, d, y, x, g * self.co + o)


class ProductOperands:
    """The operands of a matched matrix multiplication as a convolution with one tap: rows are columns of an image, n
    are output channels, and the batch becomes groups."""

    def __init__(self, program: GemmProgram) -> None:
        self.program = program

    def image(self, n: Expr, d: Expr, h: Expr, w: Expr, g: Expr, c: Expr) -> Expr:
        return self.program.a.at(g, w, c)

    def kernel(self, g: Expr, o: Expr, kd: Expr, kh: Expr, kw: Expr, c: Expr) -> Expr:
        return self.program.b.at(g, c, o)

    def result(self, sums: Expr, n: Expr, d: Expr, y: Expr, x: Expr, g: Expr, o: Expr) -> Expr:
        return _result(self.program, sums, g, x, o)

    def place(self, n: Expr, d: Expr, y: Expr, x: Expr, g: Expr, o: Expr) -> list[Expr]:
        return self.program.out_at(g, x, o)


def _result(program: ConvProgram | GemmProgram, sums: Expr, *indices: Expr) -> Expr:
    value = substitute(program.value(sums), bind(program.out_axes, program.out_extents, indices))
    return value if str(value.ty) == program.out_dtype else tirx.Cast(program.out_dtype, value)


@dataclass(frozen=True)
class Scopes:
    """Memories of the image, the kernels, the sums and the results."""

    image: str = "global.b"
    kernels: str = "global.a"
    sums: str = "global.acc"
    results: str = "global.out"


def write_image_layout(
    program: ConvProgram | GemmProgram,
    operands: Operands,
    form: ImageLayout,
    types: tuple[str, str],
    scopes: Scopes = Scopes(),
    bring_image: Callable[[tirx.Buffer], None] | None = None,
) -> tirx.PrimFunc:
    """Return the function on the source's parameters.

    It has the blocks "image", "kernels" (and "no_kernels", which writes the zeros between dilated taps), "sums",
    "results" if there is an epilogue or a type conversion, and "store". types: the types of the operands and of the
    sums. bring_image: writes the image's buffer where that takes more than a load.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(program.name)
        T.func_attr({"global_symbol": program.name, "tirx.noalias": True})
        for parameter in program.func.params:
            T.arg(parameter.name, parameter)
        with T.sblock("root"):
            _Writer(program, operands, form, types, scopes, bring_image).write()
    func: tirx.PrimFunc = builder.get()
    return func


class _Writer:
    def __init__(
        self,
        program: ConvProgram | GemmProgram,
        operands: Operands,
        form: ImageLayout,
        types: tuple[str, str],
        scopes: Scopes,
        bring_image: Callable[[tirx.Buffer], None] | None,
    ) -> None:
        self.program, self.operands, self.form, self.scopes = program, operands, form, scopes
        self.type, self.sum_type = types
        self.bring_image = bring_image

    def write(self) -> None:
        f, scopes = self.form, self.scopes
        image = on_chip("image_on_chip", (f.images, *f.size, f.groups, f.ci), self.type, scopes.image)
        (self.bring_image or self._image)(image)
        shape = (f.groups, f.co, *f.kernel_taps[:2], f.kernel_columns, f.ci)
        kernels = on_chip("kernels_on_chip", shape, self.type, scopes.kernels)
        self._kernels(kernels, shape)
        shape = (f.images, *f.out, f.groups, f.co)
        sums = on_chip("sums", shape, self.sum_type, scopes.sums)
        self._sums(sums, image, kernels)
        if self.program.has_epilogue or self.program.out_dtype != self.sum_type:
            results = on_chip("results", shape, self.program.out_dtype, scopes.results)
            with block("results", OUT, shape) as at:
                T.buffer_store(results, self.operands.result(sums[tuple(at)], *at), at)
            sums = results
        with block("store", OUT, shape) as at:
            T.buffer_store(self.program.out, sums[tuple(at)], self.operands.place(*at))

    def _image(self, image: tirx.Buffer) -> None:
        f = self.form
        with block("image", IMAGE, (f.images, *f.size, f.groups, f.ci)) as at:
            n, d, h, w, g, c = at
            d, h, w = (v - front for v, front in zip((d, h, w), f.front, strict=True))
            element = self.operands.image(n, d, h, w, g, c)
            T.buffer_store(image, bordered(element, list(zip((d, h, w), f.borders, strict=True))), at)

    def _kernels(self, kernels: tirx.Buffer, shape: Sequence[int]) -> None:
        f, columns = self.form, self.form.kernel_taps[2]
        if f.kernel_dilation > 1 and columns > 1:
            with block("no_kernels", KERNELS, shape) as at:
                T.buffer_store(kernels, tirx.const(0, self.type), at)
            with block("kernels", KERNELS, (f.groups, f.co, *f.kernel_taps, f.ci)) as (g, o, kd, kh, kw, c):
                column = kw * f.kernel_dilation + f.kernel_front
                T.buffer_store(kernels, self.operands.kernel(g, o, kd, kh, kw, c), [g, o, kd, kh, column, c])
            return
        with block("kernels", KERNELS, shape) as at:
            g, o, kd, kh, kw, c = at
            tap = kw - f.kernel_front
            element = self.operands.kernel(g, o, kd, kh, tap, c)
            border = Border(f.kernel_front, columns, f.kernel_columns)
            T.buffer_store(kernels, bordered(element, [(tap, border)]), at)

    def _sums(self, sums: tirx.Buffer, image: tirx.Buffer, kernels: tirx.Buffer) -> None:
        f = self.form
        axes = (f.images, *f.out, f.groups, f.co, *f.taps, f.summed)
        with block("sums", f"{OUT} kd kh kw c", axes, "SSSSSSRRRR") as (n, d, y, x, g, o, kd, kh, kw, c):
            at = [n, d, y, x, g, o]
            with T.init():
                T.buffer_store(sums, tirx.const(0, self.sum_type), at)
            if f.fold == 1:
                tap, channel, column = kw, c, x * f.stride[2] + kw * f.dilation[2]
            else:
                tap, channel = kw * f.fold + tirx.floordiv(c, f.ci), tirx.floormod(c, f.ci)
                column = x * f.fold + tap
            depth, row = (v * f.stride[i] + k * f.dilation[i] for i, (v, k) in enumerate(((d, kd), (y, kh))))
            term = self._wide(kernels[g, o, kd, kh, tap, channel])
            term = term * self._wide(image[n, depth, row, column, g, channel])
            T.buffer_store(sums, sums[tuple(at)] + term, at)

    def _wide(self, element: Expr) -> Expr:
        return element if self.type == self.sum_type else tirx.Cast(self.sum_type, element)


def bordered(element: Expr, points: Sequence[tuple[Expr, Border]]) -> Expr:
    """Return `element` where all its indices are inside their axes, else 0."""
    conditions = []
    for index, border in points:
        if border.front:
            conditions.append(index >= 0)
        if border.front + border.size < border.whole:
            conditions.append(index < border.size)
    if not conditions:
        return element
    inside = functools.reduce(tirx.And, conditions)
    return T.if_then_else(inside, element, tirx.const(0, str(element.ty)))


@contextmanager
def block(
    name: str, axes: str, extents: Sequence[int], kinds: str = "", around: Sequence[tirx.Var] = ()
) -> Iterator[list[tirx.Var]]:
    """Open a block below its own loops, named after its `axes`, within the loops `around`; yields the block's
    variables, one per loop. `kinds` has S (spatial) or R (reduction) for each."""
    names = axes.split()
    with T.grid(*extents) as loops:
        IRBuilder.name_many(names, list(loops))
        with T.sblock(name):
            every = [*around, *loops]
            variables = list(T.axis.remap(kinds or "S" * len(every), every))
            IRBuilder.name_many([f"v_{loop.name}" for loop in every], variables)
            yield variables


def on_chip(name: str, shape: Sequence[int], dtype: str, scope: str) -> tirx.Buffer:
    """Allocate a buffer of the function in a memory of the machine."""
    buffer = T.sblock_alloc_buffer(list(shape), dtype, scope=scope)
    IRBuilder.name(name, buffer)
    return buffer
