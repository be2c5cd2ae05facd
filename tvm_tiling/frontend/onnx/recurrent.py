"""LSTM, GRU and RNN of ONNX: a recurrence that becomes one kernel, or unrolled steps.

Float32 with the default activations takes the former, also with `clip`. Otherwise one matrix multiplication projects
the inputs of all steps, and each step multiplies the state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ...decide.rnn.recurrence import Recurrence
from ..open_shapes import text, whole
from ..recurrent_layer import DirectionWeights, direction_of, part_of, recurrent_direction, stacked, zeros
from .indexing import positions
from .tensors import as_inputs, dtype_of, number, shape_of


class _Activations:
    """Activation functions of the gates, by ONNX name."""

    def __init__(self, bb: relax.BlockBuilder, attr: dict[str, Any], defaults: list[str], directions: int) -> None:
        self.bb = bb
        given = [name.decode() if isinstance(name, bytes) else name for name in attr.get("activations", ())]
        self.names = given or defaults * directions
        clip = attr.get("clip")
        if clip is not None and not clip > 0:
            raise ValueError(f"clip is {clip:g}; expected a positive number")
        self.clip = None if clip is None or math.isinf(clip) else float(clip)
        if len(self.names) != len(defaults) * directions:
            raise ValueError(f"{len(self.names)} activations are given; expected {len(defaults) * directions}")
        alphas, betas = (iter(attr.get(f"activation_{name}", ())) for name in ("alpha", "beta"))
        self.numbers: list[tuple[float, ...]] = []
        for name in self.names:
            if name.lower() not in _FUNCTIONS:
                raise ValueError(f"activation {name!r} is not supported; expected {', '.join(sorted(_FUNCTIONS))}")
            # Only functions with such a parameter consume a value, in order.
            defaults_of = zip((alphas, betas), _FUNCTIONS[name.lower()][1:], strict=False)
            self.numbers.append(tuple(float(next(left, default)) for left, default in defaults_of))

    def usual(self, place: int, names: tuple[str, ...]) -> bool:
        """Return whether the functions from index `place` on are these."""
        return tuple(name.lower() for name in self.names[place : place + len(names)]) == names

    def apply(self, place: int, value: relax.Expr, clips: bool = True) -> relax.Expr:
        """Apply function number `place` to `value`, clipping it first unless not `clips`."""
        if self.clip is not None and clips:
            value = self.bb.emit(op.clip(value, -self.clip, self.clip))
        function = _FUNCTIONS[self.names[place].lower()][0]
        return self.bb.emit(function(value, *self.numbers[place]))


# Functions with the defaults of their alpha and beta, if they have them.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "affine": (lambda x, a, b: op.add(op.multiply(x, number(a, x)), number(b, x)), 1.0, 0.0),
    "elu": (lambda x, a: op.where(op.less(x, number(0.0, x)), number(a, x) * (op.exp(x) - number(1.0, x)), x), 1.0),
    "hardsigmoid": (
        lambda x, a, b: op.clip(op.add(op.multiply(x, number(a, x)), number(b, x)), 0.0, 1.0),
        0.2,
        0.5,
    ),
    "leakyrelu": (lambda x, a: op.nn.leakyrelu(x, a), 0.01),
    "relu": (lambda x: op.nn.relu(x),),
    "scaledtanh": (lambda x, a, b: op.multiply(number(a, x), op.tanh(op.multiply(number(b, x), x))), 1.0, 1.0),
    "sigmoid": (lambda x: op.sigmoid(x),),
    "softplus": (lambda x: op.nn.softplus(x),),
    "softsign": (lambda x: op.divide(x, op.add(number(1.0, x), op.abs(x))),),
    "tanh": (lambda x: op.tanh(x),),
    "thresholdedrelu": (lambda x, a: op.where(op.greater_equal(x, number(a, x)), x, number(0.0, x)), 1.0),
}

State = tuple[relax.Expr, ...]


class _Recurrent(tvm_onnx.OnnxOpConverter):
    """The common part of the three cells: layout, directions, sequence lengths, and the loop over steps."""

    cell = "rnn"
    order = "h"
    defaults: tuple[str, ...] = ("Tanh",)
    has_cell = False

    @classmethod
    def _step(
        cls, bb: relax.BlockBuilder, projected: relax.Expr, state: State, weights: dict, use: Callable, attr: dict
    ) -> State:
        raise NotImplementedError

    @classmethod
    def _recurrence(cls, functions: _Activations, place: int, attr: dict) -> dict[str, Any] | None:
        """The cell's attributes for a Recurrence; None if a Recurrence does not support the cell."""
        return {} if functions.usual(place, tuple(name.lower() for name in cls.defaults)) else None

    @classmethod
    def _impl_v7(cls, bb, inputs, attr, params):
        x, w, r, b, lengths, first_h = inputs[:6]
        batch_first = attr.get("layout", 0) == 1
        if batch_first:
            x = bb.emit(op.permute_dims(x, [1, 0, 2]))
            first_h = None if first_h is None else bb.emit(op.permute_dims(first_h, [1, 0, 2]))
        steps, batch = (whole(extent) for extent in list(x.ty.shape)[:2])
        if lengths is not None:
            lengths = positions(bb, lengths, steps + 1, attr, wraps=False, called="length")
        directions, _, hidden = shape_of(r)
        dtype, gates = dtype_of(x), len(cls.order)
        way = attr.get("direction", b"forward")
        way = way.decode() if isinstance(way, bytes) else way
        if directions != (2 if way == "bidirectional" else 1):
            raise ValueError(f"R has {directions} directions, but direction is {way!r}")
        if attr.get("hidden_size", hidden) != hidden:
            raise ValueError(f"hidden_size is {attr['hidden_size']}, but R has {hidden} columns")
        _check_shape("W", w, (directions, gates * hidden, shape_of(w)[-1]))
        _check_shape("R", r, (directions, gates * hidden, hidden))
        _check_shape("B", b, (directions, 2 * gates * hidden))
        zero = zeros(bb, (batch, hidden), dtype)
        functions = _Activations(bb, attr, list(cls.defaults), directions)
        starts = [first_h] + ([inputs[6]] if cls.has_cell else [])
        if batch_first and cls.has_cell and starts[1] is not None:
            starts[1] = bb.emit(op.permute_dims(starts[1], [1, 0, 2]))
        if lengths is not None:
            starts = [start if start is None else _of_some_steps(bb, start, lengths) for start in starts]

        def part(value: relax.Expr | None, direction: int) -> relax.Expr | None:
            return None if value is None else direction_of(bb, value, direction)

        every: list[relax.Expr] = []
        last: list[list[relax.Expr]] = []
        for direction in range(directions):
            offset = direction * len(cls.defaults)
            known = cls._recurrence(functions, offset, attr) if dtype == "float32" else None
            backward = way == "reverse" or direction == 1
            state = tuple(part(start, direction) for start in starts)
            peepholes = part(inputs[7], direction) if cls.has_cell else None
            bias = part(b, direction)
            rows = [(half * len(cls.order) * hidden, (half + 1) * len(cls.order) * hidden) for half in range(2)]
            halves = [None if bias is None else part_of(bb, bias, *half) for half in rows]
            if known is not None:
                layer = Recurrence(
                    cell=cls.cell,
                    steps=steps,
                    batch=batch,
                    hidden=hidden,
                    order=cls.order,
                    reverse=backward,
                    lengths=lengths is not None,
                    peepholes=peepholes is not None,
                    clip=functions.clip,
                    **known,
                )
                given = DirectionWeights(part(w, direction), part(r, direction), halves[0], halves[1], peepholes)
                output, *final = recurrent_direction(bb, layer, x, given, state, lengths)
                every.append(output)
                last.append(final)
                continue
            if not isinstance(steps, int):
                raise ValueError(f"steps are unrolled with this algorithm, but their count is {text(steps)}")
            weights: dict[str, relax.Expr | None] = {"r": bb.emit(op.permute_dims(part(r, direction)))}
            projected = bb.emit(op.matmul(x, op.permute_dims(part(w, direction))))
            if bias is not None:
                projected = bb.emit(projected + halves[0])
                weights["rb"] = bb.emit(halves[1])
            weights["p"] = peepholes
            state = tuple(zero if start is None else start for start in state)
            outputs: list[relax.Expr] = [zero] * steps
            for step in reversed(range(steps)) if backward else range(steps):
                at = bb.emit(op.squeeze(op.strided_slice(projected, [0], [step], [step + 1]), [0]))
                new = cls._step(bb, at, state, weights, lambda k, *v, o=offset: functions.apply(o + k, *v), attr)
                outputs[step] = new[0]
                if lengths is not None:
                    live = bb.emit(op.less(relax.const(step, "int64"), op.astype(lengths, "int64")))
                    live = bb.emit(op.expand_dims(live, 1))
                    outputs[step] = bb.emit(op.where(live, new[0], zero))
                    new = tuple(bb.emit(op.where(live, *pair)) for pair in zip(new, state, strict=True))
                state = new
            every.append(bb.emit(op.stack(outputs, 0)))
            last.append(list(state))
        results = [stacked(bb, every, 1)]
        results += [stacked(bb, [state[place] for state in last]) for place in range(len(starts))]
        if batch_first:
            results[0] = bb.emit(op.permute_dims(results[0], [2, 0, 1, 3]))
            results[1:] = [bb.emit(op.permute_dims(value, [1, 0, 2])) for value in results[1:]]
        return relax.Tuple(results)


