"""One direction of a recurrent layer in Relax: a matrix multiplication of the inputs of all steps by their weights,
then a call of the recurrence, which becomes one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from ..decide.rnn.recurrence import Recurrence
from ..lowering.recurrent_loops import recurrent_function
from .open_shapes import Size


@dataclass(frozen=True)
class DirectionWeights:
    """Weights of the inputs, gates * hidden x inputs, and of the state, gates * hidden x hidden; their biases, one per
    row; and an LSTM's peepholes, if any."""

    inputs: relax.Expr
    state: relax.Expr
    input_bias: relax.Expr | None = None
    state_bias: relax.Expr | None = None
    peepholes: relax.Expr | None = None


def recurrent_direction(
    builder: relax.BlockBuilder,
    recurrence: Recurrence,
    x: relax.Expr,
    weights: DirectionWeights,
    starts: Sequence[relax.Expr | None],
    lengths: relax.Expr | None = None,
) -> list[relax.Expr]:
    """h of all steps (steps x batch x hidden), then h and, for an LSTM, c after the last step (batch x hidden).

    `x` is steps x batch x inputs; `starts` are h and c before the first step, None for 0; `lengths` is the number of
    steps of each sequence.
    """
    r, emit = recurrence, builder.emit
    projected = emit(op.matmul(x, emit(op.permute_dims(weights.inputs))))
    biases = [weights.input_bias]
    candidate = None
    if weights.state_bias is not None and "bias" in r.inputs:
        # The candidate's bias is inside the term multiplied by the reset gate; the others are added to the input
        # biases.
        at = r.order.index("n") * r.hidden
        candidate = part_of(builder, weights.state_bias, at, at + r.hidden)
        others = np.ones(r.gates * r.hidden, "float32")
        others[at : at + r.hidden] = 0
        biases.append(emit(op.multiply(weights.state_bias, relax.const(others))))
    else:
        biases.append(weights.state_bias)
    given = [bias for bias in biases if bias is not None]
    if given:
        projected = emit(op.add(projected, given[0] if len(given) == 1 else emit(op.add(*given))))
    return recurrence_call(
        builder, r, projected, weights.state, starts, bias=candidate, peepholes=weights.peepholes, lengths=lengths
    )


def recurrence_call(
    builder: relax.BlockBuilder,
    recurrence: Recurrence,
    projected: relax.Expr,
    weights: relax.Expr,
    starts: Sequence[relax.Expr | None],
    *,
    bias: relax.Expr | None = None,
    peepholes: relax.Expr | None = None,
    lengths: relax.Expr | None = None,
) -> list[relax.Expr]:
    """Like recurrent_direction, but from `projected`: the inputs of all steps times their weights, plus biases (steps x
    batch x gates * hidden). `bias` belongs to the term that a GRU's reset gate multiplies; None for 0."""
    r, emit = recurrence, builder.emit
    none = zeros(builder, (r.batch, r.hidden), "float32")
    h0, c0 = (none if start is None else start for start in (*starts, None, None)[:2])
    if any(isinstance(extent, int) and extent == 0 for extent in (r.steps, r.batch)):
        nothing = emit(op.zeros((r.steps, r.batch, r.hidden), "float32"))
        return [nothing, h0, c0][: len(r.outputs)]
    values = {
        "projected": projected,
        "weights": weights,
        "h0": h0,
        "c0": c0,
        "bias": relax.const(np.zeros(r.hidden, "float32")) if bias is None else bias,
        "peepholes": peepholes,
        "lengths": lengths if lengths is None else emit(op.astype(lengths, "int32")),
    }
    function = builder.add_func(recurrent_function(r).without_attr("global_symbol"), "recurrence")
    types = [relax.TensorType(shape, "float32") for shape in r.outputs.values()]
    called = emit(relax.call_tir(function, relax.Tuple([values[name] for name in r.inputs]), types))
    return [emit(relax.TupleGetItem(called, place)) for place in range(len(types))]


def zeros(builder: relax.BlockBuilder, shape: Sequence[Size], dtype: str) -> relax.Expr:
    """A tensor of zeros: a constant if its shape is static."""
    if all(isinstance(extent, int) for extent in shape):
        return relax.const(np.zeros(tuple(shape), dtype), dtype)
    return builder.emit(op.broadcast_to(relax.const(0, dtype), relax.ShapeExpr(list(shape))))


def part_of(builder: relax.BlockBuilder, value: relax.Expr, start: int, end: int) -> relax.Expr:
    """[start, end) of the first axis; a constant remains a constant, so that weights are packed at compile time."""
    if isinstance(value, tvm.ir.GenericConst):
        return relax.const(np.ascontiguousarray(value.value.numpy()[start:end]), str(value.ty.dtype))
    if (start, end) == (0, int(value.ty.shape[0])):
        return value
    return builder.emit(op.strided_slice(value, [0], [start], [end]))


def direction_of(builder: relax.BlockBuilder, value: relax.Expr, direction: int) -> relax.Expr:
    """One index of the first axis."""
    if isinstance(value, tvm.ir.GenericConst):
        return relax.const(np.ascontiguousarray(value.value.numpy()[direction]), str(value.ty.dtype))
    return builder.emit(op.squeeze(part_of(builder, value, direction, direction + 1), [0]))


def stacked(builder: relax.BlockBuilder, parts: Sequence[relax.Expr], axis: int = 0) -> relax.Expr:
    """The parts along a new axis; a single one is not copied."""
    return builder.emit(op.expand_dims(parts[0], axis) if len(parts) == 1 else op.stack(list(parts), axis))
