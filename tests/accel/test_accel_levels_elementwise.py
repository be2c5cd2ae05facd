"""Element-wise chains through several storage levels: results, bytes of every level, time."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from level_machines import levels
from operators import by_llvm, simulated
from test_accel_elementwise import chain
from test_accel_levels_conv import fits
from tvm import te

import tvm_tiling as tt
from tvm_tiling.accel.timing.simulate import simulate

OPERANDS = {"relu": 1, "sum": 2, "three": 3, "broadcast": 1, "twice": 1}  # of the result's shape


@pytest.mark.values
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("shape", [(1000,), (7, 9), (3, 50, 41), (200, 130), (1, 1)], ids=str)
@pytest.mark.parametrize("kind", OPERANDS)
def test_chains_stream_through_every_level(kind, shape, count):
    hardware = levels(count)
    func, schedule, program, inputs, result = simulated(te.compute(shape, chain(kind, shape), name="out"), hardware)
    expected = by_llvm(func, inputs, shape, "float32")
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_llvm(schedule.mod["main"], inputs, shape, "float32"), expected, rtol=1e-4, atol=1e-5)
    fits(program, hardware)
    report = simulate(program)
    size = 4 * int(np.prod(shape))
    assert report.bytes["out"] == size
    for level in hardware.levels:
        use = {operand: report.memories[f"{level.name}.{operand}"] for operand in ("a", "out")}
        assert use["a"].written == size * (2 if kind == "three" else 1)  # the first operand, and the third
        assert use["out"].read >= size
        if OPERANDS[kind] > 1:
            assert report.memories[f"{level.name}.b"].written == size
    for outer, inner in zip(hardware.levels, hardware.levels[1:], strict=False):
        assert report.memories[f"{outer.name}.a"].read == report.memories[f"{inner.name}.a"].written
    assert not any(memory.name in ("a", "b", "out") for memory in program.memories)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_long_chain_is_bound_by_its_slowest_part(count):
    shape = (400, 1000)
    hardware = levels(count)
    _, schedule, program, _, _ = simulated(te.compute(shape, chain("sum", shape), name="out"), hardware)
    decision = json.loads(str(schedule.mod["main"].attrs["tvm_tiling.decision"]))
    assert simulate(program).cycles == pytest.approx(decision["cycles"], rel=0.06)
    assert decision["bound"] in dict((field, why) for field, _, why in decision["reasons"])["cycles"]


def test_a_level_without_room_is_refused_by_name():
    small = dataclasses.replace(levels(2).levels[1], bytes_a=1, instances=1)
    hardware = dataclasses.replace(levels(2), levels=(levels(2).levels[0], small))
    with pytest.raises(
        tt.HardwareError,
        match=r"level 'array' cannot hold 3 versions of an element of 4 bytes; expected at least 12 bytes",
    ):
        tt.tiling_schedule(te.compute((9, 9), chain("sum", (9, 9)), name="out"), target=hardware)
