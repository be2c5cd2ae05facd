"""The block of a convolution in a plain schedule, and the steps needed to fold it.

TVM folds a buffer by transform_layout and a block's iterators by transform_block_layout, each only if the new extents
hold the old ones exactly. Otherwise zeros are needed: transform_layout writes them into a buffer while its producer
fills it, and pad_einsum extends the block's iterators. pad_einsum refuses accesses that are not at plain iterators,
such as an image at x * stride + kw, and would copy what is read. The block therefore temporarily declares that it reads
a single element of each operand. This is corrected before the operands are folded, with the zeros that the extended
iterators then read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tvm import s_tir, sym, tirx
from tvm.ir import TensorLoad
from tvm.ir.expr import TensorRegion
from tvm.s_tir.schedule import SBlockRV, _ffi_api

from ..errors import UnsupportedOperator
from ..match.access import loads, variables

Expr: TypeAlias = tirx.Expr
# Coordinates of a convolution as expressions by name.
Point: TypeAlias = dict[str, Expr]

AXES = ("n", "y", "x", "co", "kh", "kw", "c")
_READ = 0


@dataclass(frozen=True)
class ConvBlock:
    """out[n, y, x, co] = sum over (kh, kw, c) of image[n, y*sh + kh*dh, x*sw + kw*dw, c] * kernel[co, kh, kw, c].

    `place` maps each axis to its index among the block's iterators, `extent` to its length; `kernel_axes` names the
    axes of the kernels' dimensions in order. `image` and `kernel` are indices into the block's reads.
    """

    sch: s_tir.Schedule
    block: SBlockRV
    place: dict[str, int]
    extent: dict[str, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    image: int
    kernel: int
    kernel_axes: tuple[str, ...]

    def buffer(self, read: int) -> tirx.Buffer:
        return self.sch.get(self.block).reads[read].source

    def image_stage(self) -> SBlockRV:
        """Return the block that writes the image: its padding if only this convolution reads it, else a copy."""
        sch = self.sch
        image = self.buffer(self.image)
        for producer in sch.get_producers(self.block):
            writer = sch.get(producer)
            if writer.writes[0].source.same_as(image):
                alone = len(sch.get_consumers(producer)) == 1
                if alone and _walks_in_order(writer, image):
                    return producer
        return sch.cache_read(self.block, self.image, "global")

    def fold(self, fold: Fold, weights: str) -> None:
        """Fold iterators and operands; fold_moves.py describes `weights`."""
        sch, block = self.sch, self.block
        image = self.image_stage()
        kernel = (block, ("read", self.kernel))
        if weights == "plain":
            kernel = (sch.cache_read(block, self.kernel, "global"), ("write", 0))
        for read in (self.image, self.kernel):
            _say_reads(sch, block, read, [_zero(sch, block)] * 4)
        order = sorted(self.place, key=self.place.__getitem__)
        sch.pad_einsum(block, [fold.multiples.get(axis, 1) for axis in order])
        sch.transform_block_layout(block, _index_map(order, fold, _zero(sch, block)))

        left = iter([v.var for v in sch.get(block).iter_vars])
        at = fold.join({axis: [next(left) for _ in range(fold.count(axis))] for axis in order})
        row = at["y"] * self.stride[0] + at["kh"] * self.dilation[0]
        column = at["x"] * self.stride[1] + at["kw"] * self.dilation[1]
        _say_reads(sch, block, self.image, [at["n"], row, column, at["c"]])
        _say_reads(sch, block, self.kernel, [at[axis] for axis in self.kernel_axes])
        sch.unannotate(block, "explicit_read_region")

        zero = tirx.const(0, str(self.buffer(self.image).dtype))
        for index_map in fold.image:
            sch.transform_layout(image, ("write", 0), index_map, pad_value=zero)
        axes = self.kernel_axes
        sch.transform_layout(
            *kernel,
            _index_map(axes, fold, _zero(sch, block)),
            pad_value=tirx.const(0, str(self.buffer(self.kernel).dtype)),
        )


@dataclass(frozen=True)
class Fold:
    """How a fold changes the axes.

    `split` gives the pieces of an axis as functions of all axes; axes without an entry stay whole. `join` computes the
    axes from their pieces. `multiples` lists the multiples to which axes are extended first. `image` lists the
    successive maps of the image's dimensions (n, h, w, c).
    """

    multiples: dict[str, int]
    split: dict[str, tuple[Callable[[Point], Expr], ...]]
    join: Callable[[dict[str, list[Expr]]], Point]
    image: tuple[Callable[..., Sequence[Expr]], ...]

    def count(self, axis: str) -> int:
        return len(self.split.get(axis, (None,)))

    def pieces(self, axes: Sequence[str], at: Point) -> tuple[Expr, ...]:
        """Return the pieces of `axes` in order."""
        whole = {axis: (lambda point, axis=axis: point[axis],) for axis in axes}
        return tuple(piece(at) for axis in axes for piece in self.split.get(axis, whole[axis]))


def conv_block(sch: s_tir.Schedule, block: SBlockRV) -> ConvBlock:
    """Return the convolution that `block` computes. Raises UnsupportedOperator, naming the unmet condition, for other
    blocks.

    Supported are four-dimensional images with channels last in one group, padded in a separate block; kernels with one
    dimension each for co, kh, kw and c in any order; and constant extents.
    """
    body = sch.get(block)
    name = str(body.name_hint)

    def refuse(why: str) -> UnsupportedOperator:
        return UnsupportedOperator(
            f"block {name!r}: {why}; expected the block of a convolution of NHWC images in one group, padded in a "
            "separate block"
        )

    count = len(body.iter_vars)
    if count != len(AXES) or body.init is None or not isinstance(body.body, tirx.BufferStore):
        raise refuse(f"it has {count} iterators, not one for each of {', '.join(AXES)}")
    if not all(isinstance(v.dom.extent, tirx.IntImm) for v in body.iter_vars):
        raise refuse("its extents are not constant")
    store = body.body
    read = [load for load in loads(store.value) if not load.source.same_as(store.buffer)]
    if len(read) != 2 or len(body.reads) != 2 or any(len(load.indices) != 4 for load in read):
        raise refuse("it does not read two four-dimensional operands")
    found = _Axes(body)
    if len(store.indices) != 4 or not all(found.name(a, i) for a, i in zip(AXES, store.indices, strict=False)):
        raise refuse("its result is not indexed by four of its iterators")
    which = found.image(read)
    image, kernel = read[which].indices, read[1 - which].indices
    row, column = (found.window(*names, image[d]) for d, names in ((1, ("y", "kh")), (2, ("x", "kw"))))
    if row is None or column is None or not found.same("n", image[0]) or not found.name("c", image[3]):
        raise refuse("its image is not read at [n, y * stride + kh * dilation, x * stride + kw * dilation, c]")
    place = found.complete()
    axes = found.order(kernel, ("co", "kh", "kw", "c"))
    if place is None or axes is None:
        raise refuse("its kernels are not read at [co, kh, kw, c] in some order")
    at = {which: i for i, region in enumerate(body.reads) for which in (0, 1) if _reads(region, read[which])}
    return ConvBlock(
        sch=sch,
        block=block,
        place=place,
        extent={axis: int(body.iter_vars[i].dom.extent) for axis, i in place.items()},
        stride=(row[0], column[0]),
        dilation=(row[1], column[1]),
        image=at[which],
        kernel=at[1 - which],
        kernel_axes=axes,
    )


class _Axes:
    """Assignment of a block's iterators to axes; an iterator with one iteration may be missing from every index."""

    def __init__(self, body: s_tir.SBlock) -> None:
        self.iterators = list(body.iter_vars)
        self.place: dict[str, int] = {}
        self.analyzer = sym.Analyzer()
        for iterator in self.iterators:
            self.analyzer.bind(iterator.var, iterator.dom)

    def name(self, axis: str, index: Expr) -> bool:
        """Assign `index` to `axis`: an unassigned iterator, or 0 for an axis with one iteration."""
        index = index if isinstance(index, tirx.Var) else self.analyzer.simplify(index)
        free = [i for i, v in enumerate(self.iterators) if v.var.same_as(index) and i not in self.place.values()]
        if free:
            self.place[axis] = free[0]
        return bool(free) or self.is_zero(index)

    def same(self, axis: str, index: Expr) -> bool:
        return self.iterators[self.place[axis]].var.same_as(index) if axis in self.place else self.is_zero(index)

    def image(self, read: Sequence[TensorLoad]) -> int:
        """Return which operand is the image: the one indexed by the result's rows or columns, else the one not indexed
        by its channels."""
        for axes, wanted in ((("y", "x"), True), (("co",), False)):
            known = {self.iterators[self.place[a]].var for a in axes if a in self.place}
            held = [any(variables(index, known) for index in load.indices) for load in read]
            if held[0] != held[1]:
                return held.index(wanted)
        return 0

    def is_zero(self, index: Expr) -> bool:
        """Return whether `index` is 0 and contains no iterator with more than one iteration."""
        rest = self.analyzer.simplify(index)
        return isinstance(rest, tirx.IntImm) and int(rest) == 0

    def window(self, point: str, tap: str, index: Expr) -> tuple[int, int] | None:
        """Return (stride, dilation) if `index` is point * stride + tap * dilation, and assign the tap; None
        otherwise."""
        # The original form first: simplification drops iterators with one iteration.
        return self._window(point, tap, index) or self._window(point, tap, self.analyzer.simplify(index))

    def _window(self, point: str, tap: str, index: Expr) -> tuple[int, int] | None:
        held = variables(index)
        points = [v for v in (self.iterators[i].var for a, i in self.place.items() if a == point) if v in held]
        taps = [v.var for v in self.iterators if v.var in held and v.var not in points]
        factors = sym.detect_linear_equation(index, points + taps) if points or taps else [index]
        if len(taps) > 1 or len(factors) != len(points + taps) + 1:
            return None
        if not all(isinstance(f, tirx.IntImm) for f in factors) or int(factors[-1]) != 0:
            return None
        stride = int(factors[0]) if points else 1
        dilation = int(factors[-2]) if taps else 1
        if stride < 1 or dilation < 1 or (taps and not self.name(tap, taps[0])):
            return None
        return stride, dilation

    def complete(self) -> dict[str, int] | None:
        """Assign the remaining axes, which have one iteration and occur in no index, in any order; None if that is
        impossible."""
        for axis in AXES:
            if axis in self.place:
                continue
            free = (i for i, v in enumerate(self.iterators) if i not in self.place.values() and int(v.dom.extent) == 1)
            place = next(free, None)
            if place is None:
                return None
            self.place[axis] = place
        return self.place

    def order(self, indices: Sequence[Expr], axes: Sequence[str]) -> tuple[str, ...] | None:
        """Return which of `axes` each index is, or None."""
        left = [axis for axis in axes if not any(self.same(axis, i) for i in indices)]
        ordered = []
        for index in indices:
            named = [axis for axis in axes if self.same(axis, index)]
            if not named and not (self.is_zero(index) and left):
                return None
            ordered.append(named[0] if named else left.pop(0))
        return tuple(ordered) if sorted(ordered) == sorted(axes) else None


