"""Recurrent layers as programs of page 04's machine: column-wise products, 16-bit fixed point, the tail's gates.

A step of a layer multiplies the columns of x, then those of h, into the sums of all gates; the sums are dequantised
once and the tail computes in 16 bits (hardware/column.py states the format). Weights are on the chip, in memory b;
vectors lie in memory a, sums and the numbers of the tail in acc. A layer's h is the next layer's x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...decide.rnn.column import LayerCut, RnnTiling
from ...errors import UnsupportedOperator
from ...hardware.description import Hardware
from ...workload import RnnWorkload
from ..program.builder import ALIGNMENT, At, ProgramBuilder
from ..program.isa import Function, Opcode
from ..program.program import Program
from .weights import row_places

DTYPE, WIDE = "int16", "int32"


@dataclass(frozen=True)
class FixedPoint:
    """Numbers in 16 bits with `fraction` of them behind the point, of weights, vectors and the tail alike."""

    fraction: int = 12


class _Room:
    """Bytes of memories, given out one behind the other."""

    def __init__(self) -> None:
        self.used: dict[str, int] = {}

    def take(self, memory: str, elements: int, dtype: str) -> At:
        start = -(-self.used.get(memory, 0) // ALIGNMENT) * ALIGNMENT
        self.used[memory] = start + elements * (4 if dtype == WIDE else 2)
        return At(memory, start, (1,), dtype)


def step_program(
    workload: RnnWorkload, tiling: RnnTiling, hardware: Hardware, numbers: FixedPoint, *, by_rows: bool = False
) -> Program:
    """One time step of one sequence, weights on the chip: what a task repeats. `by_rows`: every product starts with the
    whole of [x, h], for comparison."""
    build = ProgramBuilder(hardware)
    _refuse(workload)
    x = build.tensor("x", DTYPE, (workload.input_size,), role="input", operand="a")
    y = build.tensor("y", DTYPE, (workload.hidden_size,), role="output", operand="out")
    layers = _layers(build, workload, tiling, numbers, _Room(), None, by_rows)
    _step(build, layers, x.address, y.address)
    return build.build()


def sequence_program(workload: RnnWorkload, tiling: RnnTiling, hardware: Hardware, numbers: FixedPoint) -> Program:
    """All steps of all sequences of the batch. Inputs "x" (steps x batch x inputs) and for each layer "w0", "w1", ...,
    its combined weights [columns, rows]; output "y" (steps x batch x hidden)."""
    build = ProgramBuilder(hardware)
    _refuse(workload)
    steps, batch = workload.steps, workload.batch
    x = build.tensor("x", DTYPE, (steps, batch, workload.input_size), role="input", operand="a")
    y = build.tensor("y", DTYPE, (steps, batch, workload.hidden_size), role="output", operand="out")
    room = _Room()
    places = []
    for number, size in enumerate(workload.input_sizes):
        rows = len(row_places(workload)) * workload.hidden_size
        columns = size + workload.hidden_size
        given = build.tensor(f"w{number}", DTYPE, (columns, rows), role="input", operand="b")
        held = room.take("b", columns * rows, DTYPE)
        far = At("external", given.address, (1,), DTYPE)
        build.append(Opcode.LOAD, "load_b", (columns * rows,), a=far, c=held)
        places.append(held)
    for row in range(batch):
        layers = _layers(build, workload, tiling, numbers, room, places, False)
        for layer in layers:
            layer.start()
        for step in range(steps):
            at = step * batch + row
            _step(build, layers, x.address + 2 * at * workload.input_size, y.address + 2 * at * workload.hidden_size)
    return build.build()


def _refuse(workload: RnnWorkload) -> None:
    if workload.dtype != DTYPE or workload.acc_dtype != WIDE:
        raise UnsupportedOperator(
            f"rnn: {workload.dtype} summed in {workload.acc_dtype} on the column engine; accepted: {DTYPE} in {WIDE}"
        )
    if workload.bidirectional:
        raise UnsupportedOperator(
            "rnn: bidirectional layers on the column engine; accepted: one direction, the other as a task of its own"
        )


def _layers(
    build: ProgramBuilder,
    workload: RnnWorkload,
    tiling: RnnTiling,
    numbers: FixedPoint,
    room: _Room,
    weights: Sequence[At] | None,
    by_rows: bool,
) -> list[_Layer]:
    """The layers of one sequence, each reading what the one before writes."""
    layers: list[_Layer] = []
    for number, cut in enumerate(tiling.layers):
        rows = len(row_places(workload)) * workload.hidden_size
        held = weights[number] if weights else room.take("b", (cut.input_size + workload.hidden_size) * rows, DTYPE)
        # Of the first layer x and h are beside each other, as a product of whole rows reads them.
        source = room.take("a", cut.input_size + workload.hidden_size, DTYPE) if not layers else layers[-1].h
        own = (
            At("a", source.address + 2 * cut.input_size, (1,), DTYPE)
            if not layers
            else room.take("a", workload.hidden_size, DTYPE)
        )
        layers.append(_Layer(build, workload, cut, numbers, room, held, source, own, by_rows and not layers))
    return layers


def _step(build: ProgramBuilder, layers: Sequence[_Layer], x: int, y: int) -> None:
    first, last = layers[0], layers[-1]
    build.append(Opcode.LOAD, "load_a", (first.cut.input_size,), a=At("external", x, (1,), DTYPE), c=first.x)
    for layer in layers:
        layer.step()
    build.append(Opcode.STORE, "store", (last.hidden,), a=last.h, c=At("external", y, (1,), DTYPE))


class _Layer:
    """Where everything of one layer of one sequence lies, and the instructions of its steps."""

    def __init__(
        self,
        build: ProgramBuilder,
        workload: RnnWorkload,
        cut: LayerCut,
        numbers: FixedPoint,
        room: _Room,
        weights: At,
        x: At,
        h: At,
        by_rows: bool,
    ) -> None:
        self.build, self.workload, self.cut, self.numbers = build, workload, cut, numbers
        self.x, self.h, self.weights, self.by_rows = x, h, weights, by_rows
        self.hidden, self.places = workload.hidden_size, row_places(workload)
        self.rows = len(self.places) * self.hidden
        self.engine = next(engine for engine in build.machine.engines if engine.startswith("column"))
        self.sums = room.take("acc", self.rows, WIDE)
        self.gates = room.take("acc", self.rows, DTYPE)
        self.wide, self.other = (room.take("acc", self.hidden, WIDE) for _ in range(2))
        self.kept, self.short = (room.take("acc", self.hidden, DTYPE) for _ in range(2))
        self.reset_h = room.take("a", self.hidden, DTYPE)

    def start(self) -> None:
        """h and c are 0."""
        for state in (self.h, self.kept):
            self.build.append(Opcode.FILL, "vector", (self.hidden,), c=state, immediate=(0.0,))

    def step(self) -> None:
        {"lstm": self._lstm, "gru": self._gru, "rnn": self._rnn}[self.workload.cell]()

    # ---- products -------------------------------------------------------------------------------------------------

    def product(
        self, column: int, columns: int, source: At, accumulate: bool, row: int = 0, rows: int | None = None
    ) -> None:
        """Sums of `rows` rows from `row` on (None: all) over `columns` columns from `column` on."""
        count = self.rows if rows is None else rows
        weights = self.weights.address + 2 * (column * self.rows + row)
        self.build.append(
            Opcode.COLMV,
            self.engine,
            (count, 1, 1, 1, 1, columns),
            a=At("b", weights, (1, 0, 0, 0, 0, self.rows), DTYPE),
            b=At(source.memory, source.address, (0, 0, 0, 0, 0, 1), DTYPE),
            c=At("acc", self.sums.address + 4 * row, (1,), WIDE),
            accumulate=accumulate,
            immediate=(self.cut.ep, self.cut.vp),
        )

    def products(self) -> None:
        """Columns of x, then those of h; or whole rows."""
        if self.by_rows:
            self.product(0, self.cut.input_size + self.hidden, self.x, False)
        else:
            self.product(0, self.cut.input_size, self.x, False)
            self.product(self.cut.input_size, self.hidden, self.h, True)

    # ---- the tail -------------------------------------------------------------------------------------------------

    def alu(
        self, function: Function, a: At, c: At, b: At | None = None, immediate: tuple[float, ...] | None = None
    ) -> None:
        self.build.append(Opcode.ALU, "vector", (self.hidden,), a=a, b=b, c=c, function=function, immediate=immediate)

    def gate(self, name: str) -> At:
        start, step = self.places[name]
        return At("acc", self.gates.address + 2 * start, (step,), DTYPE)

    def fixed(self, name: str, function: Function | None = None) -> At:
        """The sums of a name as 16-bit numbers, or a function of them."""
        start, step = self.places[name]
        sums, gate = At("acc", self.sums.address + 4 * start, (step,), WIDE), self.gate(name)
        self.alu(Function.SCALE, sums, gate, immediate=(2.0**-self.numbers.fraction, 0.0))
        if function is not None:
            self.smooth(function, gate, gate)
        return gate

    def smooth(self, function: Function, a: At, c: At) -> None:
        self.alu(function, a, c, immediate=(float(self.numbers.fraction),))

    def times(self, a: At, b: At, c: At) -> None:
        """c = a * b, rounded to 16 bits."""
        self.alu(Function.MUL, a, self.wide, b)
        self.alu(Function.SHIFT, self.wide, c, immediate=(float(self.numbers.fraction),))

    def _lstm(self) -> None:
        """c = f * c + i * g, rounded once; h = o * tanh(c)."""
        self.products()
        i, f, o = (self.fixed(name, Function.SIGMOID) for name in "ifo")
        g = self.fixed("g", Function.TANH)
        self.alu(Function.MUL, f, self.wide, self.kept)
        self.alu(Function.MUL, i, self.other, g)
        self.alu(Function.ADD, self.wide, self.wide, self.other)
        self.alu(Function.SHIFT, self.wide, self.kept, immediate=(float(self.numbers.fraction),))
        self.smooth(Function.TANH, self.kept, self.short)
        self.times(o, self.short, self.h)

    def _rnn(self) -> None:
        self.products()
        if self.workload.activation == "tanh":
            self.fixed("h")
            self.smooth(Function.TANH, self.gate("h"), self.h)
        else:
            self.alu(Function.RELU, self.fixed("h"), self.h)

    def _gru(self) -> None:
        if self.workload.linear_before_reset:
            self._gru_of_product()
        else:
            self._gru_of_state()

    def _gru_of_product(self) -> None:
        """n = tanh(nx + r * nh)."""
        self.products()
        r, _ = (self.fixed(name, Function.SIGMOID) for name in "rz")
        nx, nh = self.fixed("nx"), self.fixed("nh")
        self.times(r, nh, self.short)
        self.alu(Function.ADD, self.short, self.short, nx)
        self._blend()

    def _gru_of_state(self) -> None:
        """n = tanh(x part + product of r * h), which waits for r."""
        self.product(0, self.cut.input_size, self.x, False)
        self.product(self.cut.input_size, self.hidden, self.h, True, 0, 2 * self.hidden)
        r, _ = (self.fixed(name, Function.SIGMOID) for name in "rz")
        self.alu(Function.COPY, self.h, self.short)
        self.times(r, self.short, self.reset_h)
        self.product(self.cut.input_size, self.hidden, self.reset_h, True, 2 * self.hidden, self.hidden)
        self.alu(Function.COPY, self.fixed("n"), self.short)
        self._blend()

    def _blend(self) -> None:
        """h = n + z * (h - n), n = tanh of what is there."""
        self.smooth(Function.TANH, self.short, self.short)
        self.alu(Function.COPY, self.h, self.kept)
        self.alu(Function.SUB, self.kept, self.kept, self.short)
        self.times(self.gate("z"), self.kept, self.kept)
        self.alu(Function.ADD, self.kept, self.h, self.short)
