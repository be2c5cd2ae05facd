"""Data movement: reshapes, permutations, slices, and concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from tvm import relax, te, tirx
from tvm.relax import op

from ..translation import Translation, Unsupported, converter, dtype_of, shape_of


@converter(
    "view.default", "_unsafe_view.default", "_reshape_alias.default", "view_copy.default", "_reshape_copy.default"
)
def _view(t: Translation, self: relax.Expr, size: Sequence[int], stride: Any = None) -> relax.Expr:
    return reshaped(t, self, t.shape)


def reshaped(t: Translation, value: relax.Expr, shape: Sequence[int]) -> relax.Expr:
    """The elements in the same order in another shape."""
    if 0 in shape:  # Relax interprets a 0 as the extent of the same axis of the input
        return t.emit(op.zeros(tuple(shape), dtype_of(value)))
    return value if shape_of(value) == tuple(shape) else t.emit(op.reshape(value, tuple(shape)))


@converter("unsqueeze.default", "unsqueeze_copy.default")
def _unsqueeze(t: Translation, self: relax.Expr, dim: int) -> relax.Expr:
    return t.emit(op.expand_dims(self, dim))


@converter(*(f"{name}.{overload}" for name in ("squeeze", "squeeze_copy") for overload in ("default", "dim", "dims")))
def _squeeze(t: Translation, self: relax.Expr, dim: Any = None) -> relax.Expr:
    # Axes of more than one element are kept; the recorded shape already accounts for them.
    return reshaped(t, self, t.shape)


@converter("permute.default", "permute_copy.default")
def _permute(t: Translation, self: relax.Expr, dims: Sequence[int]) -> relax.Expr:
    return permuted(t, self, dims)


def permuted(t: Translation, value: relax.Expr, order: Sequence[int]) -> relax.Expr:
    """The axes in another order."""
    rank = len(shape_of(value))
    order = [axis % rank for axis in order]
    return value if order == list(range(rank)) else t.emit(op.permute_dims(value, order))


@converter("transpose.int", "transpose_copy.int")
def _transpose(t: Translation, self: relax.Expr, dim0: int, dim1: int) -> relax.Expr:
    order = list(range(len(shape_of(self))))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return permuted(t, self, order)


@converter("t.default", "t_copy.default")
def _t(t: Translation, self: relax.Expr) -> relax.Expr:
    return permuted(t, self, range(len(shape_of(self)))[::-1])


@converter("expand.default", "expand_copy.default")
def _expand(t: Translation, self: relax.Expr, size: Sequence[int], implicit: bool) -> relax.Expr:
    return expanded(t, self, t.shape)


def expanded(t: Translation, value: relax.Expr, shape: Sequence[int]) -> relax.Expr:
    """The elements repeated along axes of one element, and along new leading axes."""
    return value if shape_of(value) == tuple(shape) else t.emit(op.broadcast_to(value, tuple(shape)))


def each(numbers: Sequence[int], rank: int) -> list[int]:
    """One number per axis; a single number applies to all."""
    return [int(number) for number in (list(numbers) * rank if len(numbers) == 1 else numbers)]


@converter("repeat.default")
def _repeat(t: Translation, self: relax.Expr, repeats: Sequence[int]) -> relax.Expr:
    # Repetitions become an extra axis before each axis: a broadcast between two reshapes.
    own = shape_of(self)
    whole = (1,) * (len(repeats) - len(own)) + own
    apart = reshaped(t, self, [extent for size in whole for extent in (1, size)])
    copied = expanded(t, apart, [extent for pair in zip(repeats, whole, strict=True) for extent in pair])
    return reshaped(t, copied, t.shape)


@converter("cat.default")
def _cat(t: Translation, tensors: Sequence[relax.Expr], dim: int) -> relax.Expr:
    return joined(t, [t.cast(tensor, t.dtype) for tensor in tensors], dim)


def joined(t: Translation, tensors: Sequence[relax.Expr], axis: int) -> relax.Expr:
    """Tensors of one type concatenated along an axis; empty ones are skipped."""
    filled = [tensor for tensor in tensors if 0 not in shape_of(tensor)]
    if len(filled) == 1:
        return filled[0]
    return t.emit(op.concat(filled, axis % len(shape_of(filled[0]))))


@converter("stack.default")
def _stack(t: Translation, tensors: Sequence[relax.Expr], dim: int) -> relax.Expr:
    place = dim % len(t.shape)
    return joined(t, [t.emit(op.expand_dims(t.cast(tensor, t.dtype), place)) for tensor in tensors], place)


# ---- parts ----------------------------------------------------------------------------------------------------------


def part(t: Translation, value: relax.Expr, axis: int, start: int, end: int, step: int = 1) -> relax.Expr:
    """Elements `start` to `end` of an axis, in bounds, with a step; the result is not empty."""
    shape = shape_of(value)
    axis %= len(shape)
    if (start, step) == (0, 1) and end >= shape[axis]:
        return value
    return t.emit(op.strided_slice(value, [axis], [start], [end], [step]))


def bounds(extent: int, start: int | None, end: int | None) -> tuple[int, int]:
    """The bounds of a slice within an axis: negative ones count from its end, and all are clamped."""
    first, last, _ = slice(start, end).indices(extent)
    return first, max(first, last)


@converter("slice.Tensor", "slice_copy.Tensor")
def _slice(t: Translation, self: relax.Expr, dim: int, start: int | None, end: int | None, step: int) -> relax.Expr:
    return part(t, self, dim, *bounds(shape_of(self)[dim], start, end), step)


@converter("narrow.default", "narrow_copy.default")
def _narrow(t: Translation, self: relax.Expr, dim: int, start: int, length: int) -> relax.Expr:
    first = start % shape_of(self)[dim] if start < 0 else start
    return part(t, self, dim, first, first + length)


@converter("select.int", "select_copy.int")
def _select(t: Translation, self: relax.Expr, dim: int, index: int) -> relax.Expr:
    place = index % shape_of(self)[dim]
    return reshaped(t, part(t, self, dim, place, place + 1), t.shape)


@converter("split_with_sizes.default", "split_with_sizes_copy.default")
def _split_with_sizes(t: Translation, self: relax.Expr, split_sizes: Sequence[int], dim: int) -> list[relax.Expr]:
    ends = np.cumsum(split_sizes).tolist()
    pairs = zip(ends, split_sizes, strict=True)
    return [_filled_part(t, self, dim, end - size, end) for end, size in pairs]


def _filled_part(t: Translation, value: relax.Expr, axis: int, start: int, end: int) -> relax.Expr:
    """Like `part`, but the result may be empty."""
    shape = list(shape_of(value))
    shape[axis] = end - start
    if 0 in shape:
        return t.emit(op.zeros(tuple(shape), value.ty.dtype))
    return part(t, value, axis, start, end)


@converter("split.Tensor", "split_copy.Tensor")
def _split(t: Translation, self: relax.Expr, split_size: int, dim: int) -> list[relax.Expr]:
    extent = shape_of(self)[dim]
    if extent == 0:
        return [self]
    return [_filled_part(t, self, dim, at, min(at + split_size, extent)) for at in range(0, extent, split_size)]


@converter("chunk.default")
def _chunk(t: Translation, self: relax.Expr, chunks: int, dim: int) -> list[relax.Expr]:
    return _split(t, self, -(-shape_of(self)[dim] // chunks), dim)


@converter("unbind.int", "unbind_copy.int")
def _unbind(t: Translation, self: relax.Expr, dim: int) -> list[relax.Expr]:
    shape = list(shape_of(self))
    extent = shape.pop(dim)
    return [reshaped(t, _filled_part(t, self, dim, at, at + 1), shape) for at in range(extent)]


# ---- other orders ---------------------------------------------------------------------------------------------------


@converter("flip.default")
def _flip(t: Translation, self: relax.Expr, dims: Sequence[int]) -> relax.Expr:
    shape = shape_of(self)
    for axis in dims if shape else ():
        self = t.emit(op.flip(self, axis % len(shape)))
    return self


@converter("roll.default")
def _roll(t: Translation, self: relax.Expr, shifts: Sequence[int], dims: Sequence[int]) -> relax.Expr:
    if not dims:
        return reshaped(t, _rolled(t, reshaped(t, self, [prod(t.shape)]), shifts[0], 0), t.shape)
    for shift, axis in zip(shifts, dims, strict=True):
        self = _rolled(t, self, shift, axis)
    return self


def _rolled(t: Translation, value: relax.Expr, shift: int, axis: int) -> relax.Expr:
    if not shape_of(value):
        return value
    extent = shape_of(value)[axis]
    first = -shift % extent
    return joined(t, [part(t, value, axis, first, extent), part(t, value, axis, 0, first)], axis) if first else value


@converter("diagonal.default", "diagonal_copy.default")
def _diagonal(t: Translation, self: relax.Expr, offset: int, dim1: int, dim2: int) -> relax.Expr:
    rank = len(shape_of(self))
    rows, columns = dim1 % rank, dim2 % rank
    shape = t.shape

    def diagonal(x: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            outer, place = iter(at[:-1]), at[-1]
            named = {rows: place + max(-offset, 0), columns: place + max(offset, 0)}
            return x[tuple(named[axis] if axis in named else next(outer) for axis in range(rank))]

        return te.compute(shape, element, name="diagonal")

    return t.te(diagonal, self, primfunc_name_hint="diagonal")


@converter("unfold.default", "unfold_copy.default")
def _unfold(t: Translation, self: relax.Expr, dimension: int, size: int, step: int) -> relax.Expr:
    """Windows along an axis, with the elements of each along a new last axis."""
    own, shape = shape_of(self), t.shape
    if not own:
        return reshaped(t, self, shape)
    axis = dimension % len(own)

    def windows(x: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            return x[tuple(at[a] * step + at[-1] if a == axis else at[a] for a in range(len(own)))]

        return te.compute(shape, element, name="windows")

    return t.te(windows, self, primfunc_name_hint="windows")


@converter("as_strided.default", "as_strided_copy.default")
def _as_strided(
    t: Translation, self: relax.Expr, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
) -> relax.Expr:
    places = _storage_places(t, size, stride, storage_offset)
    flat = reshaped(t, self, [prod(shape_of(self))])
    return t.emit(op.take(flat, t.constant(torch.from_numpy(places)), axis=0))


@converter("resize.default")
def _resize(t: Translation, self: relax.Expr, size: Sequence[int]) -> relax.Expr:
    """The first elements in another shape, for a contiguous tensor with enough elements."""
    given = t.operands[0]
    if not given.is_contiguous() or given.numel() < prod(size):
        raise Unsupported(
            f"size {tuple(size)} from shape {tuple(given.shape)} is not supported; expected no more elements, in order"
        )
    flat = reshaped(t, self, [given.numel()])
    return reshaped(t, part(t, flat, 0, 0, prod(size)), size)


@converter("as_strided_scatter.default")
def _as_strided_scatter(
    t: Translation,
    self: relax.Expr,
    src: relax.Expr,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None,
) -> relax.Expr:
    places = _storage_places(t, size, stride, storage_offset)
    count = prod(t.shape)
    if len(np.unique(places)) != places.size:
        raise Unsupported("several writes to one element are not supported; expected strides without overlap")
    both = joined(t, [reshaped(t, self, [count]), reshaped(t, t.cast(src, t.dtype), [places.size])], 0)
    origin = np.arange(count)
    origin[places.reshape(-1)] = count + np.arange(places.size)
    return t.emit(op.take(both, t.constant(torch.from_numpy(origin.reshape(t.shape))), axis=0))


def _storage_places(t: Translation, size: Sequence[int], stride: Sequence[int], offset: int | None) -> np.ndarray:
    """The index of each element of a storage view among the elements of the first operand."""
    viewed = t.operands[0]
    own = _offsets(tuple(map(int, viewed.shape)), viewed.stride(), int(viewed.storage_offset())).reshape(-1)
    start = int(viewed.storage_offset()) if offset is None else offset
    wanted = _offsets(tuple(size), stride, start)
    last = max(int(own.max(initial=0)), int(wanted.max(initial=0)))
    places = np.full(last + 1, -1, "int64")
    places[own] = np.arange(own.size)
    found = np.asarray(places[wanted])  # NumPy returns a number for a scalar
    if (found < 0).any():
        raise Unsupported("a storage view outside its operand is not supported; expected elements of the operand")
    return found


def _offsets(shape: Sequence[int], strides: Sequence[int], start: int) -> np.ndarray:
    """The storage offset of each element of a tensor."""
    total = np.full(shape, start, "int64")
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        lined = np.arange(extent, dtype="int64") * int(stride)
        total += lined.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return total


# ---- writes of a slice into a copy -----------------------------------------------------------------------------------


@converter("slice_scatter.default")
def _slice_scatter(
    t: Translation, self: relax.Expr, src: relax.Expr, dim: int, start: int | None, end: int | None, step: int
) -> relax.Expr:
    rank = len(t.shape)
    axis = dim % rank
    first, last = bounds(t.shape[axis], start, end)
    if 0 in shape_of(src):
        return self
    if step == 1:
        before, behind = _filled_part(t, self, axis, 0, first), _filled_part(t, self, axis, last, t.shape[axis])
        return joined(t, [before, t.cast(src, t.dtype), behind], axis)

    def place(*at: Any) -> tuple[Any, tuple[Any, ...]]:
        moved = at[axis] - first
        inside = tirx.all(moved >= 0, at[axis] < last, tirx.floormod(moved, step) == 0)
        return inside, tuple(tirx.floordiv(moved, step) if a == axis else at[a] for a in range(rank))

    return _written(t, self, src, place)


@converter("select_scatter.default")
def _select_scatter(t: Translation, self: relax.Expr, src: relax.Expr, dim: int, index: int) -> relax.Expr:
    axis = dim % len(t.shape)
    place = index % t.shape[axis]
    one = t.emit(op.expand_dims(t.cast(src, t.dtype), axis))
    before, behind = _filled_part(t, self, axis, 0, place), _filled_part(t, self, axis, place + 1, t.shape[axis])
    return joined(t, [before, one, behind], axis)


@converter("diagonal_scatter.default")
def _diagonal_scatter(
    t: Translation, self: relax.Expr, src: relax.Expr, offset: int, dim1: int, dim2: int
) -> relax.Expr:
    rank = len(t.shape)
    rows, columns = dim1 % rank, dim2 % rank
    if 0 in shape_of(src):
        return self

    def place(*at: Any) -> tuple[Any, tuple[Any, ...]]:
        outer = [at[a] for a in range(rank) if a not in (rows, columns)]
        return at[columns] - at[rows] == offset, (*outer, at[rows] - max(-offset, 0))

    return _written(t, self, src, place)


def _written(t: Translation, value: relax.Expr, source: relax.Expr, place: Any) -> relax.Expr:
    """`value` with elements of `source` at the positions where `place` returns true; it returns (condition, source
    index)."""

    def write(x: te.Tensor, new: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            inside, where = place(*at)
            return tirx.if_then_else(inside, new[where], x[at])

        return te.compute(x.shape, element, name="write")

    return t.te(write, value, t.cast(source, t.dtype), primfunc_name_hint="write")


# ---- blocks of pixels ------------------------------------------------------------------------------------------------


@converter("pixel_shuffle.default")
def _pixel_shuffle(t: Translation, self: relax.Expr, upscale_factor: int) -> relax.Expr:
    *outer, channels, height, width = shape_of(self)
    factor = upscale_factor
    apart = reshaped(t, self, [*outer, channels // factor**2, factor, factor, height, width])
    first = len(outer)
    order = [*range(first + 1), first + 3, first + 1, first + 4, first + 2]
    return reshaped(t, permuted(t, apart, order), t.shape)


@converter("pixel_unshuffle.default")
def _pixel_unshuffle(t: Translation, self: relax.Expr, downscale_factor: int) -> relax.Expr:
    *outer, channels, height, width = shape_of(self)
    factor = downscale_factor
    apart = reshaped(t, self, [*outer, channels, height // factor, factor, width // factor, factor])
    first = len(outer)
    order = [*range(first + 1), first + 2, first + 4, first + 1, first + 3]
    return reshaped(t, permuted(t, apart, order), t.shape)
