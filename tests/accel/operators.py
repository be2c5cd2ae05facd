"""Operators for testing accelerator lowering: tensor expressions, random inputs, results by LLVM."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import te, tirx

import tvm_tiling as tt
from tvm_tiling.accel.checks.hazards import check_hazards
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.record.function import record
from tvm_tiling.match import prim_func_of

SUMS = {
    "int8": "int32",
    "uint8": "int32",
    "int16": "int32",
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "float32",
}


def product(m, n, k, dtype="float32", *, trans_a=False, trans_b=False, batch=None, name="C"):
    """Return C = A * B as a tensor expression, with either operand stored transposed; `batch` in front of all three."""
    lead = () if batch is None else (batch,)
    a = te.placeholder((*lead, *((k, m) if trans_a else (m, k))), name="A", dtype=dtype)
    b = te.placeholder((*lead, *((n, k) if trans_b else (k, n))), name="B", dtype=dtype)
    r = te.reduce_axis((0, k), name="k")

    def element(*at):
        *q, i, j = at
        left = a[(*q, r, i) if trans_a else (*q, i, r)]
        right = b[(*q, j, r) if trans_b else (*q, r, j)]
        return te.sum(left.astype(SUMS[dtype]) * right.astype(SUMS[dtype]), axis=r)

    return te.compute((*lead, m, n), element, name=name)


def random_inputs(program, seed=0):
    rng = np.random.default_rng(seed)
    inputs = {}
    for tensor in program.of_role("input"):
        whole = "int" in tensor.dtype
        values = rng.integers(-100, 100, tensor.shape) if whole else rng.standard_normal(tensor.shape)
        inputs[tensor.name] = values.astype(tensor.dtype)
    return inputs


def by_llvm(func, inputs, shape, dtype):
    """Return the result of a PrimFunc compiled without a schedule."""
    library = tvm.compile(func, target=tt.llvm_target())
    out = tvm.runtime.empty(shape, dtype)
    library["main"](*[tvm.runtime.tensor(inputs[p.name]) for p in func.params[:-1]], out)
    return out.numpy()


def simulated(op, hardware):
    """Return (func, schedule, program, inputs, result) of an operator, executed in a random order of its queues after a
    check for hazards."""
    func = op if isinstance(op, tirx.PrimFunc) else prim_func_of(op)
    schedule = tt.tiling_schedule(func, target=hardware)
    program = record(schedule.mod, hardware)
    check_hazards(program)
    inputs = random_inputs(program)
    (result,) = run(program, inputs, order=1).values()
    return func, schedule, program, inputs, result
