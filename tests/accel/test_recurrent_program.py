"""Recurrent layers compiled for the column engine: exact results, and the cycles of the formulas."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from fixed_point_cells import by_numpy

import tvm_tiling as tt
from tvm_tiling.accel.checks.hazards import check
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.recurrent.layer import FixedPoint
from tvm_tiling.accel.recurrent.sequences import Given, sequence_program, step_program
from tvm_tiling.accel.recurrent.weights import combined_weights, row_places
from tvm_tiling.hardware import Memory
from tvm_tiling.model.accel.rnn import compile_recurrent

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
            wanted, _ = by_numpy(workload, wanted, *pair)
        np.testing.assert_array_equal(y[:, row], wanted)
    assert report.cycles > 0 and len(report.tasks) == batch
    check(exe.whole.program)
    again = run(exe.whole.program, {"x": x, **given}, order=3)
    np.testing.assert_array_equal(again["y"], y)


def rows_of(workload, of_inputs, of_state):
    """Biases of the combined weights' rows."""
    names = {"lstm": "ifgo", "gru": "rzn", "rnn": "h"}[workload.cell]
    bx, bh = (dict(zip(names, np.split(b, len(names)), strict=True)) for b in (of_inputs, of_state))
    hidden, places = workload.hidden_size, row_places(workload)
    rows = np.zeros(len(places) * hidden, np.int32)
    for name, (start, step) in places.items():
        values = bx["n"] if name == "nx" else bh["n"] if name == "nh" else bx[name] + bh[name]
        rows[start : start + step * hidden : step] = values
    return rows


@pytest.mark.parametrize(("cell", "further"), KINDS, ids=str)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_biases_states_lengths_and_both_directions_are_exact(cell, further, bidirectional):
    lengths, hidden, layers = (5, 2, 0), 6, 2
    workload = layer(hidden, 4, cell=cell, layers=layers, batch=3, bidirectional=bidirectional, **further)
    numbers = FixedPoint(weights=13)
    exe = compile_recurrent(
        workload, machine(multipliers=64), numbers, Given(biased=True, states=True, lengths=lengths)
    )
    rng, ways = np.random.default_rng(3), ("", "_reverse")[: workload.directions]
    gates = workload.gates * hidden
    x = rng.integers(-8000, 8000, (5, 3, 4)).astype(np.int16)
    count = 2 if cell == "lstm" else 1
    starts = rng.integers(-4000, 4000, (count, layers * len(ways), 3, hidden)).astype(np.int16)
    given, below = dict(zip(("h0", "c0"), starts, strict=False)), [x[:, row] for row in range(3)]
    finals = np.zeros_like(starts)
    for number, size in enumerate(workload.input_sizes):
        above = [np.zeros((5, len(ways) * hidden), np.int64) for _ in range(3)]
        for place, way in enumerate(ways):
            pair = [rng.integers(-9000, 9000, (gates, columns)).astype(np.int16) for columns in (size, hidden)]
            biases = [rng.integers(-(2**23), 2**23, gates).astype(np.int32) for _ in range(2)]
            given[f"w{number}{way}"] = combined_weights(workload, *pair)
            given[f"b{number}{way}"] = rows_of(workload, *biases)
            at = number * len(ways) + place
            for row, length in enumerate(lengths):
                order = slice(None, None, -1) if way else slice(None)
                steps, last = by_numpy(
                    workload, below[row][:length][order], *pair, biases, tuple(starts[:, at, row]), 13
                )
                above[row][:length, place * hidden : (place + 1) * hidden] = steps[order]
                finals[:, at, row] = last
        below = above
    found = exe.run(x=x, **given)
    np.testing.assert_array_equal(found[0], np.stack(below, 1))
    np.testing.assert_array_equal(np.stack(found[1:]), finals)
    check(exe.whole.program)
    assert len(exe.report().tasks) == (2 * 2 * 2 if bidirectional else 2)


