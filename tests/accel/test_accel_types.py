"""Every element type from the operator through its schedule to its results, and machines that lack some of them."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest
from convolutions import by_numpy, convolution
from operators import product
from tvm import relax, te, tirx

import tvm_tiling as tt
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.hardware import Vector

NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32, "int16": np.int16}
FLOATS = ("bfloat16", "float16", "float32")
NEAR = tt.Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=8192, bw_a=8, bw_b=8, macs_per_cycle=64)
MACHINES = {"near": NEAR, "wfold": tt.Hardware.load("wfold16"), "vta": tt.Hardware.load("vta")}
VTA = MACHINES["vta"]


def computed(op, hardware, *, low=-9, high=9, seed=0):
    """Return (inputs as float64 or int64, result) of an operator whose inputs are integers in low..high: float32 sums
    are exact in any order, so that only the rounding of the result can differ."""
    program = record(tt.tiling_schedule(op, target=hardware).mod, hardware)
    rng = np.random.default_rng(seed)
    inputs = {}
    for tensor in program.of_role("input"):
        inputs[tensor.name] = rng.integers(low, high, tensor.shape, endpoint=True).astype(NUMPY[tensor.dtype])
    (result,) = run(program, inputs, order=1).values()
    exact = np.int64 if "int" in program.tensors[0].dtype else np.float64
    return {name: values.astype(exact) for name, values in inputs.items()}, result


def converted(op, dtype):
    """The epilogue: `op` rounded to `dtype`."""
    return te.compute(op.shape, lambda *i: op[i].astype(dtype), name="rounded")


@pytest.mark.parametrize("machine", ["near", "wfold"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_products_of_floats_are_summed_in_float32_and_rounded_once_to_nearest_even(dtype, machine):
    op = product(37, 29, 300, dtype)
    op = op if dtype == "float32" else converted(op, dtype)
    inputs, result = computed(op, MACHINES[machine], low=-40, high=40)
    exact = inputs["A"] @ inputs["B"]
    np.testing.assert_array_equal(result.astype(np.float64), exact.astype(NUMPY[dtype]).astype(np.float64))
    if dtype != "float32":
        assert (exact != result).any()  # some are rounded


@pytest.mark.parametrize("machine", ["near", "wfold"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_convolutions_of_floats_likewise(dtype, machine):
    size = {"h": 9, "w": 11, "ci": 20, "co": 24, "padding": (1, 1, 1, 1), "dtype": dtype}
    op = convolution(**size)
    op = op if dtype == "float32" else converted(op, dtype)
    inputs, result = computed(op, MACHINES[machine])
    exact = by_numpy(inputs, padding=(1, 1, 1, 1))
    np.testing.assert_array_equal(result.astype(np.float64), exact.astype(NUMPY[dtype]).astype(np.float64))


def test_halves_are_rounded_to_even():
    """Sums of 257 = 256 + 1 and 259 lie halfway between two bfloat16 numbers."""
    op = converted(product(1, 2, 2, "bfloat16"), "bfloat16")
    program = record(tt.tiling_schedule(op, target=NEAR).mod, NEAR)
    b = np.array([[1, 3], [1, 1]], NUMPY["bfloat16"])
    for first, wanted in ((256.0, (256, 768)), (258.0, (260, 776))):
        a = np.array([[first, 1]], NUMPY["bfloat16"])
        (result,) = run(program, {"A": a, "B": b}).values()
        exact = a.astype(np.float32) @ b.astype(np.float32)
        assert result.tolist() == [list(wanted)] == exact.astype(NUMPY["bfloat16"]).astype(float).tolist()
    assert (exact == [[259, 775]]).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_chains_are_rounded_at_every_operation_that_the_source_names(dtype):
    x, y = (te.placeholder((40, 30), name=name, dtype=dtype) for name in "xy")
    op = te.compute((40, 30), lambda i, j: tirx.max(x[i, j] * y[i, j] + x[i, j], tirx.const(0, dtype)), name="out")
    rng = np.random.default_rng(0)
    program = record(tt.tiling_schedule(op, target=NEAR).mod, NEAR)
    a, b = (rng.standard_normal((40, 30)).astype(np.float32).astype(NUMPY[dtype]) for _ in range(2))
    (result,) = run(program, {"x": a, "y": b}).values()
    wide = (a.astype(np.float32) * b.astype(np.float32)).astype(NUMPY[dtype]).astype(np.float32)
    wanted = np.maximum((wide + a.astype(np.float32)).astype(NUMPY[dtype]).astype(np.float32), 0)
    np.testing.assert_array_equal(result.astype(np.float32), wanted)


@pytest.mark.parametrize("machine", ["near", "wfold"])
def test_products_of_int16_are_summed_in_int32_and_wrap_round(machine):
    inputs, result = computed(product(23, 31, 70, "int16"), MACHINES[machine], low=-(2**15), high=2**15 - 1)
    exact = inputs["A"] @ inputs["B"]
    assert result.dtype == np.int32 and (np.abs(exact) > 2**31).any()
    np.testing.assert_array_equal(result, exact.astype(np.int32))


@pytest.mark.parametrize("machine", ["near", "wfold"])
def test_convolutions_of_int16_likewise(machine):
    size = {"h": 8, "w": 7, "ci": 12, "co": 10, "dtype": "int16"}
    inputs, result = computed(convolution(**size), MACHINES[machine], low=-(2**15), high=2**15 - 1)
    exact = by_numpy(inputs)
    assert (np.abs(exact) > 2**31).any()
    np.testing.assert_array_equal(result, exact.astype(np.int32))


def test_sums_of_int16_in_two_bytes_wrap_round_there():
    narrow = dataclasses.replace(NEAR, near_tile=dataclasses.replace(NEAR.near_tile, acc_bytes_per_element=2))
    a, b = (te.placeholder((8, 8), name=name, dtype="int16") for name in "AB")
    k = te.reduce_axis((0, 8), name="k")
    op = te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    inputs, result = computed(op, narrow, low=-300, high=300)
    np.testing.assert_array_equal(result, (inputs["A"] @ inputs["B"]).astype(np.int16))


def test_sums_of_int16_that_may_need_more_than_int32_are_refused():
    a, b = (te.placeholder((8, 8), name=name, dtype="int16") for name in "AB")
    k = te.reduce_axis((0, 8), name="k")
    op = te.compute((8, 8), lambda i, j: te.sum(a[i, k].astype("int64") * b[k, j].astype("int64"), axis=k), name="C")
    with pytest.raises(tt.UnsupportedOperator, match="8 products of int16 may exceed int32, but accumulate in int64"):
        tt.tiling_schedule(op, target=NEAR)


def test_chains_of_int16_saturate_as_written():
    x, y = (te.placeholder((60, 70), name=name, dtype="int16") for name in "xy")

    def shifted(i, j):
        total = (x[i, j].astype("int32") * y[i, j].astype("int32") + (1 << 11)) >> 12
        return tirx.max(tirx.min(total, 32767), -32768).astype("int16")

    inputs, result = computed(te.compute((60, 70), shifted, name="out"), NEAR, low=-(2**15), high=2**15 - 1)
    exact = (inputs["x"] * inputs["y"] + (1 << 11)) >> 12
    assert np.abs(exact).max() > 1 << 15
    np.testing.assert_array_equal(result, np.clip(exact, -(2**15), 2**15 - 1))


def requantised(scale, zero, low, high, dtype):
    """Convert int32 to `dtype` as ONNX's QuantizeLinear does."""
    x = te.placeholder((16,), name="x", dtype="int32")
    return te.compute(
        (16,),
        lambda i: tirx.max(
            tirx.min(
                te.round(x[i].astype("float32") * scale) + zero,
                tirx.const(high, "float32"),
            ),
            tirx.const(low, "float32"),
        ).astype(dtype),
        name="out",
    )


