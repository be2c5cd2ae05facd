"""Slicing, padding and similar operations along dynamic axes, as kernels with sizes as arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax, te, tirx

from .open_shapes import OpenShapes, Size, expr, extents_of, plus

_EXACT = 2**18
FAR = 2**31 - 1  # the value, or less, that exporters write for the end of an axis


def kernel_of_sizes(
    bb: relax.BlockBuilder, function: Callable[..., te.Tensor], data: relax.Expr, sizes: Sequence[Size], name: str
) -> relax.Expr:
    """Emit a tensor expression of a tensor and sizes; dynamic sizes become kernel arguments, because the tensor shapes
    need not mention them."""
    opened = [size for size in sizes if not isinstance(size, int)]

    def given(x: te.Tensor, *numbers: Any) -> te.Tensor:
        left = iter(numbers)
        return function(x, [size if isinstance(size, int) else next(left) for size in sizes])

    return bb.call_te(given, data, *opened, primfunc_name_hint=name)


def lifted(shapes: OpenShapes, place: Size, extent: Size) -> Size:
    """A position that may count from the end, converted to one from the start, without clamping. A size of unknown sign
    is taken as nonnegative, with a guard."""
    if isinstance(place, int):
        return place if place >= 0 else extent + place
    if shapes.proves(place <= -1):
        return extent + place
    if shapes.proves(place <= 0):  # from the end if negative, from the start if 0
        return shapes.simplified(tirx.min(-1 * place, expr(1)) * expr(extent + place))
    shapes.require_at_least(place, 0)
    return place


def bounds(shapes: OpenShapes, start: Size, end: Size, step: int, extent: Size) -> tuple[Size, Size]:
    """The first element of a slice and the number of its elements, clamped to the axis."""
    if step > 0:
        first = shapes.larger(shapes.smaller(lifted(shapes, start, extent), extent), 0)
        far = isinstance(end, int) and end >= FAR
        last = extent if far else shapes.larger(shapes.smaller(lifted(shapes, end, extent), extent), 0)
        span = shapes.simplified(plus(last, -1 * first, step - 1))
        return first, shapes.larger(shapes.simplified(tirx.floordiv(expr(span), expr(step))), 0)
    far = isinstance(start, int) and start >= FAR
    top = shapes.simplified(extent - 1)
    first = top if far else shapes.larger(shapes.smaller(lifted(shapes, start, extent), top), -1)
    none = isinstance(end, int) and end <= -FAR
    last = -1 if none else shapes.larger(shapes.smaller(lifted(shapes, end, extent), top), -1)
    span = shapes.simplified(plus(first, -1 * last, -step - 1))
    return first, shapes.larger(shapes.simplified(tirx.floordiv(expr(span), expr(-step))), 0)


def sliced(
    bb: relax.BlockBuilder, shapes: OpenShapes, data: relax.Expr, cuts: Mapping[int, tuple[Size, Size, int]]
) -> relax.Expr:
    """Elements of `data`; `cuts` maps an axis to the first element, the count and the step."""
    extents = extents_of(data)
    cuts = {
        axis: (first, count, step)
        for axis, (first, count, step) in cuts.items()
        if not (isinstance(first, int) and first == 0 and step == 1 and shapes.same(count, extents[axis]))
    }
    if not cuts:
        return data
    shape = [cuts[axis][1] if axis in cuts else extent for axis, extent in enumerate(extents)]

    def part(x: te.Tensor, firsts: Sequence[Any]) -> te.Tensor:
        begins = dict(zip(cuts, firsts, strict=True))

        def element(*at: Any) -> Any:
            return x[tuple(begins[axis] + i * cuts[axis][2] if axis in cuts else i for axis, i in enumerate(at))]

        return te.compute([expr(extent) for extent in shape], element, name="slice")

    return kernel_of_sizes(bb, part, data, [first for first, _, _ in cuts.values()], "strided_slice")


def padded(
    bb: relax.BlockBuilder,
    shapes: OpenShapes,
    data: relax.Expr,
    pads: Sequence[tuple[Size, Size]],
    fill: Any,
    mode: str,
) -> relax.Expr:
    """`data` with padding; `pads` gives the elements before and after each axis. They are `fill`, or by `mode` those at
    the edge, reflected, or wrapped around."""
    extents = extents_of(data)
    shape = [shapes.simplified(plus(extent, *pair)) for extent, pair in zip(extents, pads, strict=True)]
    for extent, result, pair in zip(extents, shape, pads, strict=True):
        shapes.require_at_least(result, 0)
        if mode == "reflect":
            for number in pair:
                shapes.require_at_least(plus(extent, -1), number)
    moved = [any(not (isinstance(n, int) and n == 0) for n in pair) for pair in pads]
    before = [pair[0] for pair in pads]

    def around(x: te.Tensor, firsts: Sequence[Any]) -> te.Tensor:
        def element(*at: Any) -> Any:
            places, inside = [], []
            for i, first, size, moves in zip(at, firsts, x.shape, moved, strict=True):
                if not moves:
                    places.append(i)
                    continue
                place = tirx.Cast("int64", i) - first
                if mode == "wrap":
                    places.append(tirx.floormod(place, size))
                    continue
                if mode == "constant":
                    inside += [place >= 0, place < size]
                elif mode == "reflect":
                    place = tirx.Select(place < 0, -place, tirx.Select(place >= size, 2 * size - 2 - place, place))
                places.append(place if mode == "constant" else tirx.max(tirx.min(place, size - 1), 0))
            value = x[tuple(places)]
            return tirx.if_then_else(tirx.all(*inside), value, tirx.const(fill, x.dtype)) if inside else value

        return te.compute([expr(extent) for extent in shape], element, name="pad")

    return kernel_of_sizes(bb, around, data, before, "pad")


def tiled(bb: relax.BlockBuilder, shapes: OpenShapes, data: relax.Expr, repeats: Sequence[Size]) -> relax.Expr:
    """`data` repeated `repeats[axis]` times along each axis."""
    extents = extents_of(data)
    for count in repeats:
        shapes.require_at_least(count, 0)
    shape = [shapes.product(pair) for pair in zip(extents, repeats, strict=True)]
    # Axes that are not repeated or have no elements: a remainder by 0 is an error.
    same = [
        (isinstance(count, int) and count == 1) or (isinstance(extent, int) and extent == 0)
        for count, extent in zip(repeats, extents, strict=True)
    ]

    def repeated(x: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            pairs = zip(at, x.shape, same, strict=True)
            return x[tuple(i if once else tirx.floormod(i, span) for i, span, once in pairs)]

        return te.compute([expr(extent) for extent in shape], element, name="tile")

    return bb.call_te(repeated, data, primfunc_name_hint="tile")


def sequence(bb: relax.BlockBuilder, start: Size, step: Size, length: Size, dtype: str) -> relax.Expr:
    """`length` numbers from `start` with the given step."""
    opened = [size for size in (start, step) if not isinstance(size, int)]

    def steps(*numbers: Any) -> te.Tensor:
        left = iter(numbers)
        first, width = (expr(size) if isinstance(size, int) else next(left) for size in (start, step))
        return te.compute(
            [expr(length)], lambda i: tirx.Cast(dtype, first + tirx.Cast("int64", i) * width), name="range"
        )

    return bb.call_te(steps, *opened, primfunc_name_hint="arange")


def upsampled(
    bb: relax.BlockBuilder, shapes: OpenShapes, data: relax.Expr, axis: int, factor: int, *, linear: bool
) -> relax.Expr:
    """Each element of an axis repeated `factor` times, or, with `linear`, interpolated between the centres of two
    elements."""
    extents = extents_of(data)
    shape = [shapes.simplified(extent * factor) if place == axis else extent for place, extent in enumerate(extents)]
    if factor & (factor - 1):
        # Other implementations compute positions in float32, which is exact only for powers of 2.
        shapes.require_at_least(_EXACT, shape[axis])
    dtype = str(data.ty.dtype)

    def between(x: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            def taken(place: Any) -> Any:
                return x[tuple(place if i == axis else index for i, index in enumerate(at))]

            if not linear:
                return taken(tirx.floordiv(at[axis], factor))
            # In half output elements: (i + 0.5) / factor - 0.5.
            over = 2 * tirx.Cast("int64", at[axis]) + 1 - factor
            lower = tirx.floordiv(over, 2 * factor)
            share = tirx.Cast(dtype, tirx.floormod(over, 2 * factor)) / tirx.const(2.0 * factor, dtype)
            near, far = (tirx.max(tirx.min(place, x.shape[axis] - 1), 0) for place in (lower, lower + 1))
            return taken(near) * (tirx.const(1.0, dtype) - share) + taken(far) * share

        return te.compute([expr(extent) for extent in shape], element, name="upsample")

    return bb.call_te(between, data, primfunc_name_hint="resize")
