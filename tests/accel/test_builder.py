"""The program builder: tables, addresses, engines and their queues, and refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from accel_programs import MACHINE

from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.program.isa import ElementType, Flag
from tvm_tiling.accel.program.program import Program
from tvm_tiling.accel.program.tables import STORAGE, Memory, Tensor
from tvm_tiling.errors import HardwareError, ProgramError
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.vector_functions import Function


def test_tensors_lie_in_sequence_aligned():
    build = ProgramBuilder(MACHINE)
    assert build.tensor("x", "int8", (3, 5), role="input", operand="a").address == 0
    assert build.tensor("y", "float32", (7,), role="scratch", operand="b").address == 64
    assert build.tensor("z", "int16", (2,), role="output", operand="out", address=1000).address == 1000
    assert build.tensor("w", "bfloat16", (), role="input", operand="b").address == 1024
    assert build.tensor("v", "int32", (2,), role="scratch", operand="out", memory="internal").address == 0
    assert build.build().memories == (Memory("external", 1026), Memory("internal", 8))


def test_memories_are_as_large_as_what_reaches_into_them():
    build = ProgramBuilder(MACHINE)
    build.memory("acc", 16)
    build.append(Opcode.FILL, "matrix", (3, 4), c=At("acc", 8, (16, 1), "int32"))
    build.append(
        Opcode.LOAD,
        "load_a",
        (1, 4, 2),
        a=At("external", 0, (8, 2, 1), "int8"),
        c=At("a", 4, (0, 4, 1), "int8"),
        pad=(1, 0, 0, 2),
    )
    # acc: 8 + 4 * (2 * 16 + 3) + 4; a, with a border of one row before and two columns after: 4 + 4 * 4 + 3 + 1.
    assert build.build().memories == (Memory("acc", 152), Memory("external", 8), Memory("a", 24))


def test_engines_that_share_a_queue_need_no_tokens():
    build = ProgramBuilder(Hardware.load("vta"))
    build.append(Opcode.LOAD, "load_a", (8,), a=At("external", 0, (1,), "int8"), c=At("a", 0, (1,), "int8"))
    build.append(Opcode.LOAD, "load_b", (8,), a=At("a", 0, (1,), "int8"), c=At("b", 0, (1,), "int8"))
    build.append(Opcode.ALU, "vector", (8,), a=At("b", 0, (1,), "int8"), c=At("acc", 0, (1,), "int8"))
    program = build.build()
    assert program.queues == ("load", "compute", "store")
    assert program.instructions["queue"].tolist() == [0, 0, 1]
    assert program.instructions["wait"].sum(axis=1).tolist() == [0, 0, 1]


def test_fields_of_an_instruction():
    build = ProgramBuilder(MACHINE)
    build.region("first")
    build.append(Opcode.NOP, "store")
    build.region("second", "gemm", "{}")
    build.append(
        Opcode.ALU,
        "vector",
        (4, 2),
        a=At("acc", 0, (2, 1), "int32"),
        c=At("acc", 64, (2, 1), "int8"),
        function=Function.MAX,
        immediate=(3,),
    )
    nop, alu = build.build().instructions
    assert (nop["op"], nop["region"], alu["region"]) == (Opcode.NOP, 0, 1)
    assert nop["extent"].tolist() == [1] * 6
    assert (alu["function"], alu["flags"], alu["immediate"].tolist()) == (Function.MAX, Flag.IMMEDIATE, [3, 0])
    assert (alu["dtype"], alu["result_dtype"]) == (ElementType.INT32, ElementType.INT8)


def test_constants_keep_their_bits():
    build = ProgramBuilder(MACHINE)
    bits = np.array([[0x3F80, 0xFFC1]], dtype=np.uint16)
    build.constant("w", bits, operand="b", dtype="bfloat16")
    build.constant("s", np.asfortranarray(np.arange(6, dtype=np.int8).reshape(2, 3)), operand="b")
    program = build.build()
    assert program.tensor("w").dtype == "bfloat16" and program.tensor("s").shape == (2, 3)
    np.testing.assert_array_equal(program.constants["w"], bits)
    assert program.constants["s"].tobytes() == bytes(range(6))


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda b: b.append(Opcode.NOP, "matrx"), "unknown engine 'matrx'; did you mean 'matrix'? expected load_a"),
        (lambda b: b.append(Opcode.NOP, "matrix", (1,) * 7), "instruction: 7 loops; expected at most 6"),
        (lambda b: b.append(Opcode.FILL, "matrix", c=At("acc", 0, (), "int9")), "element type 'int9'; did you mean 'i"),
        (lambda b: b.tensor("t", "int9", (1,), role="input", operand="a"), "element type 'int9'; did you mean 'int8'?"),
        (lambda b: b.constant("t", np.zeros(2), operand="b"), "element type 'float64'; did you mean 'float"),
        (
            lambda b: b.constant("t", np.zeros(2, "i4"), operand="b", dtype="int8"),
            "the values are int32; expected int8 for",
        ),
        (lambda b: [b.tensor("t", "int8", (1,), role="input", operand="a") for _ in "ab"], "'t' already exists"),
    ],
)
def test_what_cannot_be_written_is_refused(make, part):
    with pytest.raises(ProgramError) as caught:
        make(ProgramBuilder(MACHINE))
    assert part in str(caught.value) and "\n" not in str(caught.value)


def test_machines_and_queues_that_cannot_be():
    with pytest.raises(HardwareError, match="icelake-server-2c is not an accelerator"):
        ProgramBuilder(Hardware.load("icelake-server-2c"))
    for queues in ((), tuple("abcdefghi")):
        with pytest.raises(ProgramError, match=f"program: {len(queues)} queues; expected 1 to 8"):
            ProgramBuilder(MACHINE, queues=queues)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"tensors": (Tensor("t", "int8", (0,), "a", 0, "input", "a"),)}, "tensor 't': shape (0,); expected whole"),
        ({"tensors": (Tensor("t", "int8", (2,), "b", 0, "input", "a"),)}, "tensor 't': memory = 'b'"),
        (
            {"tensors": (Tensor("t", "int8", (2,), "a", 3, "input", "a"),)},
            "2 bytes at address 3 exceed memory 'a', which has 4",
        ),
        ({"tensors": (Tensor("t", "int8", (2,), "a", 0, "constant", "a"),)}, "'t' is a constant tensor without values"),
        ({"constants": {"t": np.zeros(2, "i1")}}, "'t' is a value without a constant tensor"),
        ({"instructions": np.zeros(2)}, "the instructions are float64; expected an array of INSTRUCTION"),
        ({"memories": (Memory("a", -1),)}, "memory 'a': -1 bytes; expected 0 to"),
        ({"queues": ("q", "q")}, "queue 'q'; expected non-empty, printable, unique names"),
    ],
)
def test_tables_that_cannot_be(change, part):
    build = ProgramBuilder(MACHINE, queues=("q",))
    build.memory("a", 4)
    program = build.build()
    with pytest.raises(ProgramError) as caught:
        dataclasses.replace(program, **change)
    assert part in str(caught.value)


def test_a_constant_of_another_shape_is_refused():
    build = ProgramBuilder(MACHINE)
    build.constant("w", np.zeros((2, 3), np.int8), operand="b")
    with pytest.raises(ProgramError, match=r"constant 'w': int8\[3, 2\]; expected int8\[2, 3\]"):
        dataclasses.replace(build.build(), constants={"w": np.zeros((3, 2), np.int8)})
    assert isinstance(build.build(), Program) and set(STORAGE) == {kind.name.lower() for kind in ElementType}
