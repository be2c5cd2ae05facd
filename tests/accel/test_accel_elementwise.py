"""Element-wise chains on the simulated accelerator."""

from __future__ import annotations

import numpy as np
import pytest
from operators import by_llvm, simulated
from tvm import te, tirx

import tvm_tiling as tt
from tvm_tiling.accel.timing.simulate import simulate

SMALL = tt.Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=8192, bw_a=8, bw_b=8, macs_per_cycle=64)


def chain(kind, shape):
    x, y, z = (te.placeholder(shape, name=name, dtype="float32") for name in "xyz")
    row = te.placeholder(shape[-1:], name="row", dtype="float32")
    scaled = te.compute(shape, lambda *i: x[i] * 2.0 + 1.0, name="scaled")
    return {
        "relu": lambda *i: tirx.max(x[i], tirx.const(0, "float32")),
        "sum": lambda *i: x[i] + y[i],
        "three": lambda *i: te.tanh(scaled[i] * y[i]) - z[i],
        "broadcast": lambda *i: te.sigmoid(x[i] + row[i[-1]]),
        "twice": lambda *i: scaled[i] / (1.0 + te.exp(-scaled[i])),
    }[kind]


@pytest.mark.values
@pytest.mark.parametrize("shape", [(1000,), (7, 9), (3, 50, 41), (2, 3, 5, 7, 11), (1, 1)], ids=str)
@pytest.mark.parametrize("kind", ["relu", "sum", "three", "broadcast", "twice"])
def test_chains_equal_the_source(kind, shape):
    op = te.compute(shape, chain(kind, shape), name="out")
    func, schedule, program, inputs, result = simulated(op, SMALL)
    expected = by_llvm(func, inputs, shape, "float32")
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_llvm(schedule.mod["main"], inputs, shape, "float32"), expected, rtol=1e-4, atol=1e-5)
    moved = simulate(program).bytes
    assert moved["a"] == 4 * np.prod(shape)  # every operand is read once
    assert moved["out"] >= 4 * np.prod(shape)


def test_a_long_chain_is_bound_by_its_slowest_part():
    x, y = (te.placeholder((400, 1000), name=name, dtype="float32") for name in "xy")
    _, _, program, _, _ = simulated(te.compute((400, 1000), lambda i, j: x[i, j] + y[i, j], name="out"), SMALL)
    assert simulate(program).cycles <= 1.05 * 400 * 1000 * 4 / 8


def test_int8_addition_saturates_as_written():
    x, y = (te.placeholder((60, 70), name=name, dtype="int8") for name in "xy")

    def added(i, j):
        total = x[i, j].astype("int32") + y[i, j].astype("int32")
        return tirx.max(tirx.min(total, 127), -128).astype("int8")

    _, _, _, inputs, result = simulated(te.compute((60, 70), added, name="out"), SMALL)
    total = inputs["x"].astype(np.int32) + inputs["y"].astype(np.int32)
    assert np.array_equal(result, np.clip(total, -128, 127))
    assert np.abs(total).max() > 128


def test_a_choice_is_refused_by_name():
    x = te.placeholder((60,), name="x", dtype="float32")
    op = te.compute((60,), lambda i: tirx.Select(x[i] > 0, x[i], 0.1 * x[i]), name="leaky")
    with pytest.raises(tt.UnsupportedOperator, match="block 'leaky'"):
        simulated(op, SMALL)
