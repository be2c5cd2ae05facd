"""Kernels of 256-bit vectors, with AVX2 alone and with AVX-VNNI, against NumPy on a CPU that has the instructions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from algorithms import CONVOLUTIONS, check_convolution
from products import EPSILON, Product, check

import tvm_tiling as tt
from tvm_tiling.accel.plain_operator import plain_operator
from tvm_tiling.hardware.instruction_sets import instruction_set_of_this_cpu
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


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("weights", ["plain", "packed"])
def test_products_of_every_type(machine, dtype, weights):
    taken = check(Product(m=17, n=43, k=61, dtype=dtype), machine, weights=weights)
    assert taken["lanes"] == (4 if dtype == "float64" else 8)


@pytest.mark.parametrize(
    "size", [(1, 1, 1), (1, 251, 7), (127, 1, 33), (31, 129, 1), (6, 16, 4), (7, 17, 203)], ids=str
)
@pytest.mark.parametrize(("left", "right"), [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8")])
def test_bytes_of_awkward_sizes(machine, size, left, right):
    m, n, k = size
    check(Product(m=m, n=n, k=k, dtype=left, dtype_b=right, out="int32"), machine)


@pytest.mark.parametrize("algorithm", CONVOLUTIONS)
def test_every_algorithm_of_a_convolution(machine, algorithm):
    check_convolution(ConvWorkload(**CONVOLUTIONS[algorithm]), machine, algorithm)


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8"])
@pytest.mark.parametrize("size", ["direct", "gemm", "wfold", "stride_fold", "depthwise"])
def test_narrow_types_of_convolutions(machine, size, dtype):
    check_convolution(ConvWorkload(**CONVOLUTIONS[size], dtype=dtype), machine, None)


def test_extreme_bytes_are_summed_exactly(machine):
    """vpmaddubsw would saturate sums of two products in 16 bits; no kernel uses it."""
    workload = tt.GemmWorkload(m=64, n=64, k=64, dtype="int8")
    assert MACHINES[machine.name] in tt.decide(workload, machine).explain()
    library = tvm.compile(tt.tiling_schedule(plain_operator(workload), machine).mod, target=tt.llvm_target(machine))
    least = np.full((64, 64), -128, np.int8)
    out = tvm.runtime.tensor(np.zeros((64, 64), np.int32))
    library["main"](tvm.runtime.tensor(least), tvm.runtime.tensor(least), out)
    assert (out.numpy() == 128 * 128 * 64).all()
    assert "vpmaddubsw" not in library.mod.inspect_source("asm")