def _check_shape(name: str, value: relax.Expr | None, expected: tuple[int, ...]) -> None:
    """Raise ValueError if weights have another shape: kernels read as many rows as there are gates."""
    if value is not None and tuple(shape_of(value)) != expected:
        raise ValueError(f"{name} has shape {tuple(shape_of(value))}; expected {expected}")


def _of_some_steps(bb: relax.BlockBuilder, start: relax.Expr, lengths: relax.Expr) -> relax.Expr:
    """The initial state, or zeros for sequences without steps, as in onnxruntime; the standard does not define this."""
    some = bb.emit(op.greater(lengths, relax.const(0, dtype_of(lengths))))
    spread = bb.emit(op.reshape(some, [1, -1, 1]))
    return bb.emit(op.where(spread, start, relax.const(0, dtype_of(start))))


def _recurrence(bb: relax.BlockBuilder, state: relax.Expr, weights: dict) -> relax.Expr:
    """The state times the recurrent weights of all gates, plus their bias."""
    product = bb.emit(op.matmul(state, weights["r"]))
    return product if weights.get("rb") is None else bb.emit(product + weights["rb"])


class Rnn(_Recurrent):
    """h' = f(x W + h R + b)."""

    @classmethod
    def _recurrence(cls, functions, place, attr):
        return next(({"activation": name} for name in ("tanh", "relu") if functions.usual(place, (name,))), None)

    @classmethod
    def _step(cls, bb, projected, state, weights, use, attr):
        return (use(0, bb.emit(projected + _recurrence(bb, state[0], weights))),)


