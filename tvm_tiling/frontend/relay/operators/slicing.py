"""Cutting pieces out of tensors, and putting pieces into them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx, topi
from tvm.relax import op

from ..operands import Operands, Value, axis_in, numbers, shape_of


def _given(call: Operands, name: str, place: int) -> list[int] | None:
    """An attribute, or the operand that stands for it."""
    if call[name] is not None:
        return numbers(call[name])
    if len(call.args) > place:
        return [int(value) for value in call.known(place, name).reshape(-1)]
    return None


def _slices(call: Operands, shape: Sequence[int]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Axes, first places, places behind the last, and steps, as Python's slices have them."""
    begin, end, strides = (_given(call, name, place) for place, name in enumerate(("begin", "end", "strides"), 1))
    begin, end, strides = begin or [], end or [], strides or []
    stated = call["axes"]
    axes = [axis_in(axis, len(shape)) for axis in numbers(stated)] if stated is not None else list(range(len(shape)))
    sizes = call["slice_mode"] == "size"
    places = []
    for number, axis in enumerate(axes):
        step = 1 if sizes else _item(strides, number, 1)
        if step == 0:
            raise ValueError("strides holds 0; accepted: anything else")
        extent = shape[axis]
        first = _item(begin, number, 0 if step > 0 else extent - 1)
        last = _item(end, number, extent if step > 0 else -extent - 1)
        if sizes:
            first = first + extent if first < 0 else first
            last = extent if last < 0 else first + last
        start, stop, _ = slice(first, last, step).indices(extent)
        places.append((axis, start, stop, step))
    return tuple(map(list, zip(*places, strict=True))) if places else ([], [], [], [])  # type: ignore[return-value]


def _item(values: Sequence[int], place: int, default: int) -> int:
    return values[place] if place < len(values) else default


def _strided_slice(call: Operands) -> Value:
    x = call.tensor(0)
    axes, begin, end, strides = _slices(call, shape_of(x))
    for at, step in enumerate(strides):
        if step < 0:
            # Backwards, the place before the first element has no name of its own: -1 would be the last.
            end[at] = end[at] if end[at] >= 0 else -shape_of(x)[axes[at]] - 1
    return op.strided_slice(x, axes, begin, end, strides) if axes else x


def _slice_like(call: Operands) -> Value:
    x, like = call.tensor(0), call.tensor(1)
    shape, other = shape_of(x), shape_of(like)
    stated = numbers(call["axes"]) if call["axes"] is not None else []
    axes = [axis_in(axis, len(shape)) for axis in stated] or list(range(min(len(shape), len(other))))
    return op.strided_slice(x, axes, [0] * len(axes), [other[axis] for axis in axes], [1] * len(axes))


def _strided_set(call: Operands) -> Value:
    begin, end = (call.known(place, what).reshape(-1).tolist() for place, what in ((2, "begin"), (3, "end")))
    strides = call.known(4, "strides").reshape(-1).tolist() if len(call.args) > 4 else [1] * len(begin)
    x = call.tensor(0)
    if any(step == 0 for step in strides):
        raise ValueError("strides holds 0; accepted: anything else")
    shape = shape_of(x)
    spans = [slice(*span).indices(extent) for *span, extent in zip(begin, end, strides, shape, strict=False)]
    return call.te(_with_slice, x, call.tensor(1), spans)


def _with_slice(x: Value, values: Value, spans: list[tuple[int, int, int]]) -> Value:
    """`x` with `values` at the places of `spans`."""

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
        axis_in(call["axis"], len(shape_of(call.tensor(0)))),
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
