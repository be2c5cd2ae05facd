"""Convolutions on machines with several storage levels: results, bytes of every level, capacity, time and
prediction."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from convolutions import by_numpy, convolution
from level_machines import levels
from operators import by_llvm, simulated
from test_accel_conv import CASES, requantised, workload_of
from tvm import te, topi

import tvm_tiling as tt
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.cost import capacity
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.hardware.machine import Machine

LARGER = {
    "whole layer": {"h": 28, "w": 28, "ci": 64, "co": 96, "padding": (1, 1, 1, 1)},
    "narrow channels": {
        "h": 40,
        "w": 40,
        "ci": 3,
        "co": 32,
        "kh": 5,
        "kw": 5,
        "stride": (2, 2),
        "padding": (2, 2, 2, 2),
    },
    "pointwise": {"h": 14, "w": 14, "ci": 128, "co": 160, "kh": 1, "kw": 1},
    "primes": {"n": 2, "h": 13, "w": 17, "ci": 19, "co": 23, "padding": (1, 1, 1, 1)},
}


def check(options, hardware):
    """The result is exact, and every level moves the bytes that the decision states."""
    func, _, program, inputs, result = simulated(convolution(**options), hardware)
    assert np.array_equal(result, by_numpy(inputs, **options))
    decision, report = tt.decide(workload_of(func), hardware), simulate(program)
    outermost = decision.levels[0]
    assert report.bytes == {"a": outermost.bytes_a, "b": outermost.bytes_b, "out": result.nbytes}
    assert report.macs == workload_of(func).macs
    above = None
    for config in decision.levels:
        use = {operand: report.memories[f"{config.name}.{operand}"] for operand in ("a", "b", "out")}
        assert use["a"].written == config.bytes_a * config.across_n
        filled = border(program, f"{config.name}.b") if above is None else 0
        assert use["b"].written == config.bytes_b * config.across_m + filled
        assert use["out"].read == config.bytes_out == result.nbytes
        if above is not None:  # each copy above is read once
            assert report.memories[f"{above.name}.a"].read == config.bytes_a * above.across_n
            assert report.memories[f"{above.name}.b"].read == config.bytes_b * above.across_m
        above = config
    assert report.lower_bound <= report.cycles <= report.upper_bound
    fits(program, hardware)
    return decision, report


def border(program, memory):
    """Bytes of pieces that are entirely outside of the image."""
    rows = program.instructions
    names = [own.name for own in program.memories]
    fills = rows[(rows["op"] == Opcode.FILL) & (rows["c_memory"] == names.index(memory))]
    return int(fills["extent"].astype(np.int64).prod(axis=1).sum())


def fits(program, hardware):
    """No level holds more than its capacity, with all operands together where they share it."""
    machine, used = Machine(hardware), {memory.name: memory.bytes for memory in program.memories}
    for level in hardware.levels:
        own = {operand: used.get(f"{level.name}.{operand}", 0) for operand in ("a", "b", "out")}
        for operand, size in own.items():
            assert size <= capacity(machine, f"{level.name}.{operand}")
        if level.bytes is not None:
            assert sum(own.values()) <= capacity(machine, f"{level.name}.a")


@pytest.mark.parametrize(
    ("case", "count"),
    [
        pytest.param(case, count, marks=() if number % 3 == count - 2 else pytest.mark.slow)
        for number, case in enumerate((*CASES, *LARGER))
        for count in (2, 3, 4)
    ],
)
def test_int8_convolutions_are_exact_and_every_level_reads_what_was_decided(case, count):
    check((CASES | LARGER)[case], levels(count))


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.slow) for n in range(6, 24))])
def test_random_convolutions(seed):
    rng = random.Random(seed)
    groups = rng.choice((1, 1, 1, 2, 3))
    taps = rng.choice((1, 2, 3, 5)), rng.choice((1, 3, 4))
    options = {
        "n": rng.choice((1, 1, 2)),
        "h": rng.randint(taps[0] * 2, 24),
        "w": rng.randint(taps[1] * 2, 24),
        "ci": groups * rng.randint(1, 24),
        "co": groups * rng.randint(1, 40),
        "kh": taps[0],
        "kw": taps[1],
        "stride": (rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2))),
        "dilation": (rng.choice((1, 1, 2)), 1),
        "padding": tuple(rng.randint(0, 2) for _ in range(4)),
        "groups": groups,
        "layout": rng.choice(("NHWC", "NCHW")),
    }
    check(options, levels(rng.choice((2, 3, 4))))


@pytest.mark.values
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("case", ["3x3", "batch, stride, asymmetric", "depthwise"])
def test_epilogues_run_at_the_innermost_level(case, count):
    func, schedule, program, inputs, result = simulated(requantised(convolution(**CASES[case]), 8), levels(count))
    assert np.array_equal(result, by_llvm(func, inputs, result.shape, "int8"))
    assert np.array_equal(result, by_llvm(schedule.mod["main"], inputs, result.shape, "int8"))
    assert len(np.unique(result)) > 20
    assert simulate(program).engines["vector"].busy > 0


@pytest.mark.parametrize("count", [2, 3, 4])
def test_floats(count):
    options = CASES["batch, stride, asymmetric"] | {"dtype": "float32"}
    _, _, _, inputs, result = simulated(convolution(**options), levels(count))
    np.testing.assert_allclose(result, by_numpy(inputs, **options), rtol=1e-4, atol=1e-4)


def test_instances_that_share_lines_hold_both_their_halo():
    options = {"h": 56, "w": 14, "ci": 64, "co": 64, "padding": (1, 1, 1, 1)}
    decision, report = check(options, levels(3))
    unit = decision.levels[1]
    assert unit.across_n > 1
    part = unit.right[1] // decision.points // unit.across_n  # lines of a block in one unit
    lines = sum(min(part, 56 - first) + 2 for first in range(0, 56, part))
    columns = sum(min(decision.points, 14 - first) + 2 for first in range(0, 14, decision.points))
    assert unit.bytes_b == unit.load_b * lines * columns * 64
    assert lines > 56 + 2
    assert report.memories["cluster.b"].read == unit.bytes_b


@pytest.mark.values
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize(
    ("options", "within"),
    [
        ({"h": 28, "w": 28, "ci": 128, "co": 128, "padding": (1, 1, 1, 1)}, 0.08),
        ({"h": 56, "w": 56, "ci": 64, "co": 64, "kh": 1, "kw": 1}, 0.15),
        ({"h": 57, "w": 57, "ci": 32, "co": 64, "stride": (2, 2), "padding": (1, 1, 1, 1)}, 0.15),
    ],
    ids=["3x3", "1x1", "stride"],
)
def test_cycles_are_near_the_prediction(count, options, within):
    hardware = levels(count)
    op = convolution(**options)
    report = simulate(record(tt.tiling_schedule(op, target=hardware).mod, hardware))
    decision = tt.decide(tt.ConvWorkload(**({"n": 1, "kh": 3, "kw": 3, "dtype": "int8"} | options)), hardware)
    assert report.cycles == pytest.approx(decision.cycles, rel=within)


def test_a_transposed_convolution_is_refused_by_name():
    x, k = te.placeholder((1, 4, 5, 5), name="x", dtype="int8"), te.placeholder((4, 3, 3, 3), name="w", dtype="int8")
    op = topi.nn.conv2d_transpose_nchw(x, k, (2, 2), (1, 1), "int32", (0, 0))
    with pytest.raises(tt.UnsupportedOperator, match=r"transposed .* expected"):
        tt.tiling_schedule(op, target=levels(3))


def test_a_level_that_holds_no_window_is_refused_by_name():
    with pytest.raises(tt.HardwareError, match=r"nothing fits; level 'array' has bytes_a = \d+; expected at least \d+"):
        tt.tiling_schedule(convolution(h=64, w=64, kh=60, kw=60), target=levels(2))


def test_operands_that_share_a_level_are_refused_together():
    """Each buffer alone would fit the level that all three share."""
    hardware = levels(2)
    schedule = tt.tiling_schedule(convolution(**LARGER["whole layer"]), target=hardware)
    program = record(schedule.mod, hardware)
    used = {memory.name: memory.bytes for memory in program.memories}
    own = [used[f"chip.{operand}"] for operand in ("a", "b", "out")]
    chip = dataclasses.replace(hardware.levels[0], bytes=max(own) + min(own) - 1)
    with pytest.raises(tt.HardwareError, match=r"memory 'chip\.\w+' .* of them in use; expected smaller tiles"):
        record(schedule.mod, dataclasses.replace(hardware, levels=(chip, *hardware.levels[1:])))
