"""Recurrent layers of a float32 graph on the column engine: quantised to its 16-bit fixed point, one program per layer.

Vectors and the tail have 12 fraction bits, so values outside -8 .. 8 saturate. Weights have as many as possible without
a sum that could overflow 32 bits, for any x: a row's sum is bounded by that of its weights, those of x times 8 and
those of h times 1 (times 8 if h is unbounded). Between layers values are float32 again, which is lossless. A layer that
the engine does not support runs on the CPU, with the reason.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from ...accel.program.program import Program
from ...accel.recurrent.layer import FixedPoint
from ...accel.recurrent.sequences import Given, sequence_program, step_program
from ...accel.recurrent.weights import SUMS, combined_weights, row_places
from ...decide.rnn.column import decide_rnn
from ...decide.rnn.recurrence import Recurrence
from ...errors import HardwareError, UnsupportedOperator
from ...frontend.node_names import names_in, nodes_named, numbers_of
from ...hardware.description import Hardware
from ...match.recurrent import recurrence_of
from ...workload import RnnWorkload
from ..passes.cells import Graph
from ..passes.dataflow import Expr, Rewriter, array, is_op, rewrite, shape_of
from ..passes.roll import roll_cells
from ..passes.simplify import simplify
from .partition import SEGMENT

FRACTION = 12
LARGEST = 2**15 / 2**FRACTION  # maximum magnitude of a vector element
MOST_WEIGHT_BITS = 15


@dataclass(frozen=True)
class QuantisedLayers:
    """`module`: the graph with a segment call in place of each recurrent layer; `programs` of the segments, from number
    0, and `steps`, the program of one time step of each. `left`: the reason why recurrences run on the CPU, by function
    name. `nodes`: the model nodes computed by each program."""

    module: tvm.IRModule
    programs: tuple[Program, ...]
    steps: tuple[Program, ...]
    left: dict[str, str]
    nodes: tuple[tuple[str, ...], ...] = ()


def quantised_layers(mod: tvm.IRModule, hardware: Hardware) -> QuantisedLayers | None:
    """The recurrent layers of `mod` for `hardware`; None if it has no column engine, or the graph has no such layer."""
    if hardware.column is None:
        return None
    mod = simplify(roll_cells(mod))
    known = {v: found for v, func in mod.functions.items() if (found := _recurrence(func)) is not None}
    if not known:
        return None
    layers = _Layers(Graph(mod["main"]), names_in(mod), known, hardware)
    module = simplify(rewrite(mod, layers.call))
    return QuantisedLayers(module, tuple(layers.programs), tuple(layers.steps), layers.left, tuple(layers.nodes))


def _recurrence(func: object) -> Recurrence | None:
    return recurrence_of(func) if isinstance(func, tvm.tirx.PrimFunc) else None


class _Layers:
    """The layers of a graph, and their programs in the order of creation. The two directions of a layer are threads of
    one program."""

    def __init__(
        self,
        graph: Graph,
        names: Sequence[str],
        known: dict[tvm.ir.GlobalVar, Recurrence],
        hardware: Hardware,
    ) -> None:
        self.graph, self.names, self.hardware = graph, names, hardware
        self.nodes: list[tuple[str, ...]] = []  # of each program
        self.programs: list[Program] = []
        self.steps: list[Program] = []
        self.left: dict[str, str] = {}
        self.layers: dict[relax.Var, _Quantised] = {}
        self.results: dict[relax.Var, Expr] = {}
        for variable, value in graph.bound.items():
            if is_op(value, "call_tir") and value.args[0] in known:
                recurrence = known[value.args[0]]
                given = dict(zip(recurrence.inputs, value.args[1].fields, strict=True))
                try:
                    self.layers[variable] = _layer(graph, recurrence, given)
                    decide_rnn(self.layers[variable].workload, hardware)
                except (HardwareError, UnsupportedOperator) as error:
                    self.layers.pop(variable, None)
                    self.left[value.args[0].name_hint] = str(error)

    def call(self, rewriter: Rewriter, variable: relax.Var, value: Expr) -> Expr | None:
        """A segment for a recurrence that the engine supports; its results are unchanged."""
        if isinstance(value, relax.TupleGetItem) and isinstance(value.tuple_value, relax.Tuple):
            return value.tuple_value.fields[value.index]
        if variable not in self.layers:
            return None
        if variable not in self.results:
            other = self._other_way(rewriter, variable)
            if other is not None:
                ways = sorted([variable, other], key=lambda way: self.layers[way].backwards)
                with contextlib.suppress(HardwareError):  # possibly enough memory for one direction only
                    self._emit(rewriter, ways)
            if variable not in self.results:
                try:
                    self._emit(rewriter, [variable])
                except HardwareError as error:
                    del self.layers[variable]
                    self.left[value.args[0].name_hint] = str(error)
                    return None
        return self.results[variable]

    def _other_way(self, rewriter: Rewriter, variable: relax.Var) -> relax.Var | None:
        """The layer's other direction, if its initial states are already available."""
        own = self.layers[variable]
        for other, layer in self.layers.items():
            same = (layer.workload, layer.lengths) == (own.workload, own.lengths) and layer.x == own.x
            if same and other not in self.results and layer.backwards != own.backwards:
                starts = [self._early(rewriter, start) for start in layer.starts]
                return None if any(start is None for start in starts) else other
        return None

    def _early(self, rewriter: Rewriter, expr: Expr) -> Expr | None:
        """`expr` in the new graph, moved forward if it is a view of an available value; None if it is not available."""
        if not isinstance(expr, relax.Var) or expr in rewriter.renamed:
            return rewriter.renamed.get(expr, expr)
        value = self.graph.value(expr)
        if value is expr:
            return expr  # an input
        if not is_op(value, "strided_slice", "squeeze", "reshape", "take"):
            return None
        source = self._early(rewriter, value.args[0])
        return None if source is None else rewriter.emit(relax.Call(value.op, [source, *value.args[1:]], value.attrs))

    def _emit(self, rewriter: Rewriter, ways: Sequence[relax.Var]) -> None:
        """Create the program of a layer's directions, and emit its call. Raises HardwareError, before anything is
        emitted, if it exceeds the machine's memories."""
        layers = [self.layers[way] for way in ways]
        workload = replace(layers[0].workload, bidirectional=len(ways) == 2)
        numbers = FixedPoint(FRACTION, min(layer.bits for layer in layers))
        tiling = decide_rnn(workload, self.hardware)
        names = ("0", "0_reverse")
        given = Given(
            weights={f"w{name}": layer.in_whole(numbers)[0] for name, layer in zip(names, layers, strict=False)},
            biases={f"b{name}": layer.in_whole(numbers)[1] for name, layer in zip(names, layers, strict=False)},
            states=True,
            lengths=layers[0].lengths,
            backwards=layers[0].backwards,
            prefix=f"layer_{len(self.programs)}.",
        )
        program = sequence_program(workload, tiling, self.hardware, numbers, given)
        step = step_program(workload, tiling, self.hardware, numbers, biased=True)
        self.programs.append(program)
        self.nodes.append(nodes_named(self.names, numbers_of(rewriter.name)))
        self.steps += [step] * len(ways)
        starts = []
        for each in zip(*(layer.starts for layer in layers), strict=True):
            fixed = [_fixed(rewriter, start) for start in (self._early(rewriter, e) for e in each) if start is not None]
            starts.append(_stacked(rewriter, fixed))
        x = _fixed(rewriter, rewriter.renamed.get(layers[0].x, layers[0].x))
        state = (len(ways), workload.batch, workload.hidden_size)
        shapes = [(workload.steps, workload.batch, len(ways) * workload.hidden_size), *[state] * len(starts)]
        types = [relax.TensorType(shape, "int16") for shape in shapes]
        function = f"{SEGMENT}{len(self.programs) - 1}"
        called = rewriter.emit(op.call_dps_packed(function, relax.Tuple([x, *starts]), out_ty=types))
        y, *finals = (
            _real(rewriter, rewriter.emit(relax.TupleGetItem(called, number))) for number in range(len(types))
        )
        hidden = workload.hidden_size
        for number, way in enumerate(ways):
            own = [_between(rewriter, y, 2, number * hidden, hidden)]
            for final in finals:
                one = _between(rewriter, final, 0, number, 1)
                own.append(rewriter.emit(op.reshape(one, state[1:])))
            self.results[way] = relax.Tuple(own)


