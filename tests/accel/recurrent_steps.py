"""Time steps of recurrent layers written by hand for the column engine, in 16-bit fixed point.

For a layer of Lh units and Lx inputs, rows G*r .. G*r + G - 1 of the weights are the gates of unit r; columns are those
of x, then those of h. Memory a holds the vectors, b the weights column by column, acc the sums and the tail's numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.hardware.vector_functions import Function

FRACTION = 12  # fraction bits of all 16-bit numbers
ONE = 1 << FRACTION


@dataclass(frozen=True)
class Cell:
    """Sizes of a cell, and (EP, VP) of its matrix-vector multiplications. `rows`: row-wise order, which needs all of
    [x, h]."""

    kind: str  # "lstm", "gru before" (linear_before_reset = 1), "gru after" (= 0) or "rnn"
    inputs: int
    hidden: int
    ep: int
    vp: int
    rows: bool = False

    @property
    def gates(self) -> int:
        return {"lstm": 4, "gru before": 4, "gru after": 3, "rnn": 1}[self.kind]

    @property
    def sums(self) -> int:
        return self.gates * self.hidden


class Layer:
    """Appends steps of a cell to a program: the layout of one sequence, and the instructions of a step."""

    def __init__(self, build: ProgramBuilder, cell: Cell, weights: int = 0, thread: int = 0) -> None:
        self.build, self.cell, self.weights = build, cell, weights
        self.engine = next(engine for engine in build.machine.engines if engine.startswith("column"))
        aligned = -(-max(cell.sums, cell.inputs + 2 * cell.hidden) // 32) * 32
        self.vector = thread * 2 * aligned  # x, then h, then r * h, in memory a
        self.state = thread * 16 * aligned + 4096 * thread
        self.wide, self.other = self.state + 4 * aligned, self.state + 8 * aligned
        self.gate, self.cell_state, self.short = (self.state + (10 + 2 * at) * aligned for at in range(3))

    def x(self):
        return At("a", self.vector, (1,), "int16")

    def h(self):
        return At("a", self.vector + 2 * self.cell.inputs, (1,), "int16")

    def reset_h(self):
        return At("a", self.vector + 2 * (self.cell.inputs + self.cell.hidden), (1,), "int16")

    def start(self) -> None:
        """Set h and c to 0."""
        self.build.append(Opcode.FILL, "vector", (self.cell.hidden,), c=self.h(), immediate=(0.0,))
        state = At("acc", self.cell_state, (1,), "int16")
        self.build.append(Opcode.FILL, "vector", (self.cell.hidden,), c=state, immediate=(0.0,))

    def product(self, column: int, columns: int, source: At, accumulate: bool, first_row: int = 0, rows=None) -> None:
        """Compute sums of rows (all: None) over `columns` columns from `column` on."""
        cell, count = self.cell, rows or self.cell.sums
        step = cell.gates if rows else 1  # distance between rows of a single gate
        weights = self.weights + 2 * (column * cell.sums + first_row)
        self.build.append(
            Opcode.COLMV,
            self.engine,
            (count, 1, 1, 1, 1, columns),
            a=At("b", weights, (step, 0, 0, 0, 0, cell.sums), "int16"),
            b=At(source.memory, source.address, (0, 0, 0, 0, 0, 1), "int16"),
            c=At("acc", self.state + 4 * first_row, (step,), "int32"),
            accumulate=accumulate,
            immediate=(cell.ep, cell.vp),
        )

    def alu(self, function, a, c, b=None, count=None, immediate=None) -> None:
        count = count or self.cell.hidden
        self.build.append(Opcode.ALU, "vector", (count,), a=a, b=b, c=c, function=function, immediate=immediate)

    def products(self) -> None:
        """Compute the part of a step's sums that depends on h: columns of x first, or whole rows."""
        cell = self.cell
        if cell.rows:
            self.product(0, cell.inputs + cell.hidden, self.x(), False)
        else:
            self.product(0, cell.inputs, self.x(), False)
            self.product(cell.inputs, cell.hidden, self.h(), True)

    def fixed(self, gate: int, gates: int) -> None:
        """Convert sums of `gates` gates from `gate` on to 16-bit numbers, interleaved like the sums."""
        stride = self.cell.gates
        for number in range(gate, gate + gates):
            sums = At("acc", self.state + 4 * number, (stride,), "int32")
            self.alu(Function.SCALE, sums, self.at_gate(number), immediate=(1 / ONE, 0.0))

    def at_gate(self, number: int) -> At:
        return At("acc", self.gate + 2 * number, (self.cell.gates,), "int16")

    def smooth(self, function, number: int) -> None:
        self.alu(function, self.at_gate(number), self.at_gate(number), immediate=(FRACTION,))

    def step(self) -> None:
        {"lstm": self._lstm, "gru before": self._gru_before, "gru after": self._gru_after, "rnn": self._rnn}[
            self.cell.kind
        ]()

    def _lstm(self) -> None:
        """Gates i, f, g, o: c = f * c + i * g, rounded once; h = o * tanh(c)."""
        self.products()
        self.fixed(0, 4)
        for number, function in enumerate((Function.SIGMOID, Function.SIGMOID, Function.TANH, Function.SIGMOID)):
            self.smooth(function, number)
        wide, other = At("acc", self.wide, (1,), "int32"), At("acc", self.other, (1,), "int32")
        c, short = At("acc", self.cell_state, (1,), "int16"), At("acc", self.short, (1,), "int16")
        i, f, g, o = (self.at_gate(number) for number in range(4))
        self.alu(Function.MUL, f, wide, c)
        self.alu(Function.MUL, i, other, g)
        self.alu(Function.ADD, wide, wide, other)
        self.alu(Function.SHIFT, wide, c, immediate=(FRACTION,))
        self.alu(Function.TANH, c, short, immediate=(FRACTION,))
        self.alu(Function.MUL, o, wide, short)
        self.alu(Function.SHIFT, wide, self.h(), immediate=(FRACTION,))

    def _rnn(self) -> None:
        """h = tanh(sums)."""
        self.products()
        self.fixed(0, 1)
        self.alu(Function.TANH, self.at_gate(0), self.h(), immediate=(FRACTION,))

    def _gru_before(self) -> None:
        """Four rows of sums per unit: r, z, nx, nh. n = tanh(nx + r * nh), h = n + z * (h - n)."""
        cell = self.cell
        self.product(0, cell.inputs, self.x(), False)
        # The rows of nh are 0 in the columns of x, those of nx in the columns of h.
        self.product(cell.inputs, cell.hidden, self.h(), True)
        self.fixed(0, 4)
        self.smooth(Function.SIGMOID, 0)
        self.smooth(Function.SIGMOID, 1)
        wide, short = At("acc", self.wide, (1,), "int32"), At("acc", self.short, (1,), "int16")
        self.alu(Function.MUL, self.at_gate(0), wide, self.at_gate(3))
        self.alu(Function.SHIFT, wide, short, immediate=(FRACTION,))
        self.alu(Function.ADD, short, short, self.at_gate(2))
        self._new_h(short)

    def _gru_after(self) -> None:
        """Gates r, z, n; the sums of n wait for r * h: two dependent matrix-vector multiplications per step."""
        cell = self.cell
        self.product(0, cell.inputs, self.x(), False)
        for number in range(2):
            self.product(cell.inputs, cell.hidden, self.h(), True, number, cell.hidden)
        self.fixed(0, 2)
        self.smooth(Function.SIGMOID, 0)
        self.smooth(Function.SIGMOID, 1)
        wide, short = At("acc", self.wide, (1,), "int32"), At("acc", self.short, (1,), "int16")
        self.alu(Function.COPY, self.h(), short)
        self.alu(Function.MUL, self.at_gate(0), wide, short)
        self.alu(Function.SHIFT, wide, self.reset_h(), immediate=(FRACTION,))
        self.product(cell.inputs, cell.hidden, self.reset_h(), True, 2, cell.hidden)
        self.fixed(2, 1)
        self.alu(Function.COPY, self.at_gate(2), short)
        self._new_h(short)

    def _new_h(self, n: At) -> None:
        """h = n + z * (h - n), where n is tanh of the given numbers."""
        wide, held = At("acc", self.wide, (1,), "int32"), At("acc", self.cell_state, (1,), "int16")
        self.alu(Function.TANH, n, n, immediate=(FRACTION,))
        self.alu(Function.COPY, self.h(), held)
        self.alu(Function.SUB, held, held, n)
        self.alu(Function.MUL, self.at_gate(1), wide, held)
        self.alu(Function.SHIFT, wide, held, immediate=(FRACTION,))
        self.alu(Function.ADD, held, self.h(), n)