@pytest.mark.parametrize(
    ("low", "high", "dtype"), [(-128, 127, "int8"), (0, 255, "uint8"), (-(2**15), 2**15 - 1, "int16")]
)
@pytest.mark.parametrize(("scale", "zero"), [(0.5, 0.0), (0.5, 3.0), (2.0**-24, -5.0), (1.0, 1.0)])
def test_requantisation_saturates_and_takes_ties_to_even(scale, zero, low, high, dtype):
    least, most = -(2**31), 2**31 - 1
    x = np.array([least, least + 1, most, most - 1, 0, 1, -1, 3, -3, 5, -5, 253, 255, -255, 2**24, -(2**24)], np.int32)
    op = requantised(scale, zero, low, high, dtype)
    program = record(tt.tiling_schedule(op, target=NEAR).mod, NEAR)
    (result,) = run(program, {"x": x}).values()
    assert str(result.dtype) == dtype
    np.testing.assert_array_equal(result, np.clip(np.rint(x.astype(np.float32) * scale) + zero, low, high))


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_operators_of_types_that_a_machine_has_not_are_refused_in_one_sentence():
    for dtype in ("float32", "int16", "bfloat16"):
        for op in (product(8, 8, 8, dtype), convolution(dtype=dtype)):
            with pytest.raises(tt.HardwareError, match=f"^vta does not support operands of {dtype}; expected int8$"):
                tt.tiling_schedule(op, target="vsim/vta")
            with pytest.raises(tt.HardwareError, match=f"operands of {dtype}; expected int8$"):
                tt.compile(op, target="vsim/vta")
    narrow = dataclasses.replace(MACHINES["wfold"], w_fold=tt.WFold(dtypes=["int8"]))
    with pytest.raises(tt.HardwareError, match=r"operands of float32; expected int8$"):
        tt.tiling_schedule(convolution(dtype="float32"), target=narrow)


