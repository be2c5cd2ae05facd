"""Kernels of 256-bit vectors, with AVX2 alone and with AVX-VNNI, against NumPy on a CPU that has the instructions."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import tvm
from algorithms import CONVOLUTIONS, check_convolution
from products import EPSILON, Product, check

import tvm_tiling as tt
from tvm_tiling.accel.plain_operator import plain_operator
from tvm_tiling.hardware.instruction_sets import instruction_set_of_this_cpu
from tvm_tiling.tuning.measuring.operands import Operands
from tvm_tiling.workload import ConvWorkload

OWN = instruction_set_of_this_cpu()
MACHINES = {"skylake-desktop-8c": "pmaddwd", "alderlake-desktop-8c": "vpdpbusd"}
TYPES = (*EPSILON, "int8", "uint8")
pytestmark = pytest.mark.skipif(OWN is None or "avx2" not in OWN.extensions, reason="needs a CPU with AVX2")


@pytest.fixture(params=MACHINES)
def machine(request):
    """The preset, with one core."""
    found = tt.Hardware.load(request.param)
    if "avxvnni" in found.cpu.features and "avxvnni" not in OWN.extensions:
        pytest.skip("needs a CPU with AVX-VNNI")
    return replace(found, cpu=replace(found.cpu, cores=1, threads=1))


@pytest.mark.values
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("weights", ["plain", "packed"])
def test_products_of_every_type(machine, dtype, weights):
    taken = check(Product(m=17, n=43, k=61, dtype=dtype), machine, weights=weights)
    assert taken["lanes"] == (4 if dtype == "float64" else 8)


@pytest.mark.values
@pytest.mark.parametrize(
    "size", [(1, 1, 1), (1, 251, 7), (127, 1, 33), (31, 129, 1), (6, 16, 4), (7, 17, 203)], ids=str
)
@pytest.mark.parametrize(("left", "right"), [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8")])
def test_bytes_of_awkward_sizes(machine, size, left, right):
    m, n, k = size
    check(Product(m=m, n=n, k=k, dtype=left, dtype_b=right, out="int32"), machine)


@pytest.mark.values
@pytest.mark.parametrize("algorithm", CONVOLUTIONS)
def test_every_algorithm_of_a_convolution(machine, algorithm):
    check_convolution(ConvWorkload(**CONVOLUTIONS[algorithm]), machine, algorithm)


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8"])
@pytest.mark.parametrize("size", ["direct", "gemm", "wfold", "stride_fold", "depthwise"])
def test_narrow_types_of_convolutions(machine, size, dtype):
    check_convolution(ConvWorkload(**CONVOLUTIONS[size], dtype=dtype), machine, None)


def extremes(array, values, seed):
    """Fill `array` with these values, of which most are the first two."""
    array[...] = np.random.default_rng(seed).choice(values, array.shape)


BOUNDED = {
    "product": tt.GemmWorkload(m=17, n=43, k=61, dtype="int8"),
    "unsigned": tt.GemmWorkload(m=7, n=17, k=203, dtype="uint8", b_dtype="int8"),
    "row": tt.GemmWorkload(m=1, n=37, k=130, dtype="int8"),
    **{name: ConvWorkload(**CONVOLUTIONS[name], dtype="int8") for name in ("direct", "gemm", "wfold", "stride_fold")},
    "depthwise": ConvWorkload(**{**CONVOLUTIONS["depthwise"], "padding": (0, 0, 0, 0)}, dtype="int8"),
}


@pytest.mark.values
@pytest.mark.parametrize("largest", [63, 64, 65, 128])
@pytest.mark.parametrize("name", BOUNDED)
def test_bytes_by_bounded_weights_are_exact(name, largest):
    """vpmaddubsw adds two products in 16 bits: exact for weights up to 64, and not used for larger ones."""
    machine = tt.Hardware.load("skylake-desktop-8c")
    machine = replace(machine, cpu=replace(machine.cpu, cores=1, threads=1))
    workload = BOUNDED[name]
    operands = Operands.random(workload)
    a, b = operands.arrays
    extremes(a, [0, 255, 254] if a.dtype == np.uint8 else [-128, 127, 126], 0)
    extremes(b, [-largest, min(largest, 127), 1], 1)
    packed = tt.packed_operator(plain_operator(workload), machine, weights_within=largest)
    out = tvm.runtime.tensor(np.zeros(operands.result_shape, np.int32))
    packed(tvm.runtime.tensor(a), packed.pack(tvm.runtime.tensor(b)), out)
    assert operands.difference(out.numpy()) == ""
    assert ("pmaddubsw" in packed.library.mod.inspect_source("asm")) == (largest <= 64)


def test_larger_weights_than_promised_are_refused():
    machine = tt.Hardware.load("skylake-desktop-8c")
    packed = tt.packed_operator(plain_operator(BOUNDED["row"]), machine, weights_within=64)
    weights = np.zeros((130, 37), np.int8)
    weights[129, 36] = -65
    with pytest.raises(tt.WorkloadError, match="weights are too large: 65; expected integers from -64 to 64"):
        packed.pack(tvm.runtime.tensor(weights))


@pytest.mark.parametrize(("largest", "instruction"), [(64, "pmaddubsw"), (65, "pmaddwd")])
def test_constant_weights_of_a_model_decide_the_instruction(largest, instruction):
    onnx = pytest.importorskip("onnx")
    weights = np.random.default_rng(2).choice([-largest, largest], (67, 29)).astype(np.int8)
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "main",
        [tensor("x", onnx.TensorProto.UINT8, (9, 67))],
        [tensor("y", onnx.TensorProto.INT32, (9, 29))],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    exe = tt.compile(model, target=tt.Hardware.load("skylake-desktop-8c"))
    x = np.random.default_rng(3).choice([0, 255], (9, 67)).astype(np.uint8)
    assert (exe.run(x) == x.astype(np.int32) @ weights.astype(np.int32)).all()
    (operator,) = [each for each in exe.report().operators if each.kind == "gemm"]
    assert instruction in json.dumps(operator.decision)


def test_extreme_bytes_are_summed_exactly(machine):
    """vpmaddubsw would saturate sums of two products in 16 bits; no kernel uses it for a B of unknown values."""
    workload = tt.GemmWorkload(m=64, n=64, k=64, dtype="int8")
    assert MACHINES[machine.name] in tt.decide(workload, machine).explain()
    library = tvm.compile(tt.tiling_schedule(plain_operator(workload), machine).mod, target=tt.llvm_target(machine))
    least = np.full((64, 64), -128, np.int8)
    out = tvm.runtime.tensor(np.zeros((64, 64), np.int32))
    library["main"](tvm.runtime.tensor(least), tvm.runtime.tensor(least), out)
    assert (out.numpy() == 128 * 128 * 64).all()
    assert "vpmaddubsw" not in library.mod.inspect_source("asm")
