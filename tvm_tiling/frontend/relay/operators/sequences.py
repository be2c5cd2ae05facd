"""Operators on sequences of several lengths in one tensor, and on a window that moves with the calls."""

from __future__ import annotations

from collections.abc import Callable

from tvm import topi
from tvm.relax import op

from ..operands import Operands, Value, axis_in, shape_of


def _sequence_mask(call: Operands) -> Value:
    return call.te(topi.sequence_mask, call.tensor(0), call.tensor(1), call["mask_value"], int(call["axis"]))


def _reverse_sequence(call: Operands) -> Value:
    x = call.tensor(0)
    time, batch = (axis_in(call[name], len(shape_of(x))) for name in ("seq_axis", "batch_axis"))
    lengths = call.positions(call.tensor(1), shape_of(x)[time] + 1, wraps=False, called="length")
    return call.te(topi.reverse_sequence, x, lengths, time, batch)


def _fifo_buffer(call: Operands) -> Value:
    """The last elements of what was held and what is new, along one axis."""
    new, held = call.tensor(0), call.tensor(1)
    shape = shape_of(held)
    axis = axis_in(call["axis"], len(shape))
    both = call.emit(op.concat([held, new], axis))
    total = shape_of(both)[axis]
    return op.strided_slice(both, [axis], [total - shape[axis]], [total], [1])


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "nn.fifo_buffer": _fifo_buffer,
    "reverse_sequence": _reverse_sequence,
    "sequence_mask": _sequence_mask,
}
