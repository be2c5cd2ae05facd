"""Whole sequences of recurrent layers as programs for the column engine (design page 04).

Sequences (the elements of a batch and the two directions) use the threads of the engine in rotation, one step each. The
sums of a step alternate between two places, so that multiplying the columns of x overlaps with draining the previous
step; inputs and states have as many places as steps pass while one is in transit to or from external memory. If all
layers run forwards, a step of a layer follows that of the layer below; with both directions, a layer follows the whole
of the layer below, whose output is stored in external memory in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from ...decide.rnn.column import LayerConfig, RnnTiling
from ...errors import UnsupportedOperator, WorkloadError
from ...hardware.description import Hardware
from ...workload import RnnWorkload
from ..instructions.table import Opcode
from ..program.builder import At, ProgramBuilder
from ..program.program import Program
from ..program.tables import Tensor
from .layer import DTYPE, VERSIONS, WIDE, Allocator, FixedPoint, Layer
from .weights import row_places

MOST_PLACES = 8  # for inputs and for states of a sequence


@dataclass(frozen=True, kw_only=True)
class Given:
    """Optional inputs and properties of sequences.

    `weights` and `biases`: values by name, as constants of the program; missing weights are inputs, missing biases only
    if `biased`. `states`: h, and c of an LSTM, before the first step are inputs "h0" and "c0" and after the last one
    outputs "h" and "c" (layers * directions x batch x hidden). `lengths`: number of steps of each sequence of the
    batch; outputs after the end are 0. `backwards`: the single direction of a layer runs from the last step to the
    first.
    """

    weights: Mapping[str, np.ndarray] | None = None
    biases: Mapping[str, np.ndarray] | None = None
    biased: bool = False
    states: bool = False
    lengths: tuple[int, ...] | None = None
    backwards: bool = False
    prefix: str = ""


def step_program(
    workload: RnnWorkload,
    tiling: RnnTiling,
    hardware: Hardware,
    numbers: FixedPoint,
    *,
    biased: bool = False,
    by_rows: bool = False,
) -> Program:
    """Return one time step of one sequence with the weights on the chip, as a task repeats it. `by_rows`: every product
    starts with the whole of [x, h], for comparison. UnsupportedOperator for several bidirectional layers, which have no
    such step."""
    refuse_types(workload)
    if workload.bidirectional and workload.layers > 1:
        raise UnsupportedOperator(
            f"rnn: {workload.layers} bidirectional layers have no single step, because each needs the whole "
            "output of the one below; expected simulate, which runs the layers one after another, or one "
            "layer"
        )
    build, allocator = ProgramBuilder(hardware), Allocator()
    x = build.tensor("x", DTYPE, (workload.input_size,), role="input", operand="a")
    y = build.tensor("y", DTYPE, (workload.hidden_size,), role="output", operand="out")
    layers: list[Layer] = []
    for config in tiling.layers:
        rows, columns = len(row_places(workload)) * workload.hidden_size, config.input_size + workload.hidden_size
        held = allocator.take("b", columns * rows, DTYPE)
        # The first layer stores x and h contiguously, as a whole-row product reads them.
        source = layers[-1].h if layers else allocator.take("a", columns, DTYPE)
        h = allocator.take("a", workload.hidden_size, DTYPE) if layers else _behind(source, config.input_size)
        mine = by_rows and not layers
        bias = allocator.take("acc", rows, WIDE) if biased else None
        layers.append(Layer(build, workload, config, numbers, allocator, held, [source], [h], bias=bias, by_rows=mine))
    allocator.check(build)
    _Sequence(build, layers, [0], lambda _: x.address, lambda _: y.address).step(0)
    return build.build()


def sequence_program(
    workload: RnnWorkload, tiling: RnnTiling, hardware: Hardware, numbers: FixedPoint, given: Given | None = None
) -> Program:
    """Return the program of all steps of all sequences of the batch.

    Inputs are "x" (steps x batch x inputs) and, for each layer, "w0", "w1", .. its combined weights [columns, rows],
    "b0", .. its 32-bit biases [rows], with "w0_reverse", .. for the reverse direction; the output is "y" (steps x batch
    x directions * hidden).
    """
    refuse_types(workload)
    return _Whole(workload, tiling, hardware, numbers, given or Given()).program()


def refuse_types(workload: RnnWorkload) -> None:
    """Raise UnsupportedOperator for types other than the fixed-point format."""
    if workload.dtype != DTYPE or workload.acc_dtype != WIDE:
        raise UnsupportedOperator(
            f"rnn: {workload.dtype} accumulated in {workload.acc_dtype} is not supported on the column "
            f"engine; expected {DTYPE} in {WIDE}"
        )


def _behind(at: At, elements: int) -> At:
    return At(at.memory, at.address + 2 * elements, (1,), DTYPE)


class _Sequence:
    """One sequence through layers that advance together: the order of its steps, and the source and target of the
    vectors of each step in external memory."""

    def __init__(
        self,
        build: ProgramBuilder,
        layers: Sequence[Layer],
        places: Sequence[int],
        read: Callable[[int], int],
        write: Callable[[int], int],
    ) -> None:
        self.build, self.layers, self.places, self.read, self.write = build, layers, places, read, write

    def step(self, number: int) -> None:
        first, last, place = self.layers[0], self.layers[-1], self.places[number]
        far = At("external", self.read(place), (1,), DTYPE)
        self.build.append(Opcode.LOAD, "load_a", (first.config.input_size,), a=far, c=first.x)
        for layer in self.layers:
            layer.step()
        far = At("external", self.write(place), (1,), DTYPE)
        self.build.append(Opcode.STORE, "store", (last.hidden,), a=last.h, c=far)


class _Whole:
    """The program of all layers, directions and sequences."""

    def __init__(
        self, workload: RnnWorkload, tiling: RnnTiling, hardware: Hardware, numbers: FixedPoint, given: Given
    ) -> None:
        self.workload, self.tiling, self.numbers, self.given = workload, tiling, numbers, given
        self.build, self.allocator = ProgramBuilder(hardware), Allocator()
        self.build.region(workload.cell, str(workload), "")
        self.rows = len(row_places(workload)) * workload.hidden_size
        self.column = hardware.column
        lengths = given.lengths or (workload.steps,) * workload.batch
        if len(lengths) != workload.batch or any(not 0 <= length <= workload.steps for length in lengths):
            raise WorkloadError(
                f"rnn: lengths = {lengths}; expected {workload.batch} lengths, each of 0 to {workload.steps} steps"
            )
        self.lengths = lengths

    def program(self) -> Program:
        w = self.workload
        steps, batch, wide = w.steps, w.batch, w.directions * w.hidden_size
        x = self._tensor("x", (steps, batch, w.input_size), role="input", operand="a")
        held = [[self._weights(layer, way) for way in range(w.directions)] for layer in range(w.layers)]
        names = ("h", "c") if w.cell == "lstm" else ("h",)
        shape = (w.layers * w.directions, batch, w.hidden_size)
        starts: tuple[int, ...] = ()
        ends: tuple[int, ...] = ()
        if self.given.states:
            starts = tuple(self._tensor(f"{n}0", shape, role="input", operand="a").address for n in names)
        y = self._tensor("y", (steps, batch, wide), role="output", operand="out")
        if self.given.states:
            ends = tuple(self._tensor(n, shape, role="output", operand="out").address for n in names)
        self.starts, self.ends = starts, ends
        if w.directions == 1:
            self._run([self._forward(held, row, x.address, y.address) for row in range(batch)])
        else:
            source = x.address
            for layer in range(w.layers):
                target = y.address
                if layer < w.layers - 1:
                    between = self._tensor(f"y{layer}", (steps, batch, wide), role="scratch", operand="out")
                    target = between.address
                ways = [(row, way) for row in range(batch) for way in range(2)]
                self._silence(target, wide)
                self._run([self._of_way(held, layer, row, way, source, target) for row, way in ways])
                source = target
        self.allocator.check(self.build)
        return self.build.build()

    # ---- what lies where --------------------------------------------------------------------------------------------

    def _tensor(self, name: str, shape: tuple[int, ...], *, role: str, operand: str, dtype: str = DTYPE) -> Tensor:
        return self.build.tensor(self.given.prefix + name, dtype, shape, role=role, operand=operand)

    def _weights(self, layer: int, way: int) -> tuple[At, At | None]:
        """Load the weights and biases of a direction onto the chip and return their places."""
        name = f"{layer}_reverse" if way else f"{layer}"
        columns = self.tiling.layers[layer].input_size + self.workload.hidden_size
        weights = self._held(f"w{name}", (columns, self.rows), "b", DTYPE, self.given.weights)
        biased = self.given.biased or self.given.biases is not None
        bias = self._held(f"b{name}", (self.rows,), "acc", WIDE, self.given.biases) if biased else None
        return weights, bias

    def _held(
        self, name: str, shape: tuple[int, ...], memory: str, dtype: str, values: Mapping[str, np.ndarray] | None
    ) -> At:
        """Load a tensor once and return its place."""
        elements = int(np.prod(shape))
        if values is None:
            tensor = self._tensor(name, shape, role="input", operand="b", dtype=dtype)
        else:
            value = values[name].astype(dtype).reshape(shape)
            tensor = self.build.constant(self.given.prefix + name, value, operand="b")
        held = self.allocator.take(memory, elements, dtype)
        far = At("external", tensor.address, (1,), dtype)
        self.build.append(Opcode.LOAD, "load_b", (elements,), a=far, c=held)
        return held

    def _layer(self, held: tuple[At, At | None], layer: int, engine: int, below: Layer | None = None) -> Layer:
        config, hidden = self.tiling.layers[layer], self.workload.hidden_size
        places = self._places(config)
        x = below or [self.allocator.take("a", config.input_size, DTYPE) for _ in range(places)]
        h = [self.allocator.take("a", hidden, DTYPE) for _ in range(places)]
        weights, bias = held
        return Layer(
            self.build, self.workload, config, self.numbers, self.allocator, weights, x, h, bias=bias, engine=engine
        )

    def _places(self, config: LayerConfig) -> int:
        """Return the number of inputs and of states that are on the chip at once: two, plus one for each step that
        passes while one is in transit."""
        machine = self.build.machine
        rate, size = machine.rate("external", "a"), 2 * max(config.input_size, self.workload.hidden_size)
        loading = machine.memory("external").latency + machine.memory("a").latency + (ceil(size / rate) if rate else 0)
        together = min(self.column.threads, self.workload.batch * self.workload.directions) if self.column else 1
        return min(MOST_PLACES, VERSIONS + loading // max(config.cycles_per_step, together * (config.cx + config.ch)))

    # ---- sequences --------------------------------------------------------------------------------------------------

    def _forward(self, held: list[list[tuple[At, At | None]]], row: int, x: int, y: int) -> _Sequence:
        """Return the sequence of all layers for one element of the batch."""
        layers: list[Layer] = []
        for number in range(self.workload.layers):
            layers.append(self._layer(held[number][0], number, row, layers[-1] if layers else None))
        if row == 0:
            self._silence(y, self.workload.hidden_size)
        return self._sequence(layers, row, x, y, self.workload.hidden_size, 0, self.given.backwards)

    def _of_way(
        self, held: list[list[tuple[At, At | None]]], layer: int, row: int, way: int, x: int, y: int
    ) -> _Sequence:
        """Return the sequence of one direction of one layer for one element of the batch."""
        hidden = self.workload.hidden_size
        own = self._layer(held[layer][way], layer, 2 * row + way)
        return self._sequence([own], row, x, y, 2 * hidden, way * hidden, way == 1, 2 * layer + way)

    def _sequence(
        self, layers: list[Layer], row: int, x: int, y: int, wide: int, at: int, backwards: bool, state: int = 0
    ) -> _Sequence:
        batch, inputs, hidden = self.workload.batch, layers[0].config.input_size, self.workload.hidden_size
        for number, layer in enumerate(layers):
            place = 2 * ((state + number) * batch + row) * hidden
            layer.start([At("external", start + place, (1,), DTYPE) for start in self.starts])
            layer.ends = [At("external", end + place, (1,), DTYPE) for end in self.ends]
        places = list(range(self.lengths[row]))
        return _Sequence(
            self.build,
            layers,
            places[::-1] if backwards else places,
            lambda step: x + 2 * (step * batch + row) * inputs,
            lambda step: y + 2 * ((step * batch + row) * wide + at),
        )

    def _silence(self, y: int, wide: int) -> None:
        """Write 0 after the ends of shorter sequences."""
        steps, batch = self.workload.steps, self.workload.batch
        if all(length == steps for length in self.lengths):
            return
        zeros = self.allocator.take("acc", wide, DTYPE)
        self.build.append(Opcode.FILL, "vector", (wide,), c=zeros, immediate=(0.0,))
        for row, length in enumerate(self.lengths):
            for step in range(length, steps):
                far = At("external", y + 2 * (step * batch + row) * wide, (1,), DTYPE)
                self.build.append(Opcode.STORE, "store", (wide,), a=zeros, c=far)

    def _run(self, sequences: Sequence[_Sequence]) -> None:
        """Run the sequences, as many at once as the engines have threads, one step of each in turn."""
        assert self.column is not None  # guaranteed by the tiling
        together = self.column.threads * self.column.engines
        for first in range(0, len(sequences), together):
            group = sequences[first : first + together]
            for number in range(max(len(sequence.places) for sequence in group)):
                for sequence in group:
                    if number < len(sequence.places):
                        sequence.step(number)
            for sequence in group:
                for layer in sequence.layers:
                    layer.end()
