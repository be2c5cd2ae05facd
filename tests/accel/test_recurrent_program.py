"""Recurrent layers compiled for page 04's machine: exact results, page 04's cycles."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tvm_tiling as tt
from tvm_tiling.accel.checks.check import check
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.recurrent.layer import FixedPoint, sequence_program, step_program
from tvm_tiling.accel.recurrent.weights import combined_weights

ONE, LOW, HIGH = 1 << 12, -(2**15), 2**15 - 1
KINDS = (
    ("lstm", {}),
    ("gru", {}),
    ("gru", {"linear_before_reset": False}),
    ("rnn", {}),
    ("rnn", {"activation": "relu"}),
)


def layer(hidden=64, inputs=64, **further):
    return tt.RnnWorkload(**{"steps": 5, "input_size": inputs, "hidden_size": hidden, "dtype": "int16", **further})


def machine(threads=8, multipliers=16384):
    return tt.Hardware.rnn(multipliers=multipliers, threads=threads)


def fixed(sums):
    return np.clip(np.rint(sums / ONE), LOW, HIGH).astype(np.int64)


def times(a, b):
    return np.clip((a * b + ONE // 2) >> 12, LOW, HIGH)


def short(values):
    return np.clip(values, LOW, HIGH)


def table(function, values):
    return np.rint(function(values / ONE) * ONE).astype(np.int64)


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def by_numpy(workload, x, of_inputs, of_state):
    """One layer and one sequence in whole numbers, from PyTorch's weights."""
    hidden = workload.hidden_size
    wx, wh = (np.split(w.astype(np.int64), workload.gates) for w in (of_inputs, of_state))
    h = c = np.zeros(hidden, np.int64)
    outputs = []
    for row in x.astype(np.int64):
        own, back = [w @ row for w in wx], [w @ h for w in wh]
        if workload.cell == "lstm":
            i, f, g, o = (fixed(a + b) for a, b in zip(own, back, strict=True))
            i, f, o, g = table(sigmoid, i), table(sigmoid, f), table(sigmoid, o), table(np.tanh, g)
            c = short((f * c + i * g + ONE // 2) >> 12)
            h = times(o, table(np.tanh, c))
        elif workload.cell == "rnn":
            sums = fixed(own[0] + back[0])
            h = table(np.tanh, sums) if workload.activation == "tanh" else np.maximum(sums, 0)
        else:
            r, z = (table(sigmoid, fixed(own[gate] + back[gate])) for gate in range(2))
            if workload.linear_before_reset:
                n = table(np.tanh, short(times(r, fixed(back[2])) + fixed(own[2])))
            else:
                n = table(np.tanh, fixed(own[2] + wh[2] @ times(r, h)))
            h = short(n + times(z, short(h - n)))
        outputs.append(h)
    return np.array(outputs)


@pytest.mark.parametrize(("cell", "further"), KINDS, ids=str)
@pytest.mark.parametrize(("layers", "batch"), [(1, 1), (2, 3)])
def test_results_are_exact_in_the_stated_format(cell, further, layers, batch):
    workload = layer(13, 7, cell=cell, layers=layers, batch=batch, **further)
    exe = tt.compile(workload, target=machine(multipliers=256))
    rng = np.random.default_rng(len(cell) + layers)
    weights = [
        [rng.integers(-5000, 5000, (workload.gates * 13, columns)).astype(np.int16) for columns in (size, 13)]
        for size in workload.input_sizes
    ]
    x = rng.integers(-8000, 8000, (5, batch, 7)).astype(np.int16)
    given = {f"w{number}": combined_weights(workload, *pair) for number, pair in enumerate(weights)}
    y, report = exe.simulate(x, **given)
    for row in range(batch):
        wanted = x[:, row]
        for pair in weights:
            wanted = by_numpy(workload, wanted, *pair)
        np.testing.assert_array_equal(y[:, row], wanted)
    assert report.cycles > 0 and len(report.tasks) == batch
    check(exe.whole.program)
    again = run(exe.whole.program, {"x": x, **given}, order=3)
    np.testing.assert_array_equal(again["y"], y)


@pytest.mark.parametrize(("cell", "further"), KINDS[:4], ids=str)
@pytest.mark.parametrize("size", [(64, 512), (256, 256), (100, 90)], ids=str)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_cycles_are_those_of_the_decision(cell, further, size, threads):
    workload = layer(size[1], size[0], cell=cell, batch=threads, steps=6, **further)
    exe = tt.compile(workload, target=machine())
    report = exe.report()
    drains = 2 if further else 1
    if threads == 1:
        assert report.cycles == exe.tiling.cycles
        assert report.cycles == tt.rnn_cycles(workload, machine(), ep=exe.tiling.ep, vp=exe.tiling.vp)
    elif drains == 1:
        assert exe.tiling.cycles <= report.cycles <= exe.tiling.cycles + exe.tiling.layers[0].cx
    assert report.lower_bound <= report.cycles <= report.upper_bound


def test_row_wise_order_stalls_for_the_whole_drain():
    workload, hardware = layer(256, 256, steps=9), machine()
    tiling = tt.decide(workload, hardware)
    columns, rows = (
        tt.simulate([(step_program(workload, tiling, hardware, FixedPoint(), by_rows=order), 9, 0)])
        for order in (False, True)
    )
    (cut,) = tiling.layers
    assert rows.stalls["data"] == 8 * cut.latency
    assert columns.stalls["data"] == 8 * max(0, cut.latency - cut.cx)


@pytest.mark.parametrize("hidden", [256, 512, 1024])
@pytest.mark.parametrize("preset", ["rnn16k", "rnn64k"])
def test_enough_threads_bring_95_percent_over_100_steps(hidden, preset):
    hardware = tt.Hardware.load(preset)
    workload = layer(hidden, hidden, steps=100)
    tiling = tt.decide(workload, hardware)
    (cut,) = tiling.layers
    enough = max(1, math.ceil((cut.ch + max(cut.cx, cut.latency)) / (cut.cx + cut.ch)))
    assert enough == tiling.threads_needed
    exe = tt.compile(workload, target=hardware)
    assert tt.simulate([(exe, 100, 0)] * enough, hardware=hardware).utilisation >= 0.95


def test_executables_are_tasks_of_one_engine():
    hardware = machine(threads=3)
    first, second = (tt.compile(layer(hidden, 32), target=hardware) for hidden in (64, 128))
    report = tt.simulate([(first, 4, 0), (second, 6, 10), (first, 3, 20)])
    assert [task.steps for task in report.tasks] == [4, 6, 3]
    assert report.cycles < sum(tt.simulate([task]).cycles for task in [(first, 4, 0), (second, 6, 0), (first, 3, 0)])


def test_combined_weights_interleave_the_gates_of_a_unit():
    workload = layer(3, 2)
    wx, wh = np.arange(24).reshape(12, 2), 100 + np.arange(36).reshape(12, 3)
    found = combined_weights(workload, wx, wh)
    assert found.shape == (5, 12)
    for unit in range(3):
        for gate in range(4):
            np.testing.assert_array_equal(found[:2, 4 * unit + gate], wx[3 * gate + unit])
            np.testing.assert_array_equal(found[2:, 4 * unit + gate], wh[3 * gate + unit])
    gru = combined_weights(layer(3, 2, cell="gru"), wx[:9], wh[:9])
    assert not gru[2:, 2::4].any() and not gru[:2, 3::4].any()
    with pytest.raises(tt.WorkloadError, match=r"of_state of shape \(12, 2\), accepted: \(12, 3\)"):
        combined_weights(workload, wx, wx)


def test_what_the_engine_does_not_serve_is_refused():
    with pytest.raises(tt.UnsupportedOperator, match=r"rnn: float32 summed in float32 .* accepted: int16 in int32"):
        tt.compile(layer(dtype="float32"), target=machine())
    with pytest.raises(tt.UnsupportedOperator, match="bidirectional layers on the column engine; accepted: one"):
        tt.compile(layer(bidirectional=True), target=machine())
    with pytest.raises(tt.HardwareError, match="neartile has no column engine"):
        tt.compile(layer(), target="vsim/neartile")


def test_weights_of_a_sequence_are_loaded_once():
    workload, hardware = layer(16, 8, batch=2), machine(multipliers=256)
    program = sequence_program(workload, tt.decide(workload, hardware), hardware, FixedPoint())
    assert tt.simulate(program).bytes["b"] == 2 * (8 + 16) * 64
