"""Sorting and top-k along an axis, sequences of different lengths, and FIFO buffers."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax, topi
from tvm.relax import op

from ...open_parts import sliced
from ...open_shapes import Size
from ..operands import Operands, Value, axis_in, numbers, rank_of, shape_of


def _sort(call: Operands) -> Value:
    x = call.tensor(0)
    return op.sort(x, axis=axis_in(call["axis"], rank_of(x)), descending=not call["is_ascend"])


def _argsort(call: Operands) -> Value:
    x = call.tensor(0)
    axis = axis_in(call["axis"], rank_of(x))
    return op.argsort(x, axis=axis, descending=not call["is_ascend"], dtype=str(call["dtype"] or "int32"))


def _topk(call: Operands) -> Value:
    x = call.tensor(0)
    shape = call.extents(x)
    axis = axis_in(call["axis"], len(shape))
    k = call.sizes(1, "k")[0] if len(call.args) > 1 else numbers(call["k"])[0]
    kinds = ("both", "values", "indices")
    if call["ret_type"] not in kinds:
        raise ValueError(f"ret_type = {call['ret_type']!r}; expected {', '.join(kinds)}")
    if not all(isinstance(size, int) for size in (k, shape[axis])):
        return _first_of_all(call, x, axis, k)
    return op.topk(
        x,
        k=k if 0 < k <= shape[axis] else shape[axis],
        axis=axis,
        ret_type=str(call["ret_type"]),
        largest=not call["is_ascend"],
        dtype=str(call["dtype"] or "int32"),
    )


def _first_of_all(call: Operands, x: relax.Expr, axis: int, k: Size) -> Value:
    """The first k of all sorted elements: TVM's topk requires a constant k and a static axis."""
    extent = call.extents(x)[axis]
    if isinstance(k, int) and k < 1:
        k = extent
    call.shapes.require_at_least(k, 1)
    call.shapes.require_at_least(extent, k)
    order = call.emit(op.argsort(x, axis, descending=not call["is_ascend"], dtype="int64"))
    places = call.emit(sliced(call.builder, call.shapes, order, {axis: (0, k, 1)}))
    values = call.emit(op.gather_elements(x, places, axis))
    dtype = str(call["dtype"] or "int32")
    indices = places if dtype == "int64" else call.emit(op.astype(places, dtype))
    return {"both": (values, indices), "values": values, "indices": indices}[call["ret_type"]]


def _sequence_mask(call: Operands) -> Value:
    return call.te(topi.sequence_mask, call.tensor(0), call.tensor(1), call["mask_value"], int(call["axis"]))


def _reverse_sequence(call: Operands) -> Value:
    x = call.tensor(0)
    time, batch = (axis_in(call[name], rank_of(x)) for name in ("seq_axis", "batch_axis"))
    lengths = call.positions(call.tensor(1), shape_of(x)[time] + 1, wraps=False, called="length")
    return call.te(topi.reverse_sequence, x, lengths, time, batch)


def _fifo_buffer(call: Operands) -> Value:
    """The last elements of the held tensor followed by the new one, along one axis."""
    new, held = call.tensor(0), call.tensor(1)
    shape = shape_of(held)
    shape_of(new)
    axis = axis_in(call["axis"], len(shape))
    both = call.emit(op.concat([held, new], axis))
    total = shape_of(both)[axis]
    return op.strided_slice(both, [axis], [total - shape[axis]], [total], [1])


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "argsort": _argsort,
    "dyn.topk": _topk,
    "nn.fifo_buffer": _fifo_buffer,
    "reverse_sequence": _reverse_sequence,
    "sequence_mask": _sequence_mask,
    "sort": _sort,
    "topk": _topk,
}
