"""Random machines, and random programs for them, for properties that hold for every timed program."""

from __future__ import annotations

from hypothesis import strategies as st

from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.memory import Memory
from tvm_tiling.hardware.near_tile import NearTile
from tvm_tiling.hardware.queues import Queues
from tvm_tiling.hardware.vector import Vector
from tvm_tiling.hardware.vector_functions import Function

SPACE = 64  # bytes of each memory that contain operands
BUFFERS = ("a", "b", "acc")


@st.composite
def machines(draw):
    """Return machines that differ in every property that affects timing."""
    number = st.integers(1, 24)
    tile = NearTile(
        buf_a=1024,
        buf_b=1024,
        acc_max=1024,
        macs_per_cycle=draw(number),
        bw_a=draw(number) / 4,
        bw_b=draw(number) / 4,
        block_m=draw(st.sampled_from((1, 4))),
        partial_blocks=draw(st.sampled_from(("skipped", "padded"))),
        fill=draw(st.integers(0, 9)),
        drain=draw(st.integers(0, 9)),
        bw_out=draw(st.sampled_from((None, 0.5, 8.0))),
    )
    ports = st.sampled_from((None, 1, 2))
    memories = {
        name: Memory(latency=draw(st.integers(0, 20)), ports=draw(ports)) for name in ("external", "a", "b", "acc")
    }
    return Hardware(
        name="random",
        near_tile=tile,
        vector=Vector(lanes=draw(number), latency=draw(st.integers(0, 9))),
        memories=memories,
        queues=Queues(
            depth=draw(st.sampled_from((None, 1, 2, 5))),
            issue_cycles=draw(st.integers(0, 3)),
            token_cycles=draw(st.integers(0, 5)),
        ),
    )


@st.composite
def programs(draw, most=24):
    """Return programs of copies, multiplications and sums over a few bytes, strided, so that they conflict."""
    build = ProgramBuilder(draw(machines()))
    build.tensor("x", "int8", (SPACE,), role="input", operand="a")
    build.tensor("y", "int8", (SPACE,), role="output", operand="out")
    place, count, step = st.integers(0, SPACE // 2), st.integers(1, 4), st.integers(1, 4)

    def operand(memory, rows, columns):
        address = draw(place)
        inner = draw(st.sampled_from((1, 2)))
        stride = (draw(step), inner)
        return At(memory, address, stride, "int8"), (rows, columns)

    for _ in range(draw(st.integers(1, most))):
        rows, columns = draw(count), draw(count)
        buffer = draw(st.sampled_from(BUFFERS))
        near, extent = operand(buffer, rows, columns)
        far, _ = operand("external", rows, columns)
        kind = draw(st.sampled_from(("load", "store", "gemm", "alu", "fill")))
        if kind == "load":
            queue = draw(st.sampled_from(("load_a", "load_b")))
            build.append(Opcode.LOAD, queue, extent, a=far, c=near)
        elif kind == "store":
            build.append(Opcode.STORE, "store", extent, a=near, c=far)
        elif kind == "fill":
            build.append(Opcode.FILL, draw(st.sampled_from(("vector", "load_a"))), extent, c=near, immediate=(1.0,))
        elif kind == "alu":
            target, _ = operand(draw(st.sampled_from(BUFFERS)), rows, columns)
            build.append(Opcode.ALU, "vector", extent, a=near, c=target, function=Function.RELU)
        else:
            build.append(
                Opcode.GEMM,
                "matrix",
                (rows, 1, columns, 1, 1, 3),
                a=At("a", draw(place), (3, 0, 0, 0, 0, 1), "int8"),
                b=At("b", draw(place), (0, 0, 1, 0, 0, 4), "int8"),
                c=At("acc", draw(place) // 4 * 4, (4, 0, 1, 0, 0, 0), "int32"),
                accumulate=draw(st.booleans()),
            )
    return build.build()
