"""Kernels for Neoverse N1 and V1, compiled here and run by an emulator, against NumPy.
tests/slow/test_emulated_suite.py runs the whole suite of kernels in this way."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from emulator import EmulatedLibrary, emulate, needs_emulator

sys.path.insert(0, str(Path(__file__).parents[1] / "numeric"))  # whose matrix multiplications are used here

from algorithms import CONVOLUTIONS, check_convolution
from products import EPSILON, Product, check, inputs_of, operator

import tvm_tiling as tt
from tvm_tiling.hardware import dot_instructions
from tvm_tiling.workload import ConvWorkload

pytestmark = needs_emulator
MACHINES = ("neoverse-n1", "neoverse-v1")
TYPES = (*EPSILON, "int8", "uint8")


@pytest.fixture(autouse=True)
def machine(request):
    """The preset that stands in for this CPU, with one core."""
    name = request.param if hasattr(request, "param") else "neoverse-v1"
    with emulate(name):
        found = tt.Hardware.load(name)
        yield replace(found, cpu=replace(found.cpu, cores=1, threads=1))


on_both = pytest.mark.parametrize("machine", MACHINES, indirect=True)


@on_both
@pytest.mark.values
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("weights", ["plain", "packed"])
def test_gemms_of_every_type(machine, dtype, weights):
    taken = check(Product(m=17, n=33, k=61, dtype=dtype), machine, weights=weights)
    assert taken["lanes"] == (2 if dtype == "float64" else 4)


@pytest.mark.parametrize(
    ("form", "trans_b"),
    [("normal", False), ("nocopy", True), ("inline", False), ("pack", True), ("stream", False), ("stream", True)],
)
def test_every_algorithm_of_a_gemm(machine, form, trans_b):
    machine = replace(machine, cpu=replace(machine.cpu, priority_ratio=0.3)) if form == "inline" else machine
    rows = {"stream": 3, "inline": 33}.get(form, 17)
    assert check(Product(m=rows, n=47, k=127, trans_b=trans_b), machine, form=form)["form"] == form


@pytest.mark.values
@on_both
@pytest.mark.parametrize(("left", "right"), [("int8", "uint8"), ("uint8", "int8")])
def test_signed_by_unsigned_bytes(machine, left, right):
    check(Product(m=17, n=33, k=31, dtype=left, dtype_b=right, out="int32"), machine)


EPILOGUES = {
    "dense": ("bias_n", "relu"),
    "block": ("scale", "bias_n", "gelu", "residual"),
    "all": ("bias_m", "bias_n", "tanh", "residual", "relu", "scale", "cast:bfloat16"),
    "cast": ("cast:float16",),
}


@pytest.mark.parametrize(
    "steps", [pytest.param(s, id=n, marks=pytest.mark.slow if n == "all" else ()) for n, s in EPILOGUES.items()]
)
def test_epilogues(machine, steps):
    check(Product(m=15, n=37, k=33, epilogue=steps), machine)


@pytest.mark.values
@pytest.mark.parametrize("size", [(1, 1, 1), (1, 251, 7), (127, 1, 33), (31, 129, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow), "int8"])
def test_awkward_sizes(machine, size, dtype):
    m, n, k = size
    check(Product(m=m, n=n, k=k, dtype=dtype), machine)


MATRIX = {
    "odd row": Product(m=7, n=13, k=9),
    "two rows": Product(m=2, n=3, k=5, trans_b=True),
    "sums that wait": Product(m=19, n=21, k=5003, trans_a=True),
    "transposed": Product(m=13, n=38, k=75, trans_b=True, epilogue=("bias_n", "relu")),
    "batch": Product(m=5, n=9, k=31, batch=(2,), batch_b=(1,)),
}


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", pytest.param("uint8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", MATRIX)
@pytest.mark.parametrize("weights", ["packed", pytest.param("plain", marks=pytest.mark.slow)])
def test_matrix_instructions(machine, case, dtype, weights):
    weights = "plain" if MATRIX[case].batch else weights
    taken = check(replace(MATRIX[case], dtype=dtype), machine, weights=weights)
    read_in_place = (case, dtype, weights) == ("two rows", "bfloat16", "plain")
    assert ("mmla" in str(taken["reasons"])) != read_in_place


def test_bfmmla_sums_as_bfdot(machine, monkeypatch):
    """Both add pairs of products in the same order with the rounding of FEAT_BF16, so that their sums are equal."""
    product = Product(m=12, n=16, k=64, dtype="bfloat16")
    inputs, found = inputs_of(product), []
    for name in ("bfmmla", "bfdot"):
        if name == "bfdot":
            rows = [row for row in dot_instructions.DOT_INSTRUCTIONS if row.rows == 1]
            monkeypatch.setattr(dot_instructions, "DOT_INSTRUCTIONS", rows)
        func = tt.tiling_schedule(operator(product), machine).mod
        assert f"neon.{name}" in func.script()
        out = tvm.runtime.tensor(np.zeros(product.shape_c, np.float32))
        tvm.compile(func, target=tt.llvm_target(machine))["main"](*(operand.tensor for operand in inputs), out)
        found.append(out.numpy())
    assert np.array_equal(*found)


def test_two_cores_and_a_split_reduction(machine):
    machine = replace(machine, cpu=replace(machine.cpu, cores=2, threads=2))
    taken = check(Product(m=8, n=8, k=9000), machine)
    assert taken["threads_k"] > 1


@pytest.mark.parametrize("form", CONVOLUTIONS)
@pytest.mark.parametrize("layout", ["NHWC", pytest.param("NCHW", marks=pytest.mark.slow)])
def test_every_algorithm_of_a_convolution(machine, form, layout):
    library = check_convolution(ConvWorkload(**CONVOLUTIONS[form], layout=layout), machine, form)
    assert isinstance(library, EmulatedLibrary)


# The channels of all layers of VGG-19, on images of at most 28 pixels: the whole network takes 16 minutes (tests/slow).
VGG19 = [(3, 64, 28), (64, 64, 28), (64, 128, 28), (128, 128, 28), (128, 256, 28), (256, 256, 14), (256, 512, 14),
         (512, 512, 14)]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("layer", VGG19, ids=str)
def test_layers_of_vgg19(machine, layer):
    ci, co, size = layer
    workload = ConvWorkload(n=1, h=size, w=size, ci=ci, co=co, kh=3, kw=3, padding=(1, 1, 1, 1), layout="NCHW")
    check_convolution(workload, machine, None)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "n"), [(25088, 4096), (4096, 4096), (4096, 1000)])
def test_dense_layers_of_vgg19(machine, k, n):
    check(Product(m=1, n=n, k=k, trans_b=True, epilogue=("bias_n", "relu")), machine)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "uint8"])
@pytest.mark.parametrize("form", ["direct", pytest.param("depthwise", marks=pytest.mark.slow)])
def test_types_of_convolutions(machine, form, dtype):
    check_convolution(ConvWorkload(**CONVOLUTIONS[form], dtype=dtype), machine, None)


def test_what_is_written_beside_a_tensor_is_reported(machine):
    """The emulator's own check."""
    from emulator import Request

    request = Request([tvm.runtime.tensor(np.zeros(3, np.float32))])
    content = bytearray(request.content)
    content[-1] = 0
    with pytest.raises(AssertionError, match="beside its tensors"):
        request.take(bytes(content))