@pytest.mark.parametrize(("cell", "further"), KINDS[:4], ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_the_program_of_a_whole_sequence_takes_the_cycles_of_the_decision(cell, further, threads):
    """Threads take turns within it; with dependent matrix-vector multiplications overlapped by others, cycles are those
    of the formula."""
    workload = layer(128, 100, cell=cell, batch=threads, steps=6, **further)
    exe = tt.compile(workload, target=machine())
    (config,), cycles = exe.tiling.layers, tt.simulate(exe.whole.program).cycles
    if threads == 1:
        assert cycles == exe.tiling.cycles == exe.report().cycles
    elif not further:
        assert exe.tiling.cycles <= cycles <= exe.tiling.cycles + config.cx


def test_directions_are_threads_and_layers_follow_each_other():
    workload, hardware = layer(128, 100, layers=2, bidirectional=True, steps=9), machine(threads=2)
    exe = tt.compile(workload, target=hardware)
    report = exe.report()
    first, second = report.tasks[:2], report.tasks[2:]
    assert {task.thread for task in first} == {task.thread for task in second} == {0, 1}
    assert min(task.start for task in second) == max(task.end for task in first)
    assert exe.tiling.cycles <= report.cycles <= exe.tiling.cycles + sum(config.cx for config in exe.tiling.layers)
    with pytest.raises(tt.UnsupportedOperator, match="2 bidirectional layers have no single step"):
        _ = exe.program
    one = tt.compile(layer(128, 100, bidirectional=True, steps=9), target=hardware)
    assert tt.simulate([(one, 9, 0), (one, 9, 0)]).cycles == one.report().cycles


@pytest.mark.values
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
    (config,) = tiling.layers
    assert rows.stalls["data"] == 8 * config.latency
    assert columns.stalls["data"] == 8 * max(0, config.latency - config.cx)


@pytest.mark.parametrize("hidden", [256, 512, 1024])
@pytest.mark.parametrize("multipliers", [16384, 65536])
def test_enough_threads_bring_95_percent_over_100_steps(hidden, multipliers):
    hardware = tt.Hardware.rnn(multipliers=multipliers, threads=4)
    workload = layer(hidden, hidden, steps=100)
    tiling = tt.decide(workload, hardware)
    (config,) = tiling.layers
    enough = max(1, math.ceil((config.ch + max(config.cx, config.latency)) / (config.cx + config.ch)))
    assert enough == tiling.threads_needed
    exe = tt.compile(workload, target=hardware)
    assert tt.simulate([(exe, 100, 0)] * enough, hardware=hardware).utilisation >= 0.95


def test_executables_are_tasks_of_one_engine():
    hardware = machine(threads=3)
    first, second = (tt.compile(layer(hidden, 32), target=hardware) for hidden in (64, 128))
    report = tt.simulate([(first, 4, 0), (second, 6, 10), (first, 3, 20)])
    assert [task.steps for task in report.tasks] == [4, 6, 3]
    assert report.cycles < sum(tt.simulate([task]).cycles for task in [(first, 4, 0), (second, 6, 0), (first, 3, 0)])


@pytest.fixture(scope="module")
def models():
    """Return eight models with different cells and sizes, as (executable, steps)."""
    cells = ("lstm", "gru", "rnn", "lstm")
    sizes = (64, 256, 128, 96, 200, 512, 32, 160)
    return [
        (tt.compile(layer(hidden, 48, cell=cells[number % 4]), target=machine()), 4 + number)
        for number, hidden in enumerate(sizes)
    ]


@pytest.mark.parametrize("threads", range(1, 9))
def test_one_to_eight_threads_of_different_models(threads, models):
    """All multiplications of every model are done, none waits beside idle threads, and stalls are accounted for."""
    tasks = [(exe, steps, 0) for exe, steps in models]
    report, alone = (tt.simulate(tasks, hardware=machine(threads=count)) for count in (threads, 1))
    assert report.busy == alone.busy == sum(steps * busy_of(exe) for exe, steps in models)
    assert [task.start for task in report.tasks[:threads]] == [0] * threads
    assert all(task.start > 0 for task in report.tasks[threads:])
    for task in report.tasks:
        assert task.busy + task.stalled + task.drain == task.cycles
    assert report.lower_bound <= report.cycles <= report.upper_bound
    if threads > 1:
        assert report.cycles < alone.cycles and report.utilisation > alone.utilisation


def busy_of(exe):
    """Cycles of the multiplications of a step."""
    (config,) = exe.tiling.layers
    return config.cx + config.ch


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
    with pytest.raises(tt.WorkloadError, match=r"of_state has shape \(12, 2\); expected \(12, 3\)"):
        combined_weights(workload, wx, wx)


def test_what_the_engine_does_not_serve_is_refused():
    with pytest.raises(tt.UnsupportedOperator, match=r"rnn: float32 accumulated in float32 .* expected int16 in int32"):
        tt.compile(layer(dtype="float32"), target=machine())
    small = dataclasses.replace(machine(), memories={"b": Memory(bytes=1000)})
    with pytest.raises(tt.HardwareError, match="memory 'b' has 1000 bytes; expected at least 65536, for the weights"):
        tt.compile(layer(), target=small)
    with pytest.raises(tt.WorkloadError, match=r"lengths = \(6,\); expected 1 lengths, each of 0 to 5 steps"):
        compile_recurrent(layer(), machine(), given=Given(lengths=(6,)))
    with pytest.raises(tt.HardwareError, match="neartile has no column engine"):
        tt.compile(layer(), target="vsim/neartile")


def test_weights_of_a_sequence_are_loaded_once():
    workload, hardware = layer(16, 8, batch=2), machine(multipliers=256)
    program = sequence_program(workload, tt.decide(workload, hardware), hardware, FixedPoint())
    assert tt.simulate(program).bytes["b"] == 2 * (8 + 16) * 64
