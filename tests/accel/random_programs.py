"""Random programs whose tokens follow from their data: tiles in three memories, written and read by all queues."""

from __future__ import annotations

import numpy as np
from accel_programs import MACHINE
from hypothesis import strategies as st

from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.hardware.vector_functions import Function

QUEUES = ("load_a", "load_b", "matrix", "vector", "store")
PLACES, SIDE = 4, 3  # tiles of SIDE x SIDE int32 per memory
BYTES = SIDE * SIDE * 4

tiles = st.tuples(st.sampled_from(("a", "b", "acc")), st.integers(0, PLACES - 1), st.booleans())
steps = st.tuples(
    st.sampled_from(QUEUES),
    st.sampled_from((Opcode.LOAD, Opcode.STORE, Opcode.FILL, Opcode.GEMM, Opcode.ALU)),
    tiles,
    tiles,
    tiles,
    st.booleans(),
)


@st.composite
def programs(draw, least=2, most=24):
    """Return (program, inputs): every tile of every memory is loaded first and stored last."""
    build = ProgramBuilder(MACHINE, QUEUES)
    shape = (3, PLACES, SIDE, SIDE)
    source = build.tensor("x", "int32", shape, role="input", operand="a")
    result = build.tensor("y", "int32", shape, role="output", operand="out")

    def at(tile):
        memory, place, transposed = tile
        return At(memory, place * BYTES, (1, SIDE) if transposed else (SIDE, 1), "int32")

    whole = [(memory, place, False) for memory in ("a", "b", "acc") for place in range(PLACES)]
    for number, tile in enumerate(whole):
        home = At("external", source.address + number * BYTES, (SIDE, 1), "int32")
        build.append(Opcode.LOAD, QUEUES[number % 2], (SIDE, SIDE), a=home, c=at(tile))
    for queue, op, a, b, c, flag in draw(st.lists(steps, min_size=least, max_size=most)):
        if op is Opcode.GEMM:
            views = (
                At(at(x).memory, at(x).address, _loops(at(x).stride, at_), "int32") for x, at_ in _product(a, b, c)
            )
            left, right, out = views
            extent = (SIDE, 1, SIDE, 1, 1, SIDE)
            build.append(op, queue, extent, a=left, b=right, c=out, accumulate=flag)
        elif op is Opcode.FILL:
            build.append(op, queue, (SIDE, SIDE), c=at(c), immediate=(7,))
        elif op is Opcode.ALU:
            function = Function.ADD if flag else Function.MAX
            build.append(op, queue, (SIDE, SIDE), a=at(a), b=at(b), c=at(c), function=function)
        else:
            build.append(op, queue, (SIDE, SIDE), a=at(a), c=at(c))
    for number, tile in enumerate(whole):
        home = At("external", result.address + number * BYTES, (SIDE, 1), "int32")
        build.append(Opcode.STORE, "store", (SIDE, SIDE), a=at(tile), c=home)
    seed = draw(st.integers(0, 2**32 - 1))
    values = np.random.default_rng(seed).integers(-9, 9, size=shape, dtype=np.int32)
    return build.build(), {"x": values}


def _product(a, b, c):
    """Address tiles by the loops of a matrix multiplication."""
    return ((a, (0, 5)), (b, (2, 5)), (c, (0, 2)))


def _loops(stride, loops):
    full = [0] * 6
    for loop, step in zip(loops, stride, strict=True):
        full[loop] = step
    return tuple(full)
