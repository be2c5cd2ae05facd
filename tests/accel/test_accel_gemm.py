"""Matrix multiplications on the simulated accelerator: results, bytes and the schedule of the program."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from operators import by_llvm, product, simulated
from tvm import te, tirx, topi

import tvm_tiling as tt
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.hardware.fields import with_field
from tvm_tiling.match import prim_func_of

SMALL = tt.Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=8192, bw_a=8, bw_b=8, macs_per_cycle=64)
WIDE = tt.Hardware.neartile(buf_a=1 << 17, buf_b=1 << 13, acc_max=0, bw_a=8, bw_b=16, macs_per_cycle=64)
SIZES = [(64, 64, 64), (100, 90, 70), (37, 211, 129), (1, 50, 33), (50, 1, 33), (7, 9, 300), (131, 127, 1)]


@pytest.mark.parametrize("hardware", [SMALL, WIDE], ids=["small", "wide"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_int8_gemms_are_exact_and_read_what_was_decided(size, hardware):
    m, n, k = size
    _, _, program, inputs, result = simulated(product(m, n, k, "int8"), hardware)
    expected = inputs["A"].astype(np.int32) @ inputs["B"].astype(np.int32)
    assert np.array_equal(result, expected)
    decision = tt.decide(tt.GemmWorkload(m=m, n=n, k=k, dtype="int8"), hardware)
    report = simulate(program)
    assert report.bytes == {"a": decision.load_a * m * k, "b": decision.load_b * n * k, "out": 4 * m * n}
    assert report.macs == m * n * k  # a partial block costs its own size


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("batch", [None, 3])
def test_transposes_and_batches(trans_a, trans_b, batch):
    op = product(37, 45, 150, trans_a=trans_a, trans_b=trans_b, batch=batch)
    func, _, _, inputs, result = simulated(op, SMALL)
    expected = by_llvm(func, inputs, result.shape, "float32")
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def contraction(kind):
    """Sums of products whose axes are not simply m, n and k."""

    def tensor(name, *shape):
        return te.placeholder(shape, name=name, dtype="float32")

    k, k2 = te.reduce_axis((0, 130), name="k"), te.reduce_axis((0, 6), name="k2")
    if kind == "rows in two axes":
        x, w = tensor("x", 3, 20, 130), tensor("w", 50, 130)
        return te.compute((3, 20, 50), lambda q, i, j: te.sum(x[q, i, k] * w[j, k], axis=k), name="C")
    if kind == "rows in two axes, bias and residual":
        x, w, bias, more = tensor("x", 3, 20, 130), tensor("w", 50, 130), tensor("bias", 50), tensor("more", 3, 20, 50)
        c = te.compute((3, 20, 50), lambda q, i, j: te.sum(x[q, i, k] * w[j, k], axis=k), name="C")
        return te.compute((3, 20, 50), lambda q, i, j: c[q, i, j] + bias[j] + more[q, i, j], name="D")
    if kind == "two reduction axes":
        x, w = tensor("x", 40, 6, 130), tensor("w", 50, 6, 130)
        return te.compute((40, 50), lambda i, j: te.sum(x[i, k2, k] * w[j, k2, k], axis=[k2, k]), name="C")
    if kind == "matrix times vector":
        x, v = tensor("x", 70, 130), tensor("v", 130)
        return te.compute((70,), lambda i: te.sum(x[i, k] * v[k], axis=k), name="C")
    if kind == "dot product":
        x, v = tensor("x", 130), tensor("v", 130)
        return te.compute((1,), lambda i: te.sum(x[k] * v[k], axis=k), name="C")
    assert kind == "attention scores"
    q, t = tensor("q", 2, 3, 20, 130), tensor("t", 2, 3, 24, 130)
    return te.compute((2, 3, 20, 24), lambda b, h, i, j: te.sum(q[b, h, i, k] * t[b, h, j, k], axis=k), name="C")


@pytest.mark.parametrize(
    "kind",
    [
        "rows in two axes",
        "rows in two axes, bias and residual",
        "two reduction axes",
        "matrix times vector",
        "dot product",
        "attention scores",
    ],
)
def test_axes_that_are_several_or_none(kind):
    func, schedule, program, inputs, result = simulated(contraction(kind), SMALL)
    expected = by_llvm(func, inputs, result.shape, "float32")
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(by_llvm(schedule.mod["main"], inputs, result.shape, "float32"), expected, rtol=1e-4)
    if kind == "rows in two axes":  # traversed as one axis: tiles span both
        flat = simulated(product(60, 50, 130, trans_b=True), SMALL)[2]
        assert of_kind(program, Opcode.GEMM).tobytes() == of_kind(flat, Opcode.GEMM).tobytes()


def epilogue(kind):
    """Return a dense layer with an epilogue, and the tolerance of its result."""
    whole = kind.startswith("int8")
    x = te.placeholder((38, 130), name="x", dtype="int8" if whole else "float32")
    w = te.placeholder((27, 130), name="w", dtype=x.dtype)
    sums = "int32" if whole else "float32"
    bias, residual = te.placeholder((27,), name="bias", dtype=sums), te.placeholder((38, 27), name="residual")
    k = te.reduce_axis((0, 130), name="k")
    dense = te.compute((38, 27), lambda i, j: te.sum(x[i, k].astype(sums) * w[j, k].astype(sums), axis=k), name="dense")

    def clipped(value, low, high):
        return tirx.max(tirx.min(value, high), low)

    def of_float(i, j):
        scaled = te.round((dense[i, j] + bias[j]).astype("float32") * tirx.const(0.00123, "float32"))
        bounds = (tirx.const(-128.0, "float32"), tirx.const(127.0, "float32"))
        return clipped(scaled + tirx.const(3.0, "float32"), *bounds).astype("int8")

    return {
        "bias relu": lambda: topi.nn.relu(te.compute((38, 27), lambda i, j: dense[i, j] + bias[j])),
        "bias sigmoid residual": lambda: te.compute(
            (38, 27), lambda i, j: te.sigmoid(dense[i, j] + bias[j]) * residual[i, j]
        ),
        "minus": lambda: te.compute((38, 27), lambda i, j: 1.0 - dense[i, j]),
        "int8 shift": lambda: te.compute(
            (38, 27), lambda i, j: clipped((dense[i, j] + bias[j] + 64) >> 7, -128, 127).astype("int8")
        ),
        "int8 plain shift": lambda: te.compute(
            (38, 27), lambda i, j: clipped(dense[i, j] >> 9, -128, 127).astype("int8")
        ),
        "int8 scale": lambda: te.compute((38, 27), of_float),
    }[kind]()


@pytest.mark.parametrize(
    "kind", ["bias relu", "bias sigmoid residual", "minus", "int8 shift", "int8 plain shift", "int8 scale"]
)
def test_epilogues_equal_the_source_and_their_own_schedule_on_llvm(kind):
    func, schedule, _, inputs, result = simulated(epilogue(kind), SMALL)
    expected = by_llvm(func, inputs, result.shape, str(result.dtype))
    scheduled = by_llvm(schedule.mod["main"], inputs, result.shape, str(result.dtype))
    if kind.startswith("int8"):
        assert np.array_equal(result, expected)
        assert np.array_equal(scheduled, expected)
        assert len(np.unique(result)) > 20  # not all clipped
    else:
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(scheduled, expected, rtol=1e-4, atol=1e-4)


def test_shifts_run_on_vta_which_has_no_clip():
    func, _, program, inputs, result = simulated(epilogue("int8 shift"), tt.Hardware.load("vta"))
    assert np.array_equal(result, by_llvm(func, inputs, result.shape, "int8"))
    assert program.queues == ("load", "compute", "store")


def test_a_function_that_the_vector_engine_lacks_is_named():
    with pytest.raises(
        tt.UnsupportedOperator, match=r"needs scale, which the machine's vector engine does not support"
    ):
        simulated(epilogue("int8 scale"), with_field(tt.Hardware.load("vta"), "vector.dtypes", ()))


def test_half_precision_is_summed_in_single():
    _, _, _, inputs, result = simulated(product(40, 30, 200, "float16"), SMALL)
    expected = inputs["A"].astype(np.float32) @ inputs["B"].astype(np.float32)
    np.testing.assert_allclose(result.astype(np.float32), expected, rtol=2e-3, atol=1e-2)


# ---- the program comes from the schedule -----------------------------------------------------------------------------


def of_kind(program, opcode):
    return program.instructions[program.instructions["op"] == opcode]


def test_a_smaller_tile_in_the_schedule_is_a_smaller_instruction():
    schedule = tt.tiling_schedule(product(64, 64, 64, "int8"), target=SMALL)
    before = of_kind(record(schedule.mod, SMALL), Opcode.GEMM)
    loop = schedule.get_loops(schedule.get_sblock("C"))[-3]
    schedule.split(loop, [None, 4])
    after = of_kind(record(schedule.mod, SMALL), Opcode.GEMM)
    assert len(after) > len(before)
    assert after["extent"][:, 0].max() == 4


def test_another_order_of_loops_is_another_order_of_instructions():
    schedule = tt.tiling_schedule(product(64, 64, 64, "int8"), target=SMALL)
    rows, columns = schedule.get_loops(schedule.get_sblock("C"))[-3:-1]
    over_rows, rows = schedule.split(rows, [2, None])
    over_columns, columns = schedule.split(columns, [2, None])
    schedule.reorder(over_rows, over_columns, rows, columns)
    first = of_kind(record(schedule.mod, SMALL), Opcode.GEMM)
    schedule.reorder(over_columns, over_rows)
    second = of_kind(record(schedule.mod, SMALL), Opcode.GEMM)
    assert first[:4]["a"].tolist() != second[:4]["a"].tolist()
    assert sorted(zip(first["a"], first["b"], strict=True)) == sorted(zip(second["a"], second["b"], strict=True))


def test_the_script_is_the_schedule():
    schedule = tt.tiling_schedule(product(64, 64, 64, "int8"), target=SMALL)
    text = schedule.mod.script()
    assert record(tvm.script.from_source(text), SMALL) == record(schedule.mod, SMALL)
    found = re.findall(r'T\.sblock\("([AB])_global.*?"vsim\.versions": (\d+)', text, re.S)
    versions = {name.lower(): int(count) for name, count in found}
    assert min(versions.values()) > 1
    once = re.sub(r'"vsim.versions": \d+', '"vsim.versions": 1', text)
    sizes = [{m.name: m.bytes for m in record(tvm.script.from_source(t), SMALL).memories} for t in (text, once)]
    for name in "ab":
        assert sizes[1][name] == sizes[0][name] / versions[name]


def test_a_software_pipeline_says_how_many_versions():
    func = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((8, 16), "int8"), y: T.Buffer((8, 16), "int8")):
        with T.sblock("root"):
            held = T.sblock_alloc_buffer((8, 16), "int8", scope="global.a")
            for i in T.serial(8, annotations={"software_pipeline_stage": [0, %d], "software_pipeline_order": [0, 1]}):
                for j in range(16):
                    with T.sblock("come"):
                        T.sblock_attr({"vsim.engine": "load", "vsim.loops": 1})
                        r, c = T.axis.remap("SS", [i, j])
                        held[r, c] = x[r, c]
                for j in range(16):
                    with T.sblock("go"):
                        T.sblock_attr({"vsim.engine": "store", "vsim.loops": 1})
                        r, c = T.axis.remap("SS", [i, j])
                        y[r, c] = held[r, c]
"""
    addresses = [
        np.unique(of_kind(record(tvm.script.from_source(func % stage), SMALL), Opcode.LOAD)["c"]) for stage in (0, 1, 2)
    ]
    assert [len(found) for found in addresses] == [1, 2, 3]


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_a_buffer_that_does_not_fit_is_named_with_its_bytes():
    schedule = tt.tiling_schedule(product(64, 64, 64, "int8"), target=SMALL)
    tiny = tt.Hardware.neartile(buf_a=128, buf_b=4096, acc_max=8192, bw_a=8, bw_b=8, macs_per_cycle=64)
    with pytest.raises(tt.HardwareError, match=r"buffer A_global.a of \d+ x .* memory 'a' of neartile, which has 256"):
        record(schedule.mod, tiny)


def test_a_block_without_engine_is_named():
    with pytest.raises(
        tt.UnsupportedOperator, match=r"block 'C' has the annotation vsim.engine = None; expected matrix"
    ):
        record(prim_func_of(product(8, 8, 8)), SMALL)


def test_double_precision_is_refused():
    a, b = te.placeholder((8, 8), name="A", dtype="float64"), te.placeholder((8, 8), name="B", dtype="float64")
    k = te.reduce_axis((0, 8), name="k")
    op = te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    with pytest.raises(tt.UnsupportedOperator, match="float64"):
        tt.tiling_schedule(op, target=SMALL)