@dataclass(frozen=True)
class _Quantised:
    """A layer in one direction. Weights by gate in the order of combined_weights, `biases` of its rows, as real
    numbers; `bits` is the number of fraction bits available for the weights. `starts` are h and c before the first
    step."""

    workload: RnnWorkload
    x: Expr
    starts: tuple[Expr, ...]
    of_inputs: np.ndarray
    of_state: np.ndarray
    biases: np.ndarray
    bits: int
    lengths: tuple[int, ...] | None
    backwards: bool

    def in_whole(self, numbers: FixedPoint) -> tuple[np.ndarray, np.ndarray]:
        """Combined weights, and biases of their rows, as integers."""
        pair = [_whole(w, numbers.of_weights).astype(np.int16) for w in (self.of_inputs, self.of_state)]
        biases = _whole(self.biases, numbers.fraction + numbers.of_weights).astype(np.int32)
        return combined_weights(self.workload, *pair), biases


def _layer(graph: Graph, r: Recurrence, given: dict[str, Expr]) -> _Quantised:
    """The layer of a recurrence. Raises UnsupportedOperator if the engine does not support it."""
    if r.peepholes:
        raise UnsupportedOperator(
            "an LSTM with peepholes is not supported on the column engine; expected gates of x and h only"
        )
    if r.clip is not None:
        raise UnsupportedOperator(
            "gates whose sums are clipped are not supported on the column engine; expected a layer without clip"
        )
    x, of_inputs, bias = _projection(graph, given["projected"])
    of_state = array(given["weights"])
    if of_state is None:
        raise UnsupportedOperator(
            "weights that are not constant are not supported on the column engine; expected constants"
        )
    lengths = array(given["lengths"]) if r.lengths else None
    if r.lengths and lengths is None:
        raise UnsupportedOperator(
            "sequence lengths known only at run time are not supported on the column engine; expected constants"
        )
    workload = RnnWorkload(
        cell=r.cell,
        batch=r.batch,
        steps=r.steps,
        input_size=of_inputs.shape[1],
        hidden_size=r.hidden,
        dtype="int16",
        linear_before_reset=r.reset_after,
        activation=r.activation,
    )
    inner = array(given["bias"]) if "bias" in given else None
    if "bias" in given and inner is None:
        raise UnsupportedOperator(
            "a bias that is not constant is not supported on the column engine; expected a constant"
        )
    of_inputs, of_state = (_in_order(r, w) for w in (of_inputs, of_state))
    biases = _row_biases(workload, _in_order(r, bias), inner)
    bounded = r.cell != "rnn" or r.activation == "tanh"
    return _Quantised(
        workload=workload,
        x=x,
        starts=tuple(given[name] for name in ("h0", "c0") if name in given),
        of_inputs=of_inputs,
        of_state=of_state,
        biases=biases,
        bits=_weight_bits(of_inputs, of_state, biases, bounded),
        lengths=None if lengths is None else tuple(int(length) for length in lengths),
        backwards=r.reverse,
    )


