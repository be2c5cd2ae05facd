"""Recurrent layers on the column engine: column-wise multiplication, 16-bit fixed point, exact integers."""

from __future__ import annotations

import numpy as np
import pytest
from recurrent_steps import FRACTION, ONE, Cell, sequence

from tvm_tiling.accel.checks.hazards import check
from tvm_tiling.accel.functional.run import run
from tvm_tiling.hardware import Hardware

MACHINE = Hardware.load("rnn16k")
INPUTS, HIDDEN, STEPS = 3, 5, 6
KINDS = ("lstm", "gru before", "gru after", "rnn")
LOW, HIGH = -(2**15), 2**15 - 1


def fixed(sums):
    """Round sums with twice the fraction bits to 16-bit numbers: halves to even, saturated."""
    return np.clip(np.rint(sums / ONE), LOW, HIGH).astype(np.int64)


def in_int32(sums):
    """Wrap around like the accumulators."""
    return sums.astype(np.int32).astype(np.int64)


def times(a, b):
    """Multiply 16-bit numbers: halves upwards, saturated."""
    return np.clip((a * b + ONE // 2) >> FRACTION, LOW, HIGH)


def short(values):
    return np.clip(values, LOW, HIGH)


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def table(function, values):
    return np.rint(function(values / ONE) * ONE).astype(np.int64)


def by_numpy(kind, w, x):
    """Compute the layer in exact integers. Rows of a unit's gates are adjacent, columns are those of x, then of h; `w`
    is [columns, rows]."""
    h = c = np.zeros(HIDDEN, np.int64)
    w, outputs = w.astype(np.int64), []
    for row in x.astype(np.int64):
        sums = in_int32(np.concatenate([row, h]) @ w)
        if kind == "lstm":
            i, f, g, o = (fixed(sums[at::4]) for at in range(4))
            i, f, g, o = table(sigmoid, i), table(sigmoid, f), table(np.tanh, g), table(sigmoid, o)
            c = short((f * c + i * g + ONE // 2) >> FRACTION)
            h = times(o, table(np.tanh, c))
        elif kind == "rnn":
            h = table(np.tanh, fixed(sums))
        elif kind == "gru before":
            r, z, nx, nh = (fixed(sums[at::4]) for at in range(4))
            r, z = table(sigmoid, r), table(sigmoid, z)
            n = table(np.tanh, short(times(r, nh) + nx))
            h = short(n + times(z, short(h - n)))
        else:
            r, z = (table(sigmoid, fixed(sums[at::3])) for at in range(2))
            reset = times(r, h)
            n = table(np.tanh, fixed(in_int32(np.concatenate([row, reset]) @ w)[2::3]))
            h = short(n + times(z, short(h - n)))
        outputs.append(h)
    return np.array(outputs)


def in_floats(kind, w, x):
    """Compute the same layer in real numbers by the textbook formulas."""
    h = c = np.zeros(HIDDEN)
    outputs = []
    for row in x / ONE:
        sums = np.concatenate([row, h]) @ (w / ONE)
        if kind == "lstm":
            c = sigmoid(sums[1::4]) * c + sigmoid(sums[0::4]) * np.tanh(sums[2::4])
            h = sigmoid(sums[3::4]) * np.tanh(c)
        elif kind == "rnn":
            h = np.tanh(sums)
        elif kind == "gru before":
            r, z = sigmoid(sums[0::4]), sigmoid(sums[1::4])
            h = (1 - z) * np.tanh(sums[2::4] + r * sums[3::4]) + z * h
        else:
            r, z = sigmoid(sums[0::3]), sigmoid(sums[1::3])
            h = (1 - z) * np.tanh((np.concatenate([row, r * h]) @ (w / ONE))[2::3]) + z * h
        outputs.append(h)
    return np.array(outputs)


def made(kind, seed, largest):
    """Return random weights of a cell, with zeros where a sum of the GRU with four rows per unit uses x or h alone."""
    rng = np.random.default_rng(seed)
    gates = Cell(kind, INPUTS, HIDDEN, 1, 1).gates
    w = rng.integers(-largest, largest, (INPUTS + HIDDEN, gates * HIDDEN), endpoint=True).astype(np.int16)
    if kind == "gru before":
        w[INPUTS:, 2::4] = 0
        w[:INPUTS, 3::4] = 0
    return rng, w


@pytest.mark.values
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ep", "threads", "rows"), [(1, 1, False), (4, 2, False), (8, 3, False), (8, 2, True)])
def test_a_cell_in_fixed_point_equals_whole_numbers_exactly_and_the_real_cell_closely(kind, ep, threads, rows):
    program = sequence(MACHINE, Cell(kind, INPUTS, HIDDEN, ep, 16, rows), STEPS, threads)
    check(program)
    rng, w = made(kind, ep, 6000)
    inputs = {f"x{n}": rng.integers(-8000, 8000, (STEPS, INPUTS)).astype(np.int16) for n in range(threads)}
    outputs = run(program, inputs | {"w": w})
    for thread in range(threads):
        wanted = by_numpy(kind, w, inputs[f"x{thread}"])
        np.testing.assert_array_equal(outputs[f"y{thread}"], wanted)
        np.testing.assert_allclose(wanted / ONE, in_floats(kind, w, inputs[f"x{thread}"]), atol=6 / ONE)
    for seed in range(3):
        again = run(program, inputs | {"w": w}, order=seed)
        assert all(np.array_equal(again[name], values) for name, values in outputs.items())


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_at_the_ends_of_their_range_saturate(kind):
    program = sequence(MACHINE, Cell(kind, INPUTS, HIDDEN, 4, 16), STEPS)
    rng, w = made(kind, 7, HIGH)
    w = np.where(rng.random(w.shape) < 0.3, np.where(w < 0, LOW, HIGH) * (w != 0), w).astype(np.int16)
    x = rng.choice([LOW, HIGH, 0, 1, -1], (STEPS, INPUTS)).astype(np.int16)
    sums = np.abs(x.astype(np.int64) @ w[:INPUTS].astype(np.int64))
    assert (sums > HIGH * ONE).any() and (sums < HIGH * ONE).any()
    np.testing.assert_array_equal(run(program, {"w": w, "x0": x})["y0"], by_numpy(kind, w, x))