def test_chains_of_types_that_a_machine_has_not_are_refused_in_one_sentence():
    x = te.placeholder((60,), name="x", dtype="float32")
    said = (
        "main: block 'out' computes with float32, which the vector engine of vta does not support; expected int8, int32"
    )
    with pytest.raises(tt.HardwareError, match=f"^{said}$"):
        tt.tiling_schedule(te.compute((60,), lambda i: x[i] + 1.0, name="out"), target=VTA)
    dense = product(8, 8, 8, "int8")
    scaled = te.compute((8, 8), lambda i, j: (dense[i, j].astype("float32") * 0.5).astype("int8"), name="out")
    with pytest.raises(tt.HardwareError, match=f"^{said}$"):
        tt.tiling_schedule(scaled, target=VTA)


def test_a_program_is_not_timed_on_a_machine_without_its_types():
    programs = {
        r"instruction \d+ \(GEMM.* is of float32; expected int8$": product(8, 8, 8),
        r"instruction \d+ \(ALU.* is of float32; expected int8, int32$": te.compute(
            (60,), lambda i: te.placeholder((60,), name="x")[i] + 1.0
        ),
    }
    plain = dataclasses.replace(VTA, near_tile=dataclasses.replace(VTA.near_tile, dtypes=()), vector=Vector(lanes=16))
    for said, op in programs.items():
        program = record(tt.tiling_schedule(op, target=plain).mod, plain)
        assert simulate(program, plain).cycles > 0
        with pytest.raises(tt.HardwareError, match=said):
            simulate(program, VTA)


def test_a_changed_schedule_of_another_type_is_refused_when_it_is_recorded():
    x = te.placeholder((60,), name="x", dtype="float32")
    of_all_types = dataclasses.replace(VTA, vector=dataclasses.replace(VTA.vector, dtypes=()))
    schedule = tt.tiling_schedule(te.compute((60,), lambda i: x[i] + 1.0, name="out"), target=of_all_types)
    with pytest.raises(tt.UnsupportedOperator, match=r"block 'out' computes with float32, .*; expected int8, int32"):
        record(schedule.mod, VTA)


def test_what_a_machine_has_no_type_for_stays_on_the_cpu():
    """A graph with two matrix multiplications, of int8 and of float32: vta runs the first."""
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType((16, 32), dtype)) for name, dtype in (("x", "int8"), ("y", "float32")))
    rng = np.random.default_rng(0)
    whole = rng.integers(-9, 9, (32, 24)).astype(np.int8)
    parts = rng.standard_normal((32, 24)).astype(np.float32)
    with builder.function("main", [x, y]):
        with builder.dataflow():
            first = builder.emit(relax.op.matmul(x, relax.const(whole), out_dtype="int32"))
            second = builder.emit(relax.op.matmul(y, relax.const(parts)))
            out = builder.emit_output(relax.Tuple([first, second]))
        builder.emit_func_output(out)
    # Without floats to quantise, the machine must support them elsewhere.
    both = dataclasses.replace(VTA, column=tt.Hardware.rnn(multipliers=16).column)
    executable = tt.compile(builder.finalize(), target=both)
    left = {o.name: o.why for o in executable.report().operators if o.where == "cpu"}
    assert any("operands of float32; expected int8" in why for why in left.values())
    a, b = rng.integers(-9, 9, (16, 32)).astype(np.int8), rng.standard_normal((16, 32)).astype(np.float32)
    (exact, close), _ = executable.simulate(a, b)
    np.testing.assert_array_equal(exact, a.astype(np.int32) @ whole.astype(np.int32))
    np.testing.assert_allclose(close, b @ parts, rtol=1e-4, atol=1e-4)


def test_a_gemm_stays_on_the_accelerator_where_what_follows_it_has_other_types():
    """An int8 matrix multiplication with sums scaled to floats: the CPU does the scaling."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((16, 32), "int8"))
    weights = np.random.default_rng(0).integers(-9, 9, (32, 24)).astype(np.int8)
    with builder.function("main", [x]):
        with builder.dataflow():
            sums = builder.emit(relax.op.matmul(x, relax.const(weights), out_dtype="int32"))
            floats = builder.emit(relax.op.astype(sums, "float32"))
            out = builder.emit_output(relax.op.multiply(floats, relax.const(np.float32(0.125))))
        builder.emit_func_output(out)
    executable = tt.compile(builder.finalize(), target="vsim/vta")
    there = {o.name: o.where for o in executable.report().operators}
    assert {where for name, where in there.items() if "matmul" in name} == {"accelerator"}
    assert "cpu" in there.values()
    values = np.random.default_rng(1).integers(-9, 9, (16, 32)).astype(np.int8)
    result, sim = executable.simulate(values)
    np.testing.assert_array_equal(result, (values.astype(np.int32) @ weights.astype(np.int32)).astype(np.float32) / 8)
    assert sim.macs == 16 * 32 * 24