def checked_weights(weights: str) -> str:
    """Return `weights` if it is one of the two ways to fold kernels. Raises UnsupportedOperator otherwise."""
    if weights not in ("plain", "folded"):
        raise UnsupportedOperator(f"weights = {weights!r}; expected 'plain', 'folded'")
    return weights


def _index_map(axes: Sequence[str], fold: Fold, zero: Expr) -> tirx.IndexMap:
    """Return the map from `axes` to their pieces, in the type of `zero`."""
    whole = [tirx.Var(axis, str(zero.ty)) for axis in axes]
    return tirx.IndexMap(whole, list(fold.pieces(axes, dict(zip(axes, whole, strict=True)))), None)


def _reads(region: TensorRegion, load: TensorLoad) -> bool:
    return region.source.same_as(load.source)


def _walks_in_order(writer: s_tir.SBlock, buffer: tirx.Buffer) -> bool:
    """Return whether the block stores the whole buffer, one element at a time, at plain iterators in order."""
    store = writer.body
    if writer.init is not None or not isinstance(store, tirx.BufferStore) or len(writer.iter_vars) != len(buffer.shape):
        return False
    return all(
        index.same_as(v.var) and int(v.dom.extent) == int(size)
        for index, v, size in zip(store.indices, writer.iter_vars, buffer.shape, strict=True)
    )


def _zero(sch: s_tir.Schedule, block: SBlockRV) -> Expr:
    return tirx.IntImm(str(sch.get(block).iter_vars[0].var.ty), 0)


def _say_reads(sch: s_tir.Schedule, block: SBlockRV, read: int, indices: Sequence[Expr]) -> None:
    """Declare the single element that the block reads of its operand number `read`.

    Schedule.annotate_buffer_access requires as many ranges as the block has iterators, which is right only for
    matrices; the underlying instruction takes two bounds for each dimension.
    """
    bounds = [bound for index in indices for bound in (index, index + 1)]
    iterators = [v.var for v in sch.get(block).iter_vars]
    _ffi_api.ScheduleAnnotateBufferAccess(sch, block, read, _READ, tirx.IndexMap(iterators, bounds, None))