def sequence(machine, cell, steps, threads=1):
    """Return the program of `threads` sequences of `steps` steps with weights "w", inputs "x0", ... and outputs "y0",
    ..."""
    build = ProgramBuilder(machine)
    columns = cell.inputs + cell.hidden
    w = build.tensor("w", "int16", (columns, cell.sums), role="input", operand="b")
    far = At("external", w.address, (1,), "int16")
    build.append(Opcode.LOAD, "load_b", (columns * cell.sums,), a=far, c=At("b", 0, (1,), "int16"))
    for thread in range(threads):
        x = build.tensor(f"x{thread}", "int16", (steps, cell.inputs), role="input", operand="a")
        y = build.tensor(f"y{thread}", "int16", (steps, cell.hidden), role="output", operand="out")
        layer = Layer(build, cell, thread=thread)
        layer.start()
        for step in range(steps):
            far = At("external", x.address + 2 * step * cell.inputs, (1,), "int16")
            build.append(Opcode.LOAD, "load_a", (cell.inputs,), a=far, c=layer.x())
            layer.step()
            far = At("external", y.address + 2 * step * cell.hidden, (1,), "int16")
            build.append(Opcode.STORE, "store", (cell.hidden,), a=layer.h(), c=far)
    return build.build()


def one_step(machine, cell):
    """Return the program of one time step with weights on the chip, the task that is repeated."""
    build = ProgramBuilder(machine)
    x = build.tensor("x", "int16", (cell.inputs,), role="input", operand="a")
    y = build.tensor("y", "int16", (cell.hidden,), role="output", operand="out")
    layer = Layer(build, cell)
    far = At("external", x.address, (1,), "int16")
    build.append(Opcode.LOAD, "load_a", (cell.inputs,), a=far, c=layer.x())
    layer.step()
    build.append(Opcode.STORE, "store", (cell.hidden,), a=layer.h(), c=At("external", y.address, (1,), "int16"))
    return build.build()
