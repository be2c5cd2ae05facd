"""Steps of an LSTM cell as page 04's machine does them: column-wise products, 16-bit fixed point, tables."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_tiling.accel.builder import At, ProgramBuilder
from tvm_tiling.accel.check import check
from tvm_tiling.accel.functional import run
from tvm_tiling.accel.isa import Function, Opcode
from tvm_tiling.hardware import Hardware

FRACTION = 12  # bits behind the point of everything in 16 bits
HIDDEN, INPUT = 5, 3
COLUMNS = HIDDEN + INPUT
MACHINE = Hardware.load("rnn16k")


def lstm(steps, ep, threads):
    """Programs for `threads` sequences of `steps`, `ep` columns to a product. Rows 4r..4r+3 of the weights are row r of
    i, f, g, o; columns are those of x, then those of h."""
    build = ProgramBuilder(MACHINE, ("load_a", "load_b", "column", "vector", "store"))
    rows = 4 * HIDDEN
    w = build.tensor("w", "int16", (COLUMNS, rows), role="input", operand="b")  # column by column
    build.append(
        Opcode.LOAD,
        "load_b",
        (COLUMNS * rows,),
        a=At("external", w.address, (1,), "int16"),
        c=At("b", 0, (1,), "int16"),
    )
    for thread in range(threads):
        x = build.tensor(f"x{thread}", "int16", (steps, INPUT), role="input", operand="a")
        y = build.tensor(f"y{thread}", "int16", (steps, HIDDEN), role="output", operand="out")
        vector = thread * 64  # x, then h, in memory a
        state = thread * 512  # in memory acc: sums of 4 * HIDDEN, then gates, c, products
        gate = {name: state + 128 + 2 * at for at, name in enumerate("ifgo")}
        cell, wide, other = state + 256, state + 320, state + 384

        def short(address, stride=1):
            return At("acc", address, (stride,), "int16")

        def long(address):
            return At("acc", address, (1,), "int32")

        build.append(Opcode.FILL, "vector", (HIDDEN,), c=At("a", vector + 2 * INPUT, (1,), "int16"))
        build.append(Opcode.FILL, "vector", (HIDDEN,), c=short(cell))
        for step in range(steps):
            far = At("external", x.address + 2 * step * INPUT, (1,), "int16")
            build.append(Opcode.LOAD, "load_a", (INPUT,), a=far, c=At("a", vector, (1,), "int16"))
            for first in range(0, COLUMNS, ep):
                build.append(
                    Opcode.COLMV,
                    "column",
                    (rows, 1, 1, 1, 1, min(ep, COLUMNS - first)),
                    a=At("b", 2 * rows * first, (1, 0, 0, 0, 0, rows), "int16"),
                    b=At("a", vector + 2 * first, (0, 0, 0, 0, 0, 1), "int16"),
                    c=At("acc", state, (1,), "int32"),
                    accumulate=first > 0,
                    immediate=(ep, rows),
                )

            def alu(function, a, c, b=None, count=HIDDEN, immediate=None):
                build.append(Opcode.ALU, "vector", (count,), a=a, b=b, c=c, function=function, immediate=immediate)

            alu(Function.SCALE, long(state), short(state + 128), count=rows, immediate=(2.0**-FRACTION, 0))
            for name in "ifgo":
                function = Function.TANH if name == "g" else Function.SIGMOID
                alu(function, short(gate[name], 4), short(gate[name], 4), immediate=(FRACTION,))
            alu(Function.MUL, short(gate["f"], 4), long(wide), short(cell))
            alu(Function.MUL, short(gate["i"], 4), long(other), short(gate["g"], 4))
            alu(Function.ADD, long(wide), long(wide), long(other))
            alu(Function.SHIFT, long(wide), short(cell), immediate=(FRACTION,))
            alu(Function.TANH, short(cell), short(other), immediate=(FRACTION,))
            alu(Function.MUL, short(gate["o"], 4), long(wide), short(other))
            h = At("a", vector + 2 * INPUT, (1,), "int16")
            alu(Function.SHIFT, long(wide), h, immediate=(FRACTION,))
            far = At("external", y.address + 2 * step * HIDDEN, (1,), "int16")
            build.append(Opcode.STORE, "store", (HIDDEN,), a=h, c=far)
    return build.build()


def reference(w, x):
    """The same in exact integers; also the real-valued cell on the same numbers."""
    one = 1 << FRACTION
    h = c = np.zeros(HIDDEN, np.int64)
    real_h = real_c = np.zeros(HIDDEN)
    fixed, real = [], []

    def table(function, values):
        return np.rint(function(values / one) * one).astype(np.int64)

    def sigmoid(values):
        return 1 / (1 + np.exp(-values))

    def rounded(values):
        return np.clip((values + one // 2) >> FRACTION, -(2**15), 2**15 - 1)

    for row in x:
        sums = np.concatenate([row, h]).astype(np.int64) @ w.astype(np.int64)
        gates = np.clip(np.rint(sums / one), -(2**15), 2**15 - 1)
        i, f, g, o = (table(np.tanh if at == 2 else sigmoid, gates[at::4]) for at in range(4))
        c = rounded(f * c + i * g)
        h = rounded(o * table(np.tanh, c))
        fixed.append(h)
        z = np.concatenate([row / one, real_h]) @ (w / one)
        real_c = sigmoid(z[1::4]) * real_c + sigmoid(z[0::4]) * np.tanh(z[2::4])
        real_h = sigmoid(z[3::4]) * np.tanh(real_c)
        real.append(real_h)
    return np.array(fixed), np.array(real)


@pytest.mark.parametrize("ep, threads", [(1, 1), (4, 2), (8, 3)])
def test_an_lstm_in_fixed_point_equals_integers_exactly_and_the_real_cell_closely(ep, threads):
    rng = np.random.default_rng(ep)
    program = lstm(6, ep, threads)
    check(program)
    w = rng.integers(-6000, 6000, (COLUMNS, 4 * HIDDEN)).astype(np.int16)
    inputs = {f"x{thread}": rng.integers(-8000, 8000, (6, INPUT)).astype(np.int16) for thread in range(threads)}
    outputs = run(program, inputs | {"w": w})
    for thread in range(threads):
        fixed, real = reference(w, inputs[f"x{thread}"])
        np.testing.assert_array_equal(outputs[f"y{thread}"], fixed)
        np.testing.assert_allclose(fixed / (1 << FRACTION), real, atol=4 / (1 << FRACTION))
    for seed in range(5):
        again = run(program, inputs | {"w": w}, order=seed)
        assert all(np.array_equal(again[name], values) for name, values in outputs.items())
