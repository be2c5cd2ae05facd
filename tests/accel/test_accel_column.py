"""Matrix-vector multiplications on machines with a column engine only: results, cycles, bytes, refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from convolutions import convolution
from operators import by_llvm, product, simulated
from tvm import relax, te, topi

import tvm_tiling as tt
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.hardware import Memory

RNN = tt.Hardware.rnn(multipliers=16384, threads=4, name="rnn16k")  # with free loads
SMALL = dataclasses.replace(
    tt.Hardware.rnn(multipliers=256),
    memories={"b": Memory(bytes=8192), "acc": Memory(bytes=512), "external": Memory(bytes_per_cycle=64, latency=9)},
)
SIZES = [(70, 130), (1, 50), (50, 1), (257, 300), (1000, 33)]


def expected(inputs):
    return inputs["A"].astype(np.int64) @ inputs["B"].astype(np.int64)


@pytest.mark.values
@pytest.mark.parametrize("hardware", [RNN, SMALL], ids=["rnn16k", "small"])
@pytest.mark.parametrize("vector", ["left", "right"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_whole_numbers_are_exact_and_the_matrix_is_read_once(size, vector, hardware):
    rows, depth = size
    for dtype in ("int8", "int16"):
        op = product(1, rows, depth, dtype) if vector == "left" else product(rows, 1, depth, dtype)
        _, _, program, inputs, result = simulated(op, hardware)
        np.testing.assert_array_equal(result, expected(inputs))
        assert set(program.instructions["op"].tolist()) <= {Opcode.LOAD, Opcode.STORE, Opcode.COLMV}
        moved, width = simulate(program).bytes, np.dtype(dtype).itemsize
        assert moved == {"a": depth * width, "b": rows * depth * width, "out": rows * 4}


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_cycles_are_those_of_the_decision_where_loads_cost_nothing(size):
    rows, depth = size
    for batch in (None, 3):
        _, _, program, _, _ = simulated(product(rows, 1, depth, "int16", batch=batch), RNN)
        report = simulate(program)
        decision = tt.decide(tt.GemmWorkload(m=rows, n=1, k=depth, dtype="int16", batch=batch or 1), RNN)
        assert report.cycles == decision.cycles
        assert report.utilisation == pytest.approx(decision.utilisation)


def test_loads_overlap_with_multiplication():
    """SMALL loads 64 bytes per cycle: 32 elements for 256 multipliers, so that loads are the bottleneck."""
    _, _, program, _, _ = simulated(product(1024, 1, 1024, "int16"), SMALL)
    report = simulate(program)
    loads = 2 * 1024 * 1024 // 64
    assert loads <= report.cycles <= 1.05 * loads


@pytest.mark.values
@pytest.mark.parametrize("trans", [{}, {"trans_a": True}, {"trans_b": True}], ids=str)
@pytest.mark.parametrize("batch", [None, 4])
def test_floats_transposes_and_batches(trans, batch):
    for op in (product(70, 1, 130, **trans, batch=batch), product(1, 70, 130, **trans, batch=batch)):
        func, schedule, _, inputs, result = simulated(op, SMALL)
        wanted = by_llvm(func, inputs, result.shape, "float32")
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(by_llvm(schedule.mod["main"], inputs, result.shape, "float32"), wanted, rtol=1e-4)


def test_one_dimensional_operands_and_dot_products():
    x, v = te.placeholder((70, 130), name="x"), te.placeholder((130,), name="v")
    k = te.reduce_axis((0, 130), name="k")
    for op in (
        te.compute((70,), lambda i: te.sum(x[i, k] * v[k], axis=k), name="C"),
        te.compute((1,), lambda i: te.sum(x[i, k] * v[k], axis=k), name="C"),
    ):
        func, _, _, inputs, result = simulated(op, SMALL)
        np.testing.assert_allclose(result, by_llvm(func, inputs, result.shape, "float32"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("vector", ["left", "right"])
def test_epilogues_run_on_the_vector_engine(vector):
    m, n = (1, 300) if vector == "left" else (300, 1)
    x, w = te.placeholder((m, 130), name="x"), te.placeholder((n, 130), name="w")
    bias = te.placeholder((m, n), name="bias")
    k = te.reduce_axis((0, 130), name="k")
    dense = te.compute((m, n), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="dense")
    op = topi.sigmoid(te.compute((m, n), lambda i, j: dense[i, j] + bias[i, j], name="biased"))
    func, _, program, inputs, result = simulated(op, SMALL)
    np.testing.assert_allclose(result, by_llvm(func, inputs, result.shape, "float32"), rtol=1e-4, atol=1e-5)
    assert (program.instructions["op"] == Opcode.ALU).any()


def test_half_floats_are_summed_in_float32():
    _, _, _, inputs, result = simulated(product(40, 1, 200, "float16"), SMALL)
    wanted = inputs["A"].astype(np.float32) @ inputs["B"].astype(np.float32)
    np.testing.assert_allclose(result, wanted, rtol=1e-3)  # float16 sums differ by a hundredth


def test_the_first_of_several_engines_is_taken():
    two = tt.Hardware.rnn(multipliers=256, engines=2)
    _, _, program, inputs, result = simulated(product(40, 1, 200, "int8"), two)
    np.testing.assert_array_equal(result, expected(inputs))
    assert simulate(program).engines["column0"].instructions > 0


def test_a_changed_schedule_changes_the_program():
    schedule = tt.tiling_schedule(product(64, 1, 64, "int8"), target=RNN)
    before = record(schedule.mod, RNN)
    schedule.split(schedule.get_loops(schedule.get_sblock("C"))[-1], [None, 2])
    block = schedule.get_sblock("C")
    schedule.unannotate(block, "vsim.vp")
    schedule.annotate(block, "vsim.vp", 8)
    after = record(schedule.mod, RNN)
    assert set(after.instructions["immediate"][after.instructions["op"] == Opcode.COLMV][:, 1]) == {8.0}
    assert simulate(after).cycles > simulate(before).cycles
    schedule.unannotate(block, "vsim.ep")
    with pytest.raises(tt.UnsupportedOperator, match=r"vsim\.ep = None; expected a whole number of at least 1"):
        record(schedule.mod, RNN)


def test_gemms_and_convolutions_are_refused_with_the_available_units():
    said = r"rnn16k has no unit for a matrix multiplication of 20 x 40 by 40 x 30, only column; expected matri"
    for refused in (tt.tiling_schedule, tt.compile):
        with pytest.raises(tt.HardwareError, match=said):
            refused(product(20, 30, 40), target="vsim/rnn16k")
        with pytest.raises(tt.HardwareError, match="rnn16k has no unit for a convolution, only column; expected"):
            refused(convolution(dtype="float32"), target="vsim/rnn16k")
    with pytest.raises(tt.HardwareError, match="mode = 'seed' does not apply"):
        tt.tiling_schedule(product(1, 30, 40), target="vsim/rnn16k", mode="seed")


def test_a_network_leaves_other_gemms_to_the_cpu():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 64), "float32"))
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 96), (24, 50)))
    with builder.function("main", [x]):
        with builder.dataflow():
            one = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, relax.const(first)))))
            square = builder.emit(relax.op.reshape(one, (4, 24)))
            out = builder.emit_output(relax.op.matmul(square, relax.const(second)))
        builder.emit_func_output(out)
    executable = tt.compile(builder.finalize(), target="vsim/rnn16k")
    left = [o.why for o in executable.report().operators if o.where == "cpu"]
    assert any("has no unit for a matrix multiplication of 4 x 24 by 24 x 50, only column" in why for why in left)
    values = rng.standard_normal((1, 64)).astype(np.float32)
    result, sim = executable.simulate(values)
    wanted = np.maximum(values @ first, 0).reshape(4, 24) @ second
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-3)
    assert sim.macs == 64 * 96


def test_a_compiled_gemm_is_a_task():
    executable = tt.compile(product(512, 1, 512, "int16"), target="vsim/rnn16k")
    one, four = (tt.simulate([(executable, 50, 0)] * tasks) for tasks in (1, 4))
    products = tt.decide(tt.GemmWorkload(m=512, n=1, k=512, dtype="int16"), RNN)
    busy = products.cycles - RNN.column.latency(products.ep)
    assert one.tasks[0].busy == 50 * busy
    assert four.macs == 4 * 50 * 512 * 512 and four.cycles < 4 * one.cycles
