"""Programs joined one after the other: the addresses of their tensors."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.program.join import Part, join
from tvm_tiling.accel.timing.simulate import Simulation
from tvm_tiling.errors import ProgramError
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.hardware.memory import Memory
from tvm_tiling.hardware.near_tile import NearTile

MACHINE = Hardware(
    name="two memories",
    near_tile=NearTile(
        buf_a=1024, buf_b=1024, acc_max=1024, macs_per_cycle=16, bandwidth={"external": 1, "internal": 16}
    ),
    memories={"external": Memory(bytes_per_cycle=1), "internal": Memory(bytes_per_cycle=16)},
)


def copied(size):
    """Copy x through the buffer of A to y, both in external memory with an unused input between them."""
    build = ProgramBuilder(MACHINE)
    build.region("copy")
    x = build.tensor("x", "int8", (size,), role="input", operand="a")
    build.tensor("other", "int8", (size,), role="input", operand="b")
    y = build.tensor("y", "int8", (size,), role="output", operand="out")
    near = At("a", 0, (1,), "int8")
    build.append(Opcode.LOAD, "load_a", (size,), a=At("external", x.address, (1,), "int8"), c=near)
    build.append(Opcode.STORE, "store", (size,), a=near, c=At("external", y.address, (1,), "int8"))
    return build.build()


def chained(**memories):
    one, two = Part(copied(160), {"y": "between"}, memories=memories), Part(copied(160), {"x": "between"})
    return join([one, Part(two.program, two.names, memories={"x": memories["y"]} if memories else {})], ["y"], {})


def test_a_tensor_may_lie_in_another_memory_than_its_program_has_it():
    values = np.arange(-80, 80, dtype=np.int8)
    inputs = {"x": values, "other": values}
    far, near = chained(), chained(y="internal")
    assert {tensor.name: tensor.memory for tensor in near.tensors} == {
        "x": "external",
        "other": "external",
        "between": "internal",
        "y": "external",
    }
    for program in (far, near):
        np.testing.assert_array_equal(run(program, inputs)["y"], values)
    # The copies in between wait for each other: 160 bytes at 1 per cycle, or at 16.
    assert Simulation(far).on().cycles == 4 * 160
    assert Simulation(near).on().cycles == 2 * 160 + 2 * 10


def test_parts_that_have_a_tensor_in_different_memories_are_refused():
    one = Part(copied(160), {"y": "between"}, memories={"y": "internal"})
    with pytest.raises(ProgramError, match="160 bytes of memory 'internal' and 160 of 'external'"):
        join([one, Part(copied(160), {"x": "between"})], ["y"], {})
