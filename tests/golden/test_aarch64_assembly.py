"""LLVM's code for the microkernels on Neoverse N1 and V1: every accumulator in a register, one multiply-accumulate or
dot instruction each, elements of A taken from a lane (except for bfdot), no spills. llvm-mca's cycles are compared with
the formulas."""

from __future__ import annotations

import pytest
from aarch64_loops import MULTIPLY, mca, microkernel, product_loops

import tvm_tiling as tt
from tvm_tiling.decide.gemm.gemm_cost import CpuModel
from tvm_tiling.hardware.dot_instructions import fastest

MACHINES = ("neoverse-n1", "neoverse-v1")
TYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8")
SHAPES = [(512, 512, 512), (64, 768, 300)]


def multiply(name: str, dtype: str) -> str:
    """N1 has no bfloat16 instructions."""
    return "fmla" if (name, dtype) == ("neoverse-n1", "bfloat16") else MULTIPLY[dtype]


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
    # Vectors of B one by one or in pairs; elements of A one by one or broadcast to all lanes.
    assert loop.count(r"ldu?r\s+q") + 2 * loop.count(r"ldp\s+q") <= steps * vectors
    copied = rows if multiply(name, dtype) == "bfdot" else 1
    assert loop.count(r"ld1r|dup") <= steps * copied
    assert loop.count(r"ldu?r\s+[shd]\d|ld1r|ldr\s+h") <= steps * rows


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
    acc = workload.types.acc
    model = CpuModel(workload, machine.cpu, fastest(machine.cpu, dtype, dtype, acc))
    predicted = model.step(taken["mr"], taken["nr"] // taken["lanes"])
    found = loop.cycles(name) / steps
    print(f"{name} {dtype} {weights} {taken['mr']} x {taken['nr'] // taken['lanes']}: {predicted:.2f}, {found:.2f}")
    assert abs(found / predicted - 1) <= 0.1
