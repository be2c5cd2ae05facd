"""Pools and reductions along axes on the vector engine of the simulated accelerator."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from level_machines import levels
from operators import by_llvm, simulated
from tvm import relax, te, topi

import tvm_tiling as tt
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.timing.simulate import simulate

VTA = tt.Hardware.load("vta")
MACHINES = {
    "vta": VTA,
    "neartile": tt.Hardware.load("neartile"),
    "small": tt.Hardware.neartile(buf_a=1024, buf_b=1024, acc_max=1024, bw_a=8, bw_b=8, macs_per_cycle=64),
    "wfold16": tt.Hardware.load("wfold16"),
}


def array(*shape, dtype="int8"):
    return te.placeholder(shape, name="x", dtype=dtype)


def pool(shape, taps, stride, padding, kind="max", layout="NHWC", dtype="int8"):
    return topi.nn.pool2d(array(*shape, dtype=dtype), taps, stride, (1, 1), padding, kind, layout=layout)


def sums(shape, axis, dtype="int32", wide="int32"):
    x = array(*shape, dtype=dtype)
    wider = te.compute(shape, lambda *at: x[at].astype(wide), name="wider") if wide != dtype else x
    return topi.sum(wider, axis=axis)


CASES = {
    "3x3 of stride 2": lambda: pool((1, 33, 32, 16), (3, 3), (2, 2), (1, 1, 1, 1)),
    "2x3, channels outside": lambda: pool((2, 5, 17, 19), (2, 3), (2, 1), (0, 1, 1, 1), layout="NCHW"),
    "2x2": lambda: pool((1, 7, 9, 3), (2, 2), (2, 2), (0, 0, 0, 0)),
    "one by one": lambda: pool((1, 7, 9, 3), (1, 1), (2, 2), (0, 0, 0, 0)),
    "the whole image": lambda: sums((1, 8, 8, 16), (1, 2)),
    "the last axis": lambda: sums((37, 130), 1),
    "converted": lambda: sums((30, 41), 1, "int8"),
    "all of it": lambda: sums((9, 11, 13), (0, 1, 2)),
    "a long row": lambda: sums((3, 70001), 1),
    "least": lambda: topi.min(array(23, 45), axis=0),
}
FLOATS = {
    "max": lambda: pool((1, 13, 14, 5), (3, 3), (2, 2), (1, 1, 1, 1), dtype="float32"),
    "average": lambda: average(array(1, 12, 14, 5, dtype="float32")),
    "largest of a row": lambda: topi.max(array(37, 301, dtype="float32"), axis=1),
    "mean": lambda: te.compute((37,), mean(array(37, 301, dtype="float32")), name="mean"),
}


def average(x):
    rows, columns = te.reduce_axis((0, 2), name="r"), te.reduce_axis((0, 2), name="s")
    total = te.compute(
        (1, 6, 7, 5),
        lambda n, y, z, c: te.sum(x[n, 2 * y + rows, 2 * z + columns, c], axis=[rows, columns]),
        name="sums",
    )
    return te.compute(total.shape, lambda *at: te.tanh(total[at] * 0.25), name="average")


def mean(x):
    total = topi.sum(x, axis=1)
    return lambda i: total[i] / 301.0


@pytest.mark.values
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CASES)
def test_integer_reductions_are_exact(case, machine):
    func, schedule, program, inputs, result = simulated(CASES[case](), MACHINES[machine])
    shape = tuple(
        int(extent) for extent in func.params[-1].shape
    )  # () for a single number, a one-element array in a program
    expected = by_llvm(func, inputs, shape, str(result.dtype))
    assert np.array_equal(result.reshape(shape), expected)
    assert np.array_equal(by_llvm(schedule.mod["main"], inputs, shape, str(result.dtype)), expected)
    report = simulate(program)
    assert report.bytes["out"] == result.nbytes
    assert report.lower_bound <= report.cycles <= report.upper_bound
    assert set(np.unique(program.instructions["op"])) <= {Opcode.LOAD, Opcode.FILL, Opcode.ALU, Opcode.STORE}


@pytest.mark.values
@pytest.mark.parametrize("machine", ["neartile", "small", "wfold16"])
@pytest.mark.parametrize("case", FLOATS)
def test_float_reductions_and_what_follows_them(case, machine):
    func, _, _, inputs, result = simulated(FLOATS[case](), MACHINES[machine])
    np.testing.assert_allclose(result, by_llvm(func, inputs, result.shape, "float32"), rtol=1e-4, atol=1e-4)


def test_every_element_is_read_once_where_windows_do_not_overlap():
    _, _, program, _, _ = simulated(pool((1, 64, 64, 16), (2, 2), (2, 2), (0, 0, 0, 0)), VTA)
    assert simulate(program).bytes == {"a": 64 * 64 * 16, "b": 0, "out": 32 * 32 * 16}


@pytest.mark.parametrize("machine", ["vta", "neartile"])
def test_cycles_are_near_the_prediction(machine):
    op = pool((1, 112, 112, 64), (3, 3), (2, 2), (1, 1, 1, 1))
    _, schedule, program, _, _ = simulated(op, MACHINES[machine])
    decision = json.loads(str(schedule.mod["main"].attrs["tvm_tiling.decision"]))
    assert simulate(program).cycles == pytest.approx(decision["cycles"], rel=0.1)


def test_pools_of_a_network_run_on_the_accelerator():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 16, 16, 8), "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            pooled = builder.emit(relax.op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1), layout="NHWC"))
            wide = builder.emit(relax.op.astype(pooled, "int32"))
            total = builder.emit_output(builder.emit(relax.op.sum(wide, axis=[1, 2])))
        builder.emit_func_output(total)
    executable = tt.compile(builder.get(), target="vsim/vta")
    data = np.random.default_rng(0).integers(-100, 100, (1, 16, 16, 8)).astype("int8")
    result, sim = executable.simulate(data)
    bordered = np.pad(data, [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=-128)
    windows = np.lib.stride_tricks.sliding_window_view(bordered, (3, 3), axis=(1, 2))[:, ::2, ::2]
    assert np.array_equal(result, windows.max(axis=(-1, -2)).astype("int32").sum(axis=(1, 2)))
    assert not [operator.name for operator in executable.report().operators if operator.where == "cpu"]
    assert sim.cycles > 0


def test_an_engine_without_the_function_is_refused_by_name():
    few = dataclasses.replace(VTA, vector=dataclasses.replace(VTA.vector, functions=("copy", "add")))
    with pytest.raises(tt.UnsupportedOperator, match=r"block 'pool_max' needs the function max, .* expected copy, add"):
        simulated(CASES["2x2"](), few)


def test_sums_of_narrow_integers_and_levels_are_refused():
    with pytest.raises(tt.UnsupportedOperator):  # they wrap around, those of the engine saturate
        tt.tiling_schedule(topi.sum(array(20, 30), axis=1), target=VTA)
    with pytest.raises(tt.UnsupportedOperator, match="several storage levels; expected one"):
        tt.tiling_schedule(CASES["2x2"](), target=levels(3))


def test_a_buffer_without_room_is_refused_with_its_bytes():
    tiny = tt.Hardware.neartile(buf_a=1, buf_b=64, acc_max=64, bw_a=1, bw_b=1, macs_per_cycle=4)
    with pytest.raises(tt.HardwareError, match=r"buffers of 2 and .* expected at least \d+ for a"):
        tt.tiling_schedule(sums((9, 9), 1), target=tiny)