class Gru(_Recurrent):
    """Gates in the order z, r, h; h' = (1 - z) h~ + z h."""

    cell, order = "gru", "zrn"
    defaults = ("Sigmoid", "Tanh")

    @classmethod
    def _recurrence(cls, functions, place, attr):
        usual = super()._recurrence(functions, place, attr)
        return None if usual is None else {"reset_after": bool(attr.get("linear_before_reset", 0))}

    @classmethod
    def _step(cls, bb, projected, state, weights, use, attr):
        (h,) = state
        width = int(h.ty.shape[1])
        xz, xr, xh = (bb.emit(part) for part in bb.emit(op.split(projected, 3, 1)))
        if attr.get("linear_before_reset", 0):
            hz, hr, hh = (bb.emit(part) for part in bb.emit(op.split(_recurrence(bb, h, weights), 3, 1)))
            z, r = use(0, bb.emit(xz + hz)), use(0, bb.emit(xr + hr))
            candidate = use(1, bb.emit(xh + r * hh))
        else:
            both = bb.emit(op.matmul(h, op.strided_slice(weights["r"], [1], [0], [2 * width])))
            own = bb.emit(op.strided_slice(weights["r"], [1], [2 * width], [3 * width]))
            bias = weights.get("rb")
            if bias is not None:
                both = bb.emit(both + op.strided_slice(bias, [0], [0], [2 * width]))
                xh = bb.emit(xh + op.strided_slice(bias, [0], [2 * width], [3 * width]))
            hz, hr = (bb.emit(part) for part in bb.emit(op.split(both, 2, 1)))
            z, r = use(0, bb.emit(xz + hz)), use(0, bb.emit(xr + hr))
            candidate = use(1, bb.emit(xh + op.matmul(bb.emit(r * h), own)))
        return (bb.emit((number(1.0, z) - z) * candidate + z * h),)


