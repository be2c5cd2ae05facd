"""Slices of tensors, and assignments to slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx, topi
from tvm.relax import op

from ...open_parts import FAR, bounds, lifted, sliced
from ...open_shapes import Size, plus
from ..operands import Operands, Value, axis_in, numbers, rank_of, shape_of


def _given(call: Operands, name: str, place: int) -> list[Size]:
    """An attribute, or the operand that replaces it."""
    if call[name] is not None:
        return [*numbers(call[name])]
    return call.sizes(place, name) if len(call.args) > place else []


def _slices(call: Operands, shape: Sequence[Size]) -> list[tuple[int, Size, Size, int]]:
    """Axes, first positions, element counts and steps; positions are clamped to the axis."""
    begin, end, strides = (_given(call, name, place) for place, name in enumerate(("begin", "end", "strides"), 1))
    stated = call["axes"]
    axes = [axis_in(axis, len(shape)) for axis in numbers(stated)] if stated is not None else list(range(len(shape)))
    sizes = call["slice_mode"] == "size"
    places: list[tuple[int, Size, Size, int]] = []
    for number, axis in enumerate(axes):
        step = 1 if sizes else _item(strides, number, 1)
        if not isinstance(step, int) or step == 0:
            raise ValueError("strides contains 0 or a dynamic size; expected nonzero numbers")
        first = _item(begin, number, 0 if step > 0 else FAR)
        last = _item(end, number, FAR if step > 0 else -FAR)
        extent = shape[axis]
        if not all(isinstance(size, int) for size in (extent, first, last)):
            if sizes:
                first = lifted(call.shapes, first, extent)
                last = FAR if isinstance(last, int) and last < 0 else call.shapes.simplified(plus(first, last))
            places.append((axis, *bounds(call.shapes, first, last, step, extent), step))
            continue
        if sizes:
            first = first + extent if first < 0 else first
            last = extent if last < 0 else first + last
        start, stop, _ = slice(first, last, step).indices(extent)
        places.append((axis, start, len(range(start, stop, step)), step))
    return places


def _item(values: Sequence[Size], place: int, default: int) -> Size:
    return values[place] if place < len(values) else default


def _strided_slice(call: Operands) -> Value:
    x = call.tensor(0)
    shape = call.extents(x)
    cuts = _slices(call, shape)
    if not cuts:
        return x
    if not all(isinstance(size, int) for axis, first, count, _ in cuts for size in (shape[axis], first, count)):
        places = {axis: (first, count, step) for axis, first, count, step in cuts}
        return sliced(call.builder, call.shapes, x, places)
    ends = []
    for axis, first, count, step in cuts:
        end = first + count * step
        # Backwards, the position before the first element has no index of its own: -1 would be the last element.
        ends.append(end if end >= 0 else -shape[axis] - 1)
    axes, begin, _, strides = map(list, zip(*cuts, strict=True))
    return op.strided_slice(x, axes, begin, ends, strides)


def _slice_like(call: Operands) -> Value:
    x, like = call.tensor(0), call.tensor(1)
    shape, other = call.extents(x), call.extents(like)
    stated = numbers(call["axes"]) if call["axes"] is not None else []
    axes = [axis_in(axis, len(shape)) for axis in stated] or list(range(min(len(shape), len(other))))
    if all(isinstance(size, int) for axis in axes for size in (shape[axis], other[axis])):
        return op.strided_slice(x, axes, [0] * len(axes), [other[axis] for axis in axes], [1] * len(axes))
    for axis in axes:
        call.shapes.require_at_least(shape[axis], other[axis])
    return sliced(call.builder, call.shapes, x, {axis: (0, other[axis], 1) for axis in axes})


def _strided_set(call: Operands) -> Value:
    begin, end = (call.known(place, what).reshape(-1).tolist() for place, what in ((2, "begin"), (3, "end")))
    strides = call.known(4, "strides").reshape(-1).tolist() if len(call.args) > 4 else [1] * len(begin)
    x = call.tensor(0)
    if any(step == 0 for step in strides):
        raise ValueError("strides contains 0; expected nonzero numbers")
    shape = shape_of(x)
    spans = [slice(*span).indices(extent) for *span, extent in zip(begin, end, strides, shape, strict=False)]
    return call.te(_with_slice, x, call.tensor(1), spans)


def _with_slice(x: Value, values: Value, spans: list[tuple[int, int, int]]) -> Value:
    """`x` with `values` at the positions of `spans`."""

    def element(*at: Value) -> Value:
        inside, places = [], []
        for place, (start, stop, step) in zip(at, spans, strict=False):
            number = tirx.floordiv(place - start, step)
            count = len(range(start, stop, step))
            inside += [number >= 0, number < count, place == start + number * step]
            places.append(number)
        places += at[len(spans) :]
        return tirx.if_then_else(tirx.all(*inside), values[tuple(places)], x[at])

    return te.compute(x.shape, element, name="strided_set")


def _sliding_window(call: Operands) -> Value:
    return call.te(
        topi.sliding_window,
        call.tensor(0),
        axis_in(call["axis"], rank_of(call.tensor(0))),
        numbers(call["window_shape"]),
        numbers(call["strides"]),
    )


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "dyn.strided_slice": _strided_slice,
    "slice_like": _slice_like,
    "sliding_window": _sliding_window,
    "strided_set": _strided_set,
    "strided_slice": _strided_slice,
}
