"""A recurrent layer on the column engine: column-wise matrix-vector multiplication in 16-bit fixed point, gates in the
tail (design page 04).

A step multiplies the columns of x, then those of h, into the sums of all gates; biases are added, the sums are
dequantised once, and the tail computes in 16 bits (hardware/column.py defines the format). Weights reside on the chip
in memory b, vectors in memory a, and sums, biases and intermediate values of the tail in acc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...decide.rnn.column import LayerConfig
from ...errors import HardwareError
from ...hardware.vector_functions import Function, VectorFunction
from ...workload import RnnWorkload
from ..instructions.table import Opcode
from ..program.builder import ALIGNMENT, At, ProgramBuilder
from .weights import row_places

DTYPE, WIDE = "int16", "int32"
VERSIONS = 2  # of the sums of a sequence


@dataclass(frozen=True)
class FixedPoint:
    """A 16-bit fixed-point format: vectors and the tail have `fraction` fraction bits, weights have `weights`, or as
    many if None. Biases are 32-bit integers with the fraction bits of the products."""

    fraction: int = 12
    weights: int | None = None

    @property
    def of_weights(self) -> int:
        """Number of fraction bits of weights."""
        return self.fraction if self.weights is None else self.weights


class Allocator:
    """Allocates bytes of memories consecutively."""

    def __init__(self) -> None:
        self.used: dict[str, int] = {}

    def take(self, memory: str, elements: int, dtype: str) -> At:
        start = -(-self.used.get(memory, 0) // ALIGNMENT) * ALIGNMENT
        self.used[memory] = start + elements * (4 if dtype == WIDE else 2)
        return At(memory, start, (1,), dtype)

    def check(self, build: ProgramBuilder) -> None:
        """Raise HardwareError if a memory of the machine is smaller than what was allocated in it."""
        for memory, used in self.used.items():
            capacity = build.machine.capacity(memory)
            if capacity is not None and used > capacity:
                raise HardwareError(
                    f"{build.machine.hardware.name}: memory {memory!r} has {capacity} bytes; expected at "
                    f"least {used}, for the weights and vectors of all sequences in flight"
                )


class Layer:
    """The placement of one layer of one sequence, and the instructions of its steps.

    `x` are the places of its input, used in rotation by its steps, or the layer below, whose state is the input. `h`
    are the places of its state: a step reads one and writes the next. Sums have two places if the layer has several
    inputs. `bias` is in acc; None for none. `by_rows`: for comparison, products start only once the whole of [x, h],
    stored contiguously, is available.
    """

    def __init__(
        self,
        build: ProgramBuilder,
        workload: RnnWorkload,
        config: LayerConfig,
        numbers: FixedPoint,
        allocator: Allocator,
        weights: At,
        x: Sequence[At] | Layer,
        h: Sequence[At],
        *,
        bias: At | None = None,
        by_rows: bool = False,
        engine: int = 0,
    ) -> None:
        self.build, self.workload, self.config, self.numbers = build, workload, config, numbers
        self.inputs, self.states, self.weights, self.bias, self.by_rows = x, tuple(h), weights, bias, by_rows
        self.hidden, self.places = workload.hidden_size, row_places(workload)
        self.rows = len(self.places) * self.hidden
        engines = [name for name in build.machine.engines if name.startswith("column")]
        self.engine = engines[engine % len(engines)]
        self.steps = 0
        sums = 1 if not isinstance(x, Layer) and len(x) == 1 else VERSIONS
        self.ends: Sequence[At] = ()
        self.all_sums = [allocator.take("acc", self.rows, WIDE) for _ in range(sums)]
        self.gates = allocator.take("acc", self.rows, DTYPE)
        self.wide, self.other = (allocator.take("acc", self.hidden, WIDE) for _ in range(2))
        self.kept, self.short = (allocator.take("acc", self.hidden, DTYPE) for _ in range(2))
        self.reset_h = allocator.take("a", self.hidden, DTYPE)

    @property
    def x(self) -> At:
        """The input of the next step."""
        return self.inputs.h if isinstance(self.inputs, Layer) else self.inputs[self.steps % len(self.inputs)]

    @property
    def h(self) -> At:
        """The state that the next step reads, written by the previous step."""
        return self.states[self.steps % len(self.states)]

    @property
    def next_h(self) -> At:
        """The state that the next step writes."""
        return self.states[(self.steps + 1) % len(self.states)]

    @property
    def sums(self) -> At:
        return self.all_sums[self.steps % len(self.all_sums)]

    def start(self, states: Sequence[At] = ()) -> None:
        """Initialise h and c from `states` in external memory, or with 0 if not given."""
        for number, state in enumerate((self.h, self.kept)):
            if number < len(states):
                self.build.append(Opcode.LOAD, "load_a", (self.hidden,), a=states[number], c=state)
            else:
                self.build.append(Opcode.FILL, "vector", (self.hidden,), c=state, immediate=(0.0,))

    def end(self) -> None:
        """Store h and c to `ends` in external memory."""
        for source, state in zip((self.h, self.kept), self.ends, strict=False):
            self.build.append(Opcode.STORE, "store", (self.hidden,), a=source, c=state)

    def step(self) -> None:
        {"lstm": self._lstm, "gru": self._gru, "rnn": self._rnn}[self.workload.cell]()
        self.steps += 1

    # ---- products -------------------------------------------------------------------------------------------------

    def product(
        self, column: int, columns: int, source: At, accumulate: bool, row: int = 0, rows: int | None = None
    ) -> None:
        """Accumulate `rows` rows from `row` (None: all) over `columns` columns from `column`."""
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
            immediate=(self.config.ep, self.config.vp),
        )

    def products(self) -> None:
        """Multiply the columns of x, then those of h; or whole rows."""
        if self.by_rows:
            self.product(0, self.config.input_size + self.hidden, self.x, False)
        else:
            self.product(0, self.config.input_size, self.x, False)
            self.product(self.config.input_size, self.hidden, self.h, True)
        self.add_bias(0, self.rows)

    def add_bias(self, row: int, rows: int) -> None:
        """Add biases to the sums of `rows` rows starting at `row`."""
        if self.bias is not None:
            sums, bias = (At("acc", at.address + 4 * row, (1,), WIDE) for at in (self.sums, self.bias))
            self.build.append(Opcode.ALU, "vector", (rows,), a=sums, b=bias, c=sums, function=Function.ADD)

    # ---- the tail -------------------------------------------------------------------------------------------------

    def alu(
        self, function: VectorFunction, a: At, c: At, b: At | None = None, immediate: tuple[float, ...] | None = None
    ) -> None:
        self.build.append(Opcode.ALU, "vector", (self.hidden,), a=a, b=b, c=c, function=function, immediate=immediate)

    def gate(self, name: str) -> At:
        start, step = self.places[name]
        return At("acc", self.gates.address + 2 * start, (step,), DTYPE)

    def fixed(self, name: str, function: VectorFunction | None = None) -> At:
        """Return the sums of a name as 16-bit numbers, or a function of them."""
        start, step = self.places[name]
        sums, gate = At("acc", self.sums.address + 4 * start, (step,), WIDE), self.gate(name)
        self.alu(Function.SCALE, sums, gate, immediate=(2.0**-self.numbers.of_weights, 0.0))
        if function is not None:
            self.smooth(function, gate, gate)
        return gate

    def smooth(self, function: VectorFunction, a: At, c: At) -> None:
        self.alu(function, a, c, immediate=(float(self.numbers.fraction),))

    def times(self, a: At, b: At, c: At) -> None:
        """Compute c = a * b, rounded to 16 bits."""
        self.alu(Function.MUL, a, self.wide, b)
        self.alu(Function.SHIFT, self.wide, c, immediate=(float(self.numbers.fraction),))

    def _lstm(self) -> None:
        """Compute c = f * c + i * g, rounded once; h = o * tanh(c)."""
        self.products()
        i, f, o = (self.fixed(name, Function.SIGMOID) for name in "ifo")
        g = self.fixed("g", Function.TANH)
        self.alu(Function.MUL, f, self.wide, self.kept)
        self.alu(Function.MUL, i, self.other, g)
        self.alu(Function.ADD, self.wide, self.wide, self.other)
        self.alu(Function.SHIFT, self.wide, self.kept, immediate=(float(self.numbers.fraction),))
        self.smooth(Function.TANH, self.kept, self.short)
        self.times(o, self.short, self.next_h)

    def _rnn(self) -> None:
        self.products()
        if self.workload.activation == "tanh":
            self.fixed("h")
            self.smooth(Function.TANH, self.gate("h"), self.next_h)
        else:
            self.alu(Function.RELU, self.fixed("h"), self.next_h)

    def _gru(self) -> None:
        if self.workload.linear_before_reset:
            self._gru_of_product()
        else:
            self._gru_of_state()

    def _gru_of_product(self) -> None:
        """Compute n = tanh(nx + r * nh)."""
        self.products()
        r, _ = (self.fixed(name, Function.SIGMOID) for name in "rz")
        nx, nh = self.fixed("nx"), self.fixed("nh")
        self.times(r, nh, self.short)
        self.alu(Function.ADD, self.short, self.short, nx)
        self._blend()

    def _gru_of_state(self) -> None:
        """Compute n = tanh(x part + product of r * h), which waits for r."""
        self.product(0, self.config.input_size, self.x, False)
        self.product(self.config.input_size, self.hidden, self.h, True, 0, 2 * self.hidden)
        self.add_bias(0, 2 * self.hidden)
        r, _ = (self.fixed(name, Function.SIGMOID) for name in "rz")
        self.alu(Function.COPY, self.h, self.short)
        self.times(r, self.short, self.reset_h)
        self.product(self.config.input_size, self.hidden, self.reset_h, True, 2 * self.hidden, self.hidden)
        self.add_bias(2 * self.hidden, self.hidden)
        self.alu(Function.COPY, self.fixed("n"), self.short)
        self._blend()

    def _blend(self) -> None:
        """Compute h = n + z * (h - n), where n is the tanh of the current candidate."""
        self.smooth(Function.TANH, self.short, self.short)
        self.alu(Function.COPY, self.h, self.kept)
        self.alu(Function.SUB, self.kept, self.kept, self.short)
        self.times(self.gate("z"), self.kept, self.kept)
        self.alu(Function.ADD, self.kept, self.next_h, self.short)