def _projection(graph: Graph, projected: Expr) -> tuple[Expr, np.ndarray, np.ndarray]:
    """x, its weights (rows of gates x inputs) and the biases of the rows."""
    rows = (shape_of(projected) or (0,))[-1]
    bias = np.zeros(rows)
    value = graph.value(projected)
    while is_op(value, "add"):
        left, right = value.args
        left, right = (right, left) if array(left) is not None else (left, right)
        added = array(right)
        if added is None or added.size != rows:
            break
        bias = bias + added.reshape(rows)
        value = graph.value(left)
    weights = array(value.args[1]) if is_op(value, "matmul") else None
    if weights is None or weights.ndim != 2:
        raise UnsupportedOperator(
            "inputs that are not a matrix multiplication with constant weights and biases are not supported on the "
            "column engine; expected such a matrix multiplication"
        )
    return value.args[0], weights.T, bias


def _in_order(r: Recurrence, rows: np.ndarray) -> np.ndarray:
    """Gate rows in the order of combined weights."""
    return np.concatenate([rows[r.order.index(g) * r.hidden :][: r.hidden] for g in SUMS[r.cell]])


def _row_biases(workload: RnnWorkload, bias: np.ndarray, inner: np.ndarray | None) -> np.ndarray:
    """Biases of the rows of the combined weights; `inner` is the bias that a GRU's reset gate multiplies."""
    hidden, places = workload.hidden_size, row_places(workload)
    rows = np.zeros(len(places) * hidden)
    for number, gate in enumerate(SUMS[workload.cell]):
        start, step = places[gate] if gate in places else places[f"{gate}x"]
        rows[start : start + step * hidden : step] = bias[number * hidden : (number + 1) * hidden]
    if inner is not None:
        start, step = places["nh"]
        rows[start : start + step * hidden : step] = inner
    return rows


