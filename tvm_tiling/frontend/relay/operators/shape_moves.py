"""Operators that move or reshape elements without computing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from tvm import relax, topi
from tvm.relax import op

from ...open_parts import sliced, tiled
from ...open_shapes import OpenShapes, Size, plus, text
from ..operands import (
    MAX_NEW_AXES,
    MAX_PARTS,
    Operands,
    Value,
    axis_in,
    bounded,
    numbers,
    rank_of,
    shape_of,
    shape_text,
    value_of,
)
from .padding import constant_border


def new_shape(
    shapes: OpenShapes, old: Sequence[Size], codes: Sequence[Size], zero_is_empty: bool = False
) -> list[Size]:
    """The shape that a list of codes makes from `old`: sizes, 0 to keep a dimension, -1 to infer one, -2 to keep all
    remaining dimensions, -3 to merge two, -4 and two numbers to split one. Raises ValueError."""
    made: list[Size] = []
    place, left, code_at = 0, None, 0

    def taken() -> Size:
        nonlocal place
        if place >= len(old):
            raise ValueError(f"newshape {shape_text(codes)} uses more dimensions than {shape_text(old)} has")
        place += 1
        return old[place - 1]

    while code_at < len(codes):
        code = codes[code_at]
        code_at += 1
        if not isinstance(code, int):
            # 0 and -1 have special meanings, except where the number of elements is unchanged.
            if place >= len(old) or not shapes.same(old[place], code):
                shapes.require_at_least(code, 0 if zero_is_empty else 1)
            made.append(code)
            place += 1
        elif code > 0 or (code == 0 and zero_is_empty):
            made.append(code)
            place += 1
        elif code == 0:
            made.append(taken())
        elif code == -1:
            if left is not None:
                raise ValueError(f"newshape {shape_text(codes)} contains -1 twice")
            left = len(made)
            made.append(1)
            place += 1
        elif code == -2:
            made.extend(old[place:])
            place = len(old)
        elif code == -3:
            made.append(shapes.product([taken(), taken()]))
        elif code == -4 and code_at + 1 < len(codes):
            made.extend(_divided(shapes, taken(), codes[code_at], codes[code_at + 1]))
            code_at += 2
        else:
            raise ValueError(
                f"newshape {shape_text(codes)} is invalid; expected sizes, 0, -1, -2, -3 and -4 followed by two numbers"
            )
    if left is not None:
        made[left] = _left_over(shapes, old, codes, [extent for at, extent in enumerate(made) if at != left])
    elements = [shapes.product(extents) for extents in (made, old)]
    if all(isinstance(size, int) for size in elements) and elements[0] != elements[1]:
        raise ValueError(f"newshape {shape_text(codes)} has a different number of elements than {shape_text(old)}")
    return made


def _left_over(shapes: OpenShapes, old: Sequence[Size], codes: Sequence[Size], others: Sequence[Size]) -> Size:
    """The size that -1 is inferred to."""
    if not all(isinstance(extent, int) for extent in (*old, *others)):
        return shapes.quotient(old, others)
    count, elements = math.prod(others), math.prod(old)
    if not count or elements % count:
        raise ValueError(f"newshape {shape_text(codes)} does not divide {shape_text(old)}")
    return elements // count


def _divided(shapes: OpenShapes, whole: Size, first: Size, second: Size) -> tuple[Size, Size]:
    """An extent split in two, of which one may be -1, to be inferred."""
    if not isinstance(whole, int):
        if isinstance(first, int) and first == -1:
            first = shapes.quotient([whole], [second])
        elif isinstance(second, int) and second == -1:
            second = shapes.quotient([whole], [first])
        return first, second
    if first == -1 and second > 0:
        first = whole // second
    elif second == -1 and first > 0:
        second = whole // first
    if first < 1 or second < 1 or first * second != whole:
        raise ValueError(f"-4, {first}, {second} does not divide {whole}")
    return first, second


def _codes(call: Operands) -> list[Size]:
    if call["newshape"] is not None:
        return [*numbers(call["newshape"])]
    return call.sizes(1, "the new shape")


def _reshape(call: Operands) -> Value:
    x = call.tensor(0)
    old, codes = call.extents(x), _codes(call)
    if call["reverse"]:
        return op.reshape(x, new_shape(call.shapes, old[::-1], codes[::-1])[::-1])
    return op.reshape(x, new_shape(call.shapes, old, codes, bool(call["allowzero"])))


def _reverse_reshape(call: Operands) -> Value:
    """Reshape with codes that are read from the last dimension."""
    x = call.tensor(0)
    return op.reshape(x, new_shape(call.shapes, call.extents(x)[::-1], _codes(call)[::-1])[::-1])


def _reshape_like(call: Operands) -> Value:
    x, like = call.tensor(0), call.tensor(1)
    old, other = call.extents(x), call.extents(like)
    ends = [call[f"{side}_end"] for side in ("lhs", "rhs")]
    first, second = (axis_in(call[f"{side}_begin"], len(s), 1) for side, s in (("lhs", old), ("rhs", other)))
    last = len(old) if ends[0] is None else axis_in(ends[0], len(old), 1)
    other_last = len(other) if ends[1] is None else axis_in(ends[1], len(other), 1)
    return op.reshape(x, [*old[:first], *other[second:other_last], *old[last:]])


def _transpose(call: Operands) -> Value:
    x = call.tensor(0)
    rank = rank_of(x)
    axes = [axis_in(axis, rank) for axis in numbers(call["axes"] or [])] or list(range(rank))[::-1]
    return op.permute_dims(x, axes)


def _squeeze(call: Operands) -> Value:
    x = call.tensor(0)
    shape = call.extents(x)
    if call["axis"] is None:
        axes = [place for place, extent in enumerate(shape) if isinstance(extent, int) and extent == 1]
        if len(call.args) < 2:
            for extent in shape:
                if not isinstance(extent, int):
                    call.shapes.require_different(extent, 1)
        else:
            axes = [axis_in(int(axis), len(shape)) for axis in call.known(1, "the axes").reshape(-1)]
    else:
        axes = [axis_in(axis, len(shape)) for axis in numbers(call["axis"])]
    if any(isinstance(shape[axis], int) and shape[axis] != 1 for axis in axes):
        raise ValueError(f"axes {axes} of {shape_text(shape)} do not all have size 1")
    for axis in axes:
        call.shapes.agreed(shape[axis], 1)
    return op.reshape(x, [extent for place, extent in enumerate(shape) if place not in axes])


def _expand_dims(call: Operands) -> Value:
    x = call.tensor(0)
    shape = call.extents(x)
    axis = axis_in(call["axis"], len(shape), 1)
    count = bounded(int(call["num_newaxis"]), "num_newaxis", MAX_NEW_AXES)
    return op.reshape(x, [*shape[:axis], *[1] * count, *shape[axis:]])


def _batch_flatten(call: Operands) -> Value:
    x = call.tensor(0)
    shape = call.extents(x)
    return op.reshape(x, [shape[0], call.shapes.product(shape[1:])])


def _concatenate(call: Operands) -> Value:
    parts = call.tensors(0)
    return op.concat(parts, axis_in(call["axis"], rank_of(parts[0])))


def _stack(call: Operands) -> Value:
    parts = call.tensors(0)
    axis = axis_in(call["axis"], rank_of(parts[0]), 1)
    apart = [call.extents(part) for part in parts]
    lined = [[*shape[:axis], 1, *shape[axis:]] for shape in apart]
    return op.concat([call.emit(op.reshape(*pair)) for pair in zip(parts, lined, strict=True)], axis)


def _split(call: Operands) -> Value:
    x, parts = call.tensor(0), call["indices_or_sections"]
    axis = axis_in(call["axis"], rank_of(x))
    extent = call.extents(x)[axis]
    if isinstance(parts, list):
        if not isinstance(extent, int):
            return _split_at(call, x, axis, numbers(parts))
        return op.split(x, numbers(parts), axis)
    count = bounded(numbers(parts)[0], "indices_or_sections", MAX_PARTS)
    if count < 1 or (isinstance(extent, int) and extent % count):
        raise ValueError(f"{text(extent)} elements cannot be split into {count} parts; expected a divisor")
    if count == 1:
        return (x,)
    if isinstance(extent, int):
        return op.split(x, count, axis)
    part = call.shapes.quotient([extent], [count])
    return tuple(
        sliced(call.builder, call.shapes, x, {axis: (call.shapes.simplified(part * number), part, 1)})
        for number in range(count)
    )


def _split_at(call: Operands, x: relax.Expr, axis: int, places: Sequence[int]) -> Value:
    """`x` split at these positions along a dynamic axis, which has to be long enough."""
    ends: list[Size] = [0, *places, call.extents(x)[axis]]
    for first, last in itertools.pairwise(ends):
        call.shapes.require_at_least(last, first)
    cuts = [(first, call.shapes.simplified(plus(last, -1 * first)), 1) for first, last in itertools.pairwise(ends)]
    return tuple(sliced(call.builder, call.shapes, x, {axis: cut}) for cut in cuts)


def _tile(call: Operands) -> Value:
    x = call.tensor(0)
    reps: list[Size] = [*numbers(call["reps"])] if call["reps"] is not None else call.sizes(1, "reps")
    if all(isinstance(size, int) for size in (*call.extents(x), *reps)):
        return op.tile(x, reps)
    if len(reps) < rank_of(x):
        reps = [1] * (rank_of(x) - len(reps)) + reps
    elif len(reps) > rank_of(x):
        x = call.emit(op.reshape(x, [1] * (len(reps) - rank_of(x)) + call.extents(x)))
    return tiled(call.builder, call.shapes, x, reps)


def _repeat(call: Operands) -> Value:
    x, axis = call.tensor(0), call["axis"]
    if axis is None:
        x, axis = call.emit(op.reshape(x, [-1])), 0
    return op.repeat(x, numbers(call["repeats"])[0], axis_in(axis, rank_of(x)))


def _reverse(call: Operands) -> Value:
    x = call.tensor(0)
    return op.flip(x, axis_in(call["axis"], rank_of(x)))


def _broadcast_to(call: Operands) -> Value:
    stated = call["shape"]
    return call.spread(call.tensor(0), [*numbers(stated)] if stated is not None else call.sizes(1, "the shape"))


def _broadcast_to_like(call: Operands) -> Value:
    return call.spread(call.tensor(0), call.extents(call.tensor(1)))


def collapsed(call: Operands, x: relax.Expr, shape: Sequence[int]) -> relax.Expr:
    """Sums over the axes along which broadcasting to the shape of `x` repeats elements."""
    old = shape_of(x)
    wide = [1] * (len(old) - len(shape)) + list(shape)
    axes = [place for place, (has, wanted) in enumerate(zip(old, wide, strict=True)) if wanted == 1 and has != 1]
    if any(wanted not in (1, has) for has, wanted in zip(old, wide, strict=True)):
        raise ValueError(f"{tuple(shape)} does not broadcast to {tuple(old)}")
    total = call.emit(op.sum(x, axes, keepdims=True)) if axes else x
    return op.reshape(total, list(shape))


def _collapse_to(call: Operands) -> Value:
    shape = call["shape"] if call["shape"] is not None else call.known(1, "the shape").reshape(-1).tolist()
    return collapsed(call, call.tensor(0), numbers(shape))


def _layout_transform(call: Operands) -> Value:
    before, after = str(call["src_layout"]), str(call["dst_layout"])
    x = call.tensor(0)
    if before == after:
        return x
    if sorted(before) == sorted(after) and before.isalpha() and before.isupper():
        return op.permute_dims(x, [before.index(letter) for letter in after])
    shape_of(x)  # raises for a dynamic shape, which need not be divisible
    return call.te(topi.layout_transform, x, before, after)


def _block_moves(function: Callable[..., relax.Expr]) -> Callable[[Operands], Value]:
    def convert(call: Operands) -> Value:
        rest = (call["mode"],) if function is topi.nn.depth_to_space else ()
        return call.te(function, call.tensor(0), int(call["block_size"]), str(call["layout"]), *rest)

    return convert


def _blocks(call: Operands, name: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Block extents, and the padding or cropping before and after each spatial dimension. Raises ValueError."""
    block = numbers(call["block_shape"])
    pairs = [numbers(pair) for pair in call[name]]
    if len(pairs) != len(block) or not all(len(pair) == 2 for pair in pairs) or min(block, default=1) < 1:
        raise ValueError(
            f"block_shape {block} and {name} {pairs} are invalid; expected positive extents with one pair each"
        )
    return block, [(before, behind) for before, behind in pairs]


