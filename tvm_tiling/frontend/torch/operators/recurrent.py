"""LSTM, GRU and RNN of PyTorch: all layers and directions, each as a matrix multiplication and a recurrence.

Float32 layers without projections become the kernels of recurrent_layer.py, and so do those of 16-bit floats, in
float32. All others are emitted as loops over the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax import op
from tvm.script.ir_builder import tirx as tir

from ....decide.rnn.recurrence import Recurrence
from ...recurrent_layer import DirectionWeights, direction_of, recurrent_direction, stacked
from ..translation import Translation, Unsupported, Value, converter, dtype_of, shape_of
from ..types import DTYPES, NAMES, computed_in, is_float
from .elementwise import in_libm, real
from .loops import looped
from .products import product, turned
from .views import part, permuted, reshaped

# PyTorch's gate order.
_ORDERS = {"lstm": "ifgo", "gru": "rzn", "rnn": "h"}


@dataclass(frozen=True)
class _Layers:
    """The configuration of one operator's layers. `biases`: whether they have biases."""

    cell: str
    activation: str
    biases: bool
    count: int
    directions: int

    @property
    def states(self) -> int:
        return 2 if self.cell == "lstm" else 1


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
    ) -> list[relax.Expr]:
        if train and dropout:
            raise Unsupported("dropout in training is not supported; expected a module in eval()")
        if not is_float(dtype_of(input)) or len(shape_of(input)) != 3:
            raise Unsupported(
                f"input {shape_of(input)} of {dtype_of(input)} is not supported; expected three axes of floats"
            )
        layers = _Layers(cell, activation, has_biases, num_layers, 2 if bidirectional else 1)
        wide = computed_in(dtype_of(input))
        starts = [_wide(t, start, wide) for start in (hx if cell == "lstm" else [hx])]
        x = _wide(t, input, wide)
        x = permuted(t, x, [1, 0, 2]) if batch_first else x
        results = _run(t, layers, x, starts, [_wide(t, weight, wide) for weight in params])
        if batch_first:
            results[0] = permuted(t, results[0], [1, 0, 2])
        records = t.node.meta["val"]  # type: ignore[union-attr]
        return [t.cast(value, NAMES[record.dtype]) for value, record in zip(results, records, strict=True)]


def _wide(t: Translation, value: relax.Expr, dtype: str) -> relax.Expr:
    """A tensor in the type of the computation; a constant remains a constant, so that weights are packed."""
    known = t.content(value)
    if known is None or dtype_of(value) == dtype:
        return t.cast(value, dtype)
    return t.constant(known.to(DTYPES[dtype]))


def _run(
    t: Translation, layers: _Layers, x: relax.Expr, starts: list[relax.Expr], weights: list[relax.Expr]
) -> list[relax.Expr]:
    """The outputs of the last layer, and the last states of all layers and directions."""
    each = len(weights) // (layers.count * layers.directions)
    projects = each % 2 == 1  # one more matrix
    one_direction = _loops if projects or dtype_of(x) != "float32" else _kernel
    finals: list[list[relax.Expr]] = [[] for _ in starts]
    for layer in range(layers.count):
        outputs = []
        for direction in range(layers.directions):
            place = layer * layers.directions + direction
            own = weights[place * each : (place + 1) * each]
            output, *final = one_direction(t, layers, x, own, starts, place)
            outputs.append(output)
            for kept, state in zip(finals, final, strict=True):
                kept.append(state)
        x = outputs[0] if layers.directions == 1 else t.emit(op.concat(outputs, 2))
    return [x, *(stacked(t.builder, states) for states in finals)]


def _kernel(
    t: Translation,
    layers: _Layers,
    x: relax.Expr,
    weights: list[relax.Expr],
    starts: Sequence[relax.Expr],
    place: int,
) -> list[relax.Expr]:
    """One direction of one layer; `place` is its index among all."""
    steps, batch, _ = shape_of(x)
    recurrence = Recurrence(
        cell=layers.cell,
        steps=steps,
        batch=batch,
        hidden=shape_of(weights[1])[1],
        order=_ORDERS[layers.cell],
        reverse=place % layers.directions == 1,
        activation=layers.activation,
    )
    at = [_of_direction(t.builder, start, place) for start in starts]
    return recurrent_direction(t.builder, recurrence, x, DirectionWeights(*weights), at)


def _of_direction(builder: relax.BlockBuilder, states: relax.Expr, place: int) -> relax.Expr | None:
    """One direction's part of all initial states; None if they are 0."""
    if isinstance(states, tvm.ir.GenericConst) and not states.value.numpy().any():
        return None
    return direction_of(builder, states, place)


# ---- any type, with projections -------------------------------------------------------------------------------------


