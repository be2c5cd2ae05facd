"""LLVM's code for the microkernels on Neoverse N1 and V1: every accumulator in a register, one multiply-accumulate, dot
or matrix instruction each, elements of A taken from a lane or groups of two rows loaded at once, no spills. llvm-mca's
cycles are compared with the formulas."""

from __future__ import annotations

import pytest
from aarch64_loops import mca, microkernel, product_loops

import tvm_tiling as tt
from tvm_tiling.decide.gemm.dot_engine import dot_engine
from tvm_tiling.decide.gemm.gemm_cost import CpuModel

MACHINES = ("neoverse-n1", "neoverse-v1")
# What multiplies: N1 has neither bfloat16 nor matrix instructions.
MULTIPLY = {
    "neoverse-n1": {"bfloat16": "fmla", "int8": "sdot", "uint8": "udot"},
    "neoverse-v1": {"bfloat16": "bfmmla", "int8": "smmla", "uint8": "ummla"},
}
TYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8")
SHAPES = [(512, 512, 512), (64, 768, 300)]


def multiply(name: str, dtype: str) -> str:
    return MULTIPLY[name].get(dtype, "fmla")


@pytest.mark.pairs
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("weights", ["plain", "packed"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_chosen_kernel(name, dtype, weights, shape):
    machine = tt.Hardware.load(name)
    taken, loops = product_loops(*shape, machine, dtype, weights=weights)
    loop, steps = microkernel(taken, loops, multiply(name, dtype))
    rows, vectors = taken["mr"], taken["nr"] // taken["lanes"]
    assert rows * vectors > 8
    assert loop.spills == []
    assert loop.count(r"bl\s") == 0
    whole = loop.count(r"ldu?r\s+q") + 2 * loop.count(r"ldp\s+q")
    elements = loop.count(r"ldu?r\s+[shd]\d|ld1r|ldr\s+h")
    if "mmla" in multiply(name, dtype):
        # A register of A for two rows, two of B for a vector of columns, and nothing else.
        assert whole == steps * (rows // 2 + 2 * vectors)
        assert elements + loop.count(r"ld1r|dup|ld1|ins|mov\s+v|zip|trn|ext") == 0
        return
    # Vectors of B one by one or in pairs; elements of A one by one or broadcast to all lanes.
    assert whole <= steps * vectors
    assert loop.count(r"ld1r|dup") <= steps
    assert elements <= steps * rows


@pytest.mark.slow
@pytest.mark.skipif(not mca(), reason="llvm-mca is not installed")
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("weights", ["plain", "packed"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cycles_of_a_step_beside_llvm_mca(name, dtype, weights, shape):
    machine = tt.Hardware.load(name)
    taken, loops = product_loops(*shape, machine, dtype, weights=weights)
    loop, steps = microkernel(taken, loops, multiply(name, dtype))
    m, n, k = shape
    workload = tt.GemmWorkload(m=m, n=n, k=k, dtype=dtype)
    model = CpuModel(workload, machine.cpu, dot_engine(workload, machine.cpu, prepacked=weights == "packed"))
    predicted = model.step(taken["mr"], taken["nr"] // taken["lanes"])
    found = loop.cycles(name) / steps
    print(f"{name} {dtype} {weights} {taken['mr']} x {taken['nr'] // taken['lanes']}: {predicted:.2f}, {found:.2f}")
    assert abs(found / predicted - 1) <= 0.1
