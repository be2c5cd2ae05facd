"""Small programs shared by several tests."""

from __future__ import annotations

import numpy as np

from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.program.program import Program
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.vector_functions import Function

MACHINE = Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=4096, bw_a=16, bw_b=16, macs_per_cycle=256)


def product(m: int = 32, n: int = 16, k: int = 24, slots: int = 2, block: int = 8) -> Program:
    """C[m, n] = relu(A[m, k] * B[k, n]) in int8, with B resident and A loaded in pieces of `block` rows into one of
    `slots` buffers."""
    build = ProgramBuilder(MACHINE)
    values = (np.arange(k * n) % 7 - 3).astype(np.int8).reshape(k, n)
    a = build.tensor("a", "int8", (m, k), role="input", operand="a")
    b = build.constant("b", values, operand="b")
    c = build.tensor("c", "int32", (m, n), role="output", operand="out")
    build.region("product", workload=f"gemm {m} {k} {n}", decision='{"split_k": false}')
    build.append(
        Opcode.LOAD, "load_b", (k, n), a=At("external", b.address, (n, 1), "int8"), c=At("b", 0, (n, 1), "int8")
    )
    for step, row in enumerate(range(0, m, block)):
        rows, slot = min(block, m - row), step % slots
        near = At("a", slot * block * k, (k, 1), "int8")
        sums = At("acc", slot * block * n * 4, (n, 1), "int32")
        build.append(Opcode.LOAD, "load_a", (rows, k), a=At("external", a.address + row * k, (k, 1), "int8"), c=near)
        build.append(
            Opcode.GEMM,
            "matrix",
            (rows, 1, n, 1, 1, k),
            a=At("a", near.address, (k, 0, 0, 0, 0, 1), "int8"),
            b=At("b", 0, (0, 0, 1, 0, 0, n), "int8"),
            c=At("acc", sums.address, (n, 0, 1, 0, 0, 0), "int32"),
        )
        build.append(Opcode.ALU, "vector", (rows, n), a=sums, c=sums, function=Function.RELU)
        build.append(
            Opcode.STORE, "store", (rows, n), a=sums, c=At("external", c.address + row * n * 4, (n, 1), "int32")
        )
    return build.build()
