"""Convolutions on the accelerator's matrix engine: results, bytes, and the schedule of the program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from convolutions import by_numpy, convolution
from operators import by_llvm, simulated
from tvm import te, tirx, topi

import tvm_tiling as tt
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.decide.conv.blocks import conv_blocks
from tvm_tiling.match import match, prim_func_of

VTA = tt.Hardware.load("vta")
SMALL = tt.Hardware.neartile(buf_a=2048, buf_b=2048, acc_max=4096, bw_a=8, bw_b=8, macs_per_cycle=64)
NO_SUMS = tt.Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=0, bw_a=8, bw_b=8, macs_per_cycle=64)
MACHINES = {"vta": VTA, "small": SMALL, "no sums": NO_SUMS}
CASES = {
    "3x3": {"h": 14, "w": 14, "ci": 32, "co": 24, "padding": (1, 1, 1, 1)},
    "batch, stride, asymmetric": {
        "n": 2, "h": 9, "w": 11, "ci": 20, "co": 37, "kw": 2, "stride": (2, 1), "padding": (1, 0, 1, 2)
    },
    "first layer": {
        "h": 30, "w": 31, "ci": 3, "co": 16, "kh": 7, "kw": 7, "stride": (2, 2), "padding": (3, 3, 3, 3),
        "layout": "NCHW",
    },
    "depthwise": {"h": 12, "w": 12, "ci": 24, "co": 24, "groups": 24, "padding": (1, 1, 1, 1)},
    "groups, dilation": {
        "h": 13, "w": 12, "ci": 32, "co": 16, "groups": 4, "padding": (2, 2, 2, 2), "dilation": (2, 2), "layout": "NCHW"
    },
    "1x1 with stride": {"h": 15, "w": 16, "ci": 40, "co": 16, "kh": 1, "kw": 1, "stride": (2, 2)},
    "stride beyond the kernel": {"h": 17, "w": 16, "ci": 8, "co": 9, "kh": 2, "kw": 1, "stride": (3, 4)},
    "dilated rows": {"h": 20, "w": 9, "ci": 10, "co": 8, "dilation": (3, 1), "padding": (3, 1, 3, 1)},
    "one row": {"h": 1, "w": 60, "ci": 12, "co": 8, "kh": 1, "kw": 5, "padding": (0, 2, 0, 2)},
}  # fmt: skip


def workload_of(func):
    return match(func, "main").workload


@pytest.mark.values
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CASES)
def test_int8_convolutions_are_exact_and_read_what_was_decided(case, machine):
    func, _, program, inputs, result = simulated(convolution(**CASES[case]), MACHINES[machine])
    assert np.array_equal(result, by_numpy(inputs, **CASES[case]))
    blocks = conv_blocks(workload_of(func), MACHINES[machine])
    report = simulate(program)
    assert report.bytes == {"a": blocks.bytes_a, "b": blocks.bytes_b, "out": result.nbytes}
    assert report.macs == workload_of(func).macs  # a partial block costs its own size
    assert report.lower_bound <= report.cycles <= report.upper_bound


def test_nothing_is_read_twice_where_the_image_fits():
    op = convolution(h=14, w=14, ci=32, co=96, padding=(1, 1, 1, 1))
    func, _, program, _, _ = simulated(op, VTA)
    decision = tt.decide(workload_of(func), VTA)
    assert (decision.load_a, decision.load_b) == (1, 1)
    assert simulate(program).bytes == {"a": 9 * 32 * 96, "b": 14 * 14 * 32, "out": 4 * 14 * 14 * 96}


@pytest.mark.parametrize("case", ["3x3", "batch, stride, asymmetric", "depthwise"])
def test_floats_on_the_near_tile(case):
    hardware = tt.Hardware.load("neartile")
    options = CASES[case] | {"dtype": "float32"}
    _, schedule, _, inputs, result = simulated(convolution(**options), hardware)
    np.testing.assert_allclose(result, by_numpy(inputs, **options), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        by_llvm(schedule.mod["main"], inputs, result.shape, "float32"), result, rtol=1e-4, atol=1e-4
    )


def test_the_schedule_runs_on_llvm_with_the_same_result():
    op = convolution(**CASES["batch, stride, asymmetric"])
    func, schedule, _, inputs, result = simulated(op, SMALL)
    assert np.array_equal(by_llvm(schedule.mod["main"], inputs, result.shape, "int32"), result)
    assert np.array_equal(by_llvm(func, inputs, result.shape, "int32"), result)


def test_a_convolution_in_three_dimensions():
    x, k = te.placeholder((2, 5, 6, 7, 8), name="x", dtype="int8"), te.placeholder((3, 3, 2, 8, 9), "int8", name="w")
    padded = te.compute(
        (2, 7, 8, 7, 8),
        lambda n, d, h, w, c: tirx.if_then_else(
            tirx.all(d >= 1, d < 6, h >= 1, h < 7), x[n, d - 1, h - 1, w, c], tirx.const(0, "int8")
        ),
        name="padded",
    )
    kd, kh, kw, c = (te.reduce_axis((0, size), name=name) for size, name in ((3, "q"), (3, "r"), (2, "s"), (8, "c")))

    def element(n, d, y, z, o):
        return te.sum(
            padded[n, d * 2 + kd, y + kh, z + kw, c].astype("int32") * k[kd, kh, kw, c, o].astype("int32"),
            axis=[kd, kh, kw, c],
        )

    func, _, _, inputs, result = simulated(te.compute((2, 3, 6, 6, 9), element, name="y"), SMALL)
    assert np.array_equal(result, by_llvm(func, inputs, result.shape, "int32"))


def requantised(conv, shift):
    """Bias, residual, rounding shift and clipping after an int8 convolution."""
    bias = te.placeholder((conv.shape[3],), name="bias", dtype="int32")
    more = te.placeholder(conv.shape, name="more", dtype="int32")

    def element(n, y, x, o):
        value = conv[n, y, x, o] + bias[o] + more[n, y, x, o]
        value = (value + tirx.const(1 << (shift - 1), "int32")) >> tirx.const(shift, "int32")
        return tirx.max(tirx.min(value, tirx.const(127, "int32")), tirx.const(0, "int32")).astype("int8")

    return te.compute(conv.shape, element, name="z")


@pytest.mark.values
@pytest.mark.parametrize("machine", ["vta", "small"])
@pytest.mark.parametrize("case", ["3x3", "batch, stride, asymmetric", "depthwise"])
def test_epilogues_run_on_the_vector_engine(case, machine):
    func, _, program, inputs, result = simulated(requantised(convolution(**CASES[case]), 8), MACHINES[machine])
    assert np.array_equal(result, by_llvm(func, inputs, result.shape, "int8"))
    assert len(np.unique(result)) > 20
    assert np.isin(Opcode.ALU, program.instructions["op"])


def test_epilogues_are_split_to_fit_the_output_buffer():
    narrow = replace(VTA, near_tile=replace(VTA.near_tile, out_bytes=2048))
    func, _, program, inputs, result = simulated(requantised(convolution(**CASES["3x3"]), 8), narrow)
    assert np.array_equal(result, by_llvm(func, inputs, result.shape, "int8"))
    assert next(memory.bytes for memory in program.memories if memory.name == "out") <= 2048
    whole = record(tt.tiling_schedule(func, target=VTA).mod, VTA)
    stores = [(p.instructions["op"] == Opcode.STORE).sum() for p in (whole, program)]
    assert stores[1] > stores[0]
    assert len(products(program)) == len(products(whole))  # the matrix multiplications are not


def test_no_im2col_is_made_in_memory():
    _, _, program, _, _ = simulated(convolution(**CASES["3x3"]), VTA)
    image = next(memory for memory in program.memories if memory.name == "b")
    assert image.bytes <= 2 * 16 * 16 * 32  # the image with its border, twice


@pytest.mark.values
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CASES)
def test_cycles_are_those_that_the_decision_walked_through(case, machine):
    func = prim_func_of(convolution(**CASES[case]))
    program = record(tt.tiling_schedule(func, target=MACHINES[machine]).mod, MACHINES[machine])
    assert simulate(program).cycles == conv_blocks(workload_of(func), MACHINES[machine]).cycles


def test_the_image_is_read_as_often_as_points_lie_above_it():
    """Count the bytes of the image by visiting the pixels and kernel positions of every block."""
    options = {"h": 11, "w": 9, "ci": 4, "co": 24, "kw": 2, "stride": (2, 1), "padding": (1, 0, 1, 1)}
    hardware = tt.Hardware.neartile(buf_a=300, buf_b=150, acc_max=4096, bw_a=8, bw_b=8, macs_per_cycle=64)
    func, _, program, _, _ = simulated(convolution(**options), hardware)
    w, blocks = workload_of(func), conv_blocks(workload_of(func), hardware)
    points = 0
    for top in range(0, w.ho, blocks.rows):
        for left in range(0, w.wo, blocks.columns):
            rows = {y * 2 + r - 1 for y in range(top, min(w.ho, top + blocks.rows)) for r in range(3)}
            columns = {x + s for x in range(left, min(w.wo, left + blocks.columns)) for s in range(2)}
            points += len(rows & set(range(w.h))) * len(columns & set(range(w.w)))
    passes = -(-w.co // blocks.step_m) if blocks.order == "mn" or blocks.channels < w.ci else 1
    assert not blocks.whole_b and points > w.h * w.w
    assert simulate(program).bytes["b"] == passes * points * w.ci == blocks.bytes_b


# ---- the program comes from the schedule -----------------------------------------------------------------------------


def products(program):
    return program.instructions[program.instructions["op"] == Opcode.GEMM]


def test_smaller_tiles_and_other_orders_in_the_schedule_are_others_in_the_program():
    schedule = tt.tiling_schedule(convolution(**CASES["3x3"]), target=VTA)
    before = products(record(schedule.mod, VTA))
    *_, channels, rows, columns, _, _, _ = schedule.get_loops(schedule.get_sblock("sums"))
    over_rows, rows = schedule.split(rows, [None, 7])
    over_columns, columns = schedule.split(columns, [None, 7])
    schedule.reorder(over_rows, over_columns, channels, rows, columns)
    first = products(record(schedule.mod, VTA))
    schedule.reorder(over_columns, over_rows)
    second = products(record(schedule.mod, VTA))
    assert len(first) == len(second) > len(before)
    assert first["extent"][:, 1].max() == 7
    assert first["b"].tolist() != second["b"].tolist()
    assert sorted(first["b"].tolist()) == sorted(second["b"].tolist())


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_a_transposed_convolution_is_refused_by_name():
    x, k = te.placeholder((1, 4, 5, 5), name="x", dtype="int8"), te.placeholder((4, 3, 3, 3), name="w", dtype="int8")
    op = topi.nn.conv2d_transpose_nchw(x, k, (2, 2), (1, 1), "int32", (0, 0))
    with pytest.raises(tt.UnsupportedOperator, match="transposed convolutions are not supported on accelerators"):
        tt.tiling_schedule(op, target=VTA)


def test_buffers_that_hold_no_kernel_are_refused_with_their_bytes():
    tiny = tt.Hardware.neartile(buf_a=4, buf_b=64, acc_max=64, bw_a=1, bw_b=1, macs_per_cycle=4)
    with pytest.raises(tt.HardwareError, match=r"no .*fits"):
        tt.tiling_schedule(convolution(h=9, w=9, kh=7, kw=7), target=tiny)
