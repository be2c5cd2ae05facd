"""Programs of one instruction with inputs and output in one memory, and the expected result by NumPy."""

from __future__ import annotations

import numpy as np
from accel_programs import MACHINE

from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.hardware.vector_functions import Function

DTYPES = {"int8": np.int8, "int16": np.int16, "int32": np.int32, "uint8": np.uint8, "float32": np.float32}
DTYPES["float16"] = np.float16


def row_major(shape):
    """Return the strides of a dense array in elements."""
    return tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))


def random_values(rng, dtype, shape):
    """Return values over the whole range of an integer type, or around 0 for floats; bfloat16 as float32 numbers that
    it represents."""
    if dtype in ("float32", "float16"):
        return rng.standard_normal(shape).astype(dtype)
    if dtype == "bfloat16":
        bits = rng.standard_normal(shape).astype(np.float32).view(np.uint32)
        return (bits & np.uint32(0xFFFF0000)).view(np.float32)
    bounds = np.iinfo(dtype)
    return rng.integers(bounds.min, bounds.max, size=shape, endpoint=True, dtype=dtype)


def execute(
    op, extent, a, c_shape, c_dtype, *, a_dtype=None, b=None, c=None, strides=None, hardware=MACHINE, **options
):
    """Return the dense output of one instruction whose operands are dense arrays in the order of its loops.

    `strides` overrides those of operands by name. `c`: the initial content of the output.
    """
    a_dtype = a_dtype or str(a.dtype)
    build = ProgramBuilder(hardware)
    strides = strides or {}
    inputs, places = {}, {}
    for name, values in (("a", a), ("b", b)):
        if values is not None:
            tensor = build.tensor(name, a_dtype, values.shape, role="input", operand=name)
            places[name] = At("external", tensor.address, strides.get(name, row_major(values.shape)), a_dtype)
            inputs[name] = values
    out = build.tensor("out", c_dtype, c_shape, role="output", operand="out")
    places["c"] = At("external", out.address, strides.get("c", row_major(c_shape)), c_dtype)
    if c is not None:
        before = build.tensor("before", c_dtype, c_shape, role="input", operand="out")
        inputs["before"] = c
        source = At("external", before.address, (1,), c_dtype)
        build.append(Opcode.LOAD, "store", (c.size,), a=source, c=At("external", out.address, (1,), c_dtype))
    build.append(op, "vector", extent, **places, **options)
    return run(build.build(), inputs)["out"]


def alu(function, a, c_dtype, *, a_dtype=None, b=None, **options):
    """function(a, b) over a one-dimensional array."""
    return execute(
        Opcode.ALU, a.shape, a, a.shape, c_dtype, a_dtype=a_dtype, b=b, function=Function[function], **options
    )