def _loops(
    t: Translation,
    layers: _Layers,
    x: relax.Expr,
    weights: list[relax.Expr],
    starts: Sequence[relax.Expr],
    place: int,
) -> list[relax.Expr]:
    """Like `_kernel`; a third matrix of an LSTM projects its output."""
    dtype = dtype_of(x)
    steps, batch, _ = shape_of(x)
    rows, width = shape_of(weights[1])  # gates * hidden, and the width of the state
    hidden = rows // len(_ORDERS[layers.cell])
    reverse = place % layers.directions == 1
    at = [reshaped(t, part(t, start, 0, place, place + 1), shape_of(start)[1:]) for start in starts]
    if 0 in (steps, batch):
        return [t.emit(op.zeros((steps, batch, width), dtype)), *at]
    given = product(t, x, turned(t, weights[0]), dtype)
    if layers.biases:
        given = t.emit(op.add(given, weights[2]))
    bias = weights[3] if layers.biases else t.emit(op.zeros((rows,), dtype))
    projection = [turned(t, weights[-1])] if len(weights) % 2 else []
    cell = _CELLS[layers.cell, layers.activation]

    def body(*buffers: Any) -> None:
        taken, made = buffers[: -len(results)], buffers[-len(results) :]
        inputs, matrix, shift, first, *more = taken
        output, h, *cells, gates, new = made
        with tir.parallel(0, batch) as b:
            with tir.serial(0, width) as k:
                h[b, k] = first[b, k]
            for held, start in zip(cells, more, strict=False):
                with tir.serial(0, hidden) as j:
                    held[b, j] = start[b, j]
            with tir.serial(0, steps) as step:
                now = steps - 1 - step if reverse else step
                with tir.serial(0, rows) as g:
                    gates[b, g] = shift[g]
                with tir.serial(0, width) as k, tir.serial(0, rows) as g:
                    gates[b, g] = gates[b, g] + h[b, k] * matrix[k, g]
                with tir.serial(0, hidden) as j:
                    at_gates = [(inputs[now, b, gate * hidden + j], gates[b, gate * hidden + j]) for gate in order]
                    cell(at_gates, (b, j), h, cells, new)
                with tir.serial(0, width) as k:
                    if projection:
                        h[b, k] = real(0, h[b, k])
                        with tir.serial(0, hidden) as j:
                            h[b, k] = h[b, k] + new[b, j] * more[-1][j, k]
                    else:
                        h[b, k] = new[b, k]
                    output[now, b, k] = h[b, k]

    order = range(rows // hidden)
    states = [((batch, width), dtype), ((batch, hidden), dtype)][: layers.states]
    results = [((steps, batch, width), dtype), *states, ((batch, rows), dtype), ((batch, hidden), dtype)]
    operands = [given, turned(t, weights[1]), bias, *at, *projection]
    return looped(t, layers.cell, operands, results, body)[: 1 + layers.states]


# The input and state terms of each gate; the position of the element; the buffers of h, c and the new h.
_Cell = Callable[[list[tuple[Any, Any]], tuple[Any, Any], Any, Sequence[Any], Any], None]


def _lstm(gates: list[tuple[Any, Any]], at: tuple[Any, Any], h: Any, cells: Sequence[Any], new: Any) -> None:
    i, f, g, o = (a + b for a, b in gates)
    (c,) = cells
    c[at] = _sigmoid(f) * c[at] + _sigmoid(i) * _tanh(g)
    new[at] = _sigmoid(o) * _tanh(c[at])


def _gru(gates: list[tuple[Any, Any]], at: tuple[Any, Any], h: Any, cells: Sequence[Any], new: Any) -> None:
    (r, r_state), (z, z_state), (n, n_state) = gates
    new[at] = _tanh(n + _sigmoid(r + r_state) * n_state)
    new[at] = new[at] + _sigmoid(z + z_state) * (h[at] - new[at])


def _rnn(function: Callable[[Any], Any]) -> _Cell:
    def cell(gates: list[tuple[Any, Any]], at: tuple[Any, Any], h: Any, cells: Sequence[Any], new: Any) -> None:
        new[at] = function(gates[0][0] + gates[0][1])

    return cell


def _sigmoid(x: Any) -> Any:
    return real(1, x) / (real(1, x) + in_libm("exp")(-x))


def _tanh(x: Any) -> Any:
    return in_libm("tanh")(x)


def _relu(x: Any) -> Any:
    return tirx.max(x, real(0, x))


_CELLS: dict[tuple[str, str], _Cell] = {
    ("lstm", "tanh"): _lstm,
    ("gru", "tanh"): _gru,
    ("rnn", "tanh"): _rnn(_tanh),
    ("rnn", "relu"): _rnn(_relu),
}

_register("lstm.input", "lstm")
_register("gru.input", "gru")
_register("rnn_tanh.input", "rnn")
_register("rnn_relu.input", "rnn", "relu")
