"""LSTM, GRU and RNN of PyTorch: all layers and directions, each a product and a recurrence."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax import op

from ....decide.rnn.recurrence import Recurrence
from ...recurrent_layer import DirectionWeights, direction_of, recurrent_direction, stacked
from ..translation import Translation, Unserved, Value, converter, dtype_of, shape_of

# PyTorch's order of the gates.
_ORDERS = {"lstm": "ifgo", "gru": "rzn", "rnn": "h"}


def _register(operator: str, cell: str, activation: str = "tanh") -> None:
    @converter(operator)
    def convert(
        t: Translation,
        input: relax.Expr,
        hx: Value,
        params: list[relax.Expr],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[relax.Expr, ...]:
        if train and dropout:
            raise Unserved("dropout while training; expected a module in eval()")
        starts = list(hx) if cell == "lstm" else [hx]
        return _layers(
            t.builder, cell, activation, input, starts, params, has_biases, num_layers, bidirectional, batch_first
        )


def _layers(
    builder: relax.BlockBuilder,
    cell: str,
    activation: str,
    x: relax.Expr,
    starts: list[relax.Expr],
    weights: list[relax.Expr],
    biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[relax.Expr, ...]:
    """The outputs of the last layer, and the last states of all layers and directions."""
    directions = 2 if bidirectional else 1
    each = 4 if biases else 2
    if dtype_of(x) != "float32" or len(shape_of(x)) != 3:
        raise Unserved(f"input {shape_of(x)} of {dtype_of(x)}; expected three axes of float32")
    if len(weights) != layers * directions * each:
        raise Unserved("weights with projections; expected proj_size=0")
    if batch_first:
        x = builder.emit(op.permute_dims(x, [1, 0, 2]))
    finals: list[list[Any]] = [[] for _ in starts]
    for layer in range(layers):
        steps, batch, _ = (int(extent) for extent in x.ty.shape)
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            own = weights[place * each : (place + 1) * each]
            recurrence = Recurrence(
                cell=cell,
                steps=steps,
                batch=batch,
                hidden=int(own[1].ty.shape[1]),
                order=_ORDERS[cell],
                reverse=direction == 1,
                activation=activation,
            )
            at = [_of_direction(builder, start, place) for start in starts]
            output, *final = recurrent_direction(builder, recurrence, x, DirectionWeights(*own), at)
            outputs.append(output)
            for kept, state in zip(finals, final, strict=True):
                kept.append(state)
        x = outputs[0] if directions == 1 else builder.emit(op.concat(outputs, 2))
    if batch_first:
        x = builder.emit(op.permute_dims(x, [1, 0, 2]))
    return (x, *(stacked(builder, states) for states in finals))


def _of_direction(builder: relax.BlockBuilder, states: relax.Expr, place: int) -> relax.Expr | None:
    """One direction's part of the states of all; None where they are 0."""
    if isinstance(states, tvm.ir.GenericConst) and not states.value.numpy().any():
        return None
    return direction_of(builder, states, place)


_register("lstm.input", "lstm")
_register("gru.input", "gru")
_register("rnn_tanh.input", "rnn")
_register("rnn_relu.input", "rnn", "relu")