def _weight_bits(of_inputs: np.ndarray, of_state: np.ndarray, biases: np.ndarray, bounded: bool) -> int:
    """The number of fraction bits for which no weight saturates and no sum can overflow."""
    sums = LARGEST * np.abs(of_inputs).sum(1) + (1.0 if bounded else LARGEST) * np.abs(of_state).sum(1)
    most = float(sums.max() + np.abs(biases).max())
    weight = float(max(np.abs(of_inputs).max(), np.abs(of_state).max()))
    for bits in range(MOST_WEIGHT_BITS, -1, -1):
        # Rounding adds up to half a unit to every weight.
        rounding = 2.0 ** (-bits - 1) * LARGEST * (of_inputs.shape[1] + of_state.shape[1])
        if weight * 2**bits < 2**15 - 0.5 and (most + rounding) * 2.0 ** (FRACTION + bits) < 2**31:
            return bits
    raise UnsupportedOperator(
        f"weights of up to {weight:.4g} with sums of up to {most:.4g} are not supported on the column engine; "
        f"expected weights below {2**15:d} and sums below {2 ** (31 - FRACTION):d}, which fit in 16 and 32 bits"
    )


def _whole(values: np.ndarray, bits: int) -> np.ndarray:
    return np.rint(np.asarray(values, np.float64) * 2.0**bits)


# ---- conversion between real numbers and integers --------------------------------------------------------------------


def _fixed(rewriter: Rewriter, expr: Expr) -> Expr:
    """`expr` in saturated 16-bit fixed point."""
    known = array(expr)
    if known is not None:
        return relax.const(np.clip(_whole(known, FRACTION), -(2**15), 2**15 - 1).astype(np.int16))
    scaled = rewriter.emit(op.multiply(expr, relax.const(2.0**FRACTION, "float32")))
    rounded = rewriter.emit(op.round(scaled))
    inside = rewriter.emit(op.clip(rounded, -(2.0**15), 2.0**15 - 1))
    return rewriter.emit(op.astype(inside, "int16"))


def _real(rewriter: Rewriter, expr: Expr) -> Expr:
    """Fixed point converted to float32."""
    real = rewriter.emit(op.astype(expr, "float32"))
    return rewriter.emit(op.multiply(real, relax.const(2.0**-FRACTION, "float32")))


def _stacked(rewriter: Rewriter, parts: Sequence[Expr]) -> Expr:
    """Stack the parts along a new first axis."""
    known = [array(part) for part in parts]
    if all(value is not None for value in known):
        return relax.const(np.stack([value for value in known if value is not None]))
    return rewriter.emit(op.stack(list(parts), 0))


def _between(rewriter: Rewriter, expr: Expr, axis: int, start: int, count: int) -> Expr:
    """`count` elements of an axis from `start`; the tensor itself if that is all of it."""
    if (shape_of(expr) or ())[axis] == count:
        return expr
    return rewriter.emit(op.strided_slice(expr, [axis], [start], [start + count]))
