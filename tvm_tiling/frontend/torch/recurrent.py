"""LSTM, GRU and RNN of PyTorch: all layers and directions, each a product and a recurrence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter as Importer

from ...decide.rnn.recurrence import Recurrence
from ..recurrent_layer import DirectionWeights, direction_of, recurrent_direction, stacked

# PyTorch's order of the gates.
_ORDERS = {"lstm": "ifgo", "gru": "rzn", "rnn": "h"}


def _converter(cell: str, activation: str = "tanh") -> Callable[[torch.fx.Node, Importer], relax.Var]:
    def convert(node: torch.fx.Node, importer: Importer) -> relax.Var:
        x, start, weights, biases, layers, _, _, bidirectional, batch_first = importer.retrieve_args(node)
        starts = list(start) if cell == "lstm" else [start]
        return _layers(importer, cell, activation, x, starts, list(weights), biases, layers, bidirectional, batch_first)

    return convert


def _layers(
    importer: Importer,
    cell: str,
    activation: str,
    x: relax.Expr,
    starts: list[relax.Expr],
    weights: list[relax.Expr],
    biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> relax.Var:
    """The outputs of the last layer, and the last states of all layers and directions."""
    builder = importer.block_builder
    directions = 2 if bidirectional else 1
    each = 4 if biases else 2
    if str(x.ty.dtype) != "float32" or len(x.ty.shape) != 3:
        raise ValueError(f"{cell} of {x.ty}; accepted: float32 of three dimensions")
    if len(weights) != layers * directions * each:
        raise ValueError(f"{cell} with projections; accepted: proj_size=0")
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
    return builder.emit(relax.Tuple([x, *(stacked(builder, states) for states in finals)]))


def _of_direction(builder: relax.BlockBuilder, states: relax.Expr, place: int) -> relax.Expr | None:
    """One direction's part of the states of all; None where they are 0."""
    value = builder.lookup_binding(states) if isinstance(states, relax.Var) else states
    if isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.full":
        filled = value.args[1]
        if isinstance(filled, tvm.ir.GenericConst) and not filled.value.numpy().any():
            return None
    return direction_of(builder, states, place)


CONVERTERS: dict[str, Callable[[torch.fx.Node, Importer], relax.Var]] = {
    "lstm.input": _converter("lstm"),
    "gru.input": _converter("gru"),
    "rnn_tanh.input": _converter("rnn"),
    "rnn_relu.input": _converter("rnn", "relu"),
}