def _space_to_batch(call: Operands) -> Value:
    x = call.tensor(0)
    block, pairs = _blocks(call, "paddings")
    value = call["pad_value"]
    if len(call.args) > 1 and (given := value_of(call.tensor(1))) is not None:
        value = given.item()
    rank, count = rank_of(x), len(block)
    wide = call.emit(constant_border(call, x, [(0, 0), *pairs, *[(0, 0)] * (rank - 1 - count)], value))
    batch, *shape = shape_of(wide)
    space, rest = shape[:count], shape[count:]
    if any(extent % size for extent, size in zip(space, block, strict=True)):
        raise ValueError(f"{tuple(space)} cannot be divided into blocks of {tuple(block)}; expected divisors")
    outer = [extent // size for extent, size in zip(space, block, strict=True)]
    apart = [extent for pair in zip(outer, block, strict=True) for extent in pair]
    split = call.emit(op.reshape(wide, [batch, *apart, *rest]))
    first = [2 + 2 * axis for axis in range(count)]
    others = [1 + 2 * axis for axis in range(count)]
    moved = call.emit(op.permute_dims(split, [*first, 0, *others, *range(1 + 2 * count, 1 + 2 * count + len(rest))]))
    return op.reshape(moved, [batch * math.prod(block), *outer, *rest])


def _batch_to_space(call: Operands) -> Value:
    x = call.tensor(0)
    block, crops = _blocks(call, "crops")
    batch, *shape = shape_of(x)
    count = len(block)
    space, rest = shape[:count], shape[count:]
    if batch % math.prod(block):
        raise ValueError(f"a batch of {batch} is not a multiple of blocks of {tuple(block)}; expected a multiple")
    batch //= math.prod(block)
    split = call.emit(op.reshape(x, [*block, batch, *space, *rest]))
    pairs = [axis for place in range(count) for axis in (count + 1 + place, place)]
    moved = call.emit(op.permute_dims(split, [count, *pairs, *range(2 * count + 1, 2 * count + 1 + len(rest))]))
    full = [extent * size for extent, size in zip(space, block, strict=True)]
    joined = call.emit(op.reshape(moved, [batch, *full, *rest]))
    axes = [1 + place for place in range(count)]
    begin = [before for before, _ in crops]
    end = [extent - behind for extent, (_, behind) in zip(full, crops, strict=True)]
    return op.strided_slice(joined, axes, begin, end, [1] * count)


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "broadcast_to": _broadcast_to,
    "broadcast_to_like": _broadcast_to_like,
    "collapse_sum_like": lambda call: collapsed(call, call.tensor(0), shape_of(call.tensor(1))),
    "collapse_sum_to": _collapse_to,
    "concatenate": _concatenate,
    "contrib_reverse_reshape": _reverse_reshape,
    "dyn.broadcast_to": _broadcast_to,
    "dyn.reshape": _reshape,
    "dyn.squeeze": _squeeze,
    "dyn.tile": _tile,
    "expand_dims": _expand_dims,
    "layout_transform": _layout_transform,
    "nn.batch_flatten": _batch_flatten,
    "nn.batch_to_space_nd": _batch_to_space,
    "nn.depth_to_space": _block_moves(topi.nn.depth_to_space),
    "nn.space_to_batch_nd": _space_to_batch,
    "nn.space_to_depth": _block_moves(topi.nn.space_to_depth),
    "repeat": _repeat,
    "reshape": _reshape,
    "reshape_like": _reshape_like,
    "reverse": _reverse,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "tile": _tile,
    "transpose": _transpose,
}