class Lstm(_Recurrent):
    """Gates in the order i, o, f, c, with optional peepholes."""

    cell, order = "lstm", "iofg"
    defaults = ("Sigmoid", "Tanh", "Tanh")
    has_cell = True

    @classmethod
    def _recurrence(cls, functions, place, attr):
        return None if attr.get("input_forget", 0) else super()._recurrence(functions, place, attr)

    @classmethod
    def _step(cls, bb, projected, state, weights, use, attr):
        h, c = state
        total = bb.emit(projected + _recurrence(bb, h, weights))
        i, o, f, g = (bb.emit(part) for part in bb.emit(op.split(total, 4, 1)))
        peep = [None] * 3
        if weights["p"] is not None:
            peep = [bb.emit(part) for part in bb.emit(op.split(weights["p"], 3, 0))]
            i, f = bb.emit(i + peep[0] * c), bb.emit(f + peep[2] * c)
        i = use(0, i)
        f = bb.emit(number(1.0, i) - i) if attr.get("input_forget", 0) else use(0, f)
        cell = bb.emit(f * c + i * use(1, g))
        if peep[1] is not None:
            o = bb.emit(o + peep[1] * cell)
        # Not clipped, as in onnxruntime and OpenVINO: the standard's text does not say which activations it means.
        hidden = bb.emit(use(0, o) * use(2, cell, False))
        return hidden, cell


class DynamicQuantizeLstm(tvm_onnx.OnnxOpConverter):
    """The LSTM of com.microsoft with transposed 8-bit weights.

    The weights are dequantised before the multiplication, so that inputs and states keep their precision; onnxruntime
    quantises those to 8 bits before each matrix multiplication.
    """

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        x, w, r, *rest = inputs[:8]
        w_scale, w_zero, r_scale, r_zero = inputs[8:12]
        weights = [cls._floats(bb, *given) for given in ((w, w_scale, w_zero), (r, r_scale, r_zero))]
        return Lstm._impl_v7(bb, as_inputs(x, *weights, *rest), attr, params)

    @staticmethod
    def _floats(bb: relax.BlockBuilder, stored: relax.Expr, scale: relax.Expr, zero: relax.Expr | None) -> relax.Expr:
        """float32[directions, gates, terms] from integers [directions, terms, gates]; one scale per direction or per
        gate row."""
        per_direction = [shape_of(stored)[0], 1, -1]
        wide = bb.emit(op.astype(stored, "int32"))
        if zero is not None:
            wide = bb.emit(wide - bb.emit(op.reshape(bb.emit(op.astype(zero, "int32")), per_direction)))
        floats = bb.emit(op.astype(wide, "float32") * bb.emit(op.reshape(scale, per_direction)))
        return bb.emit(op.permute_dims(floats, [0, 2, 1]))


CONVERTERS: dict[str, Any] = {"GRU": Gru, "LSTM": Lstm, "RNN": Rnn}
CONTRIBUTED: dict[str, Any] = {"DynamicQuantizeLSTM": DynamicQuantizeLstm}
"""Converters for the domain com.microsoft."""
