"""Disassembler and assembler: any program round-trips, and invalid text is refused with its line."""

from __future__ import annotations

import dataclasses
import math
import struct

import numpy as np
import pytest
from accel_programs import MACHINE, product
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.assembler import assemble
from tvm_tiling.accel.program.disassembler import instruction_text
from tvm_tiling.accel.program.isa import INSTRUCTION, LOOPS, QUEUES, ElementType, Flag
from tvm_tiling.accel.program.program import Program
from tvm_tiling.accel.program.tables import STORAGE, Memory, Region, Tensor
from tvm_tiling.errors import ProgramError
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.vector_functions import Function

HEAD = f".machine\n{MACHINE.to_toml()}.end\n.queues load matrix\n.memory external 4096\n.memory a 64 ; a comment\n"
BEFORE_CODE = HEAD.count("\n")


def test_a_gemm_as_text():
    text = product(m=9, n=4, k=6, slots=1).disassemble()
    head, code = text.split(".end\n")
    assert head.startswith('; 9 instructions for neartile\n.machine\nname = "neartile"\n')
    assert code == "\n".join(
        [
            ".queues load_a load_b matrix vector store",
            ".memory external 272",
            ".memory b 24",
            ".memory a 48",
            ".memory acc 128",
            '.tensor "a" int8 9,6 external 0 input a',
            '.tensor "b" int8 6,4 external 64 constant b',
            '.tensor "c" int32 9,4 external 128 output out',
            '.region "product" "gemm 9 6 4" "{\\"split_k\\": false}"',
            "0: load_b LOAD extent=6x4 a=external+64/4,1 c=b+0/4,1 signal=matrix",
            "1: load_a LOAD extent=8x6 a=external+0/6,1 c=a+0/6,1 signal=matrix",
            "2: matrix GEMM extent=8x1x4x1x1x6 type=int8>int32 a=a+0/6,0,0,0,0,1 b=b+0/0,0,1,0,0,4 c=acc+0/4,0,1 "
            "wait=load_a,load_b signal=load_a,vector",
            "3: vector ALU function=relu extent=8x4 type=int32 a=acc+0/4,1 c=acc+0/4,1 wait=matrix signal=store",
            "4: store STORE extent=8x4 type=int32 a=acc+0/4,1 c=external+128/4,1 wait=vector signal=matrix",
            "5: load_a LOAD extent=1x6 a=external+48/6,1 c=a+0/6,1 wait=matrix signal=matrix",
            "6: matrix GEMM extent=1x1x4x1x1x6 type=int8>int32 a=a+0/6,0,0,0,0,1 b=b+0/0,0,1,0,0,4 c=acc+0/4,0,1 "
            "wait=load_a,store signal=vector",
            "7: vector ALU function=relu extent=1x4 type=int32 a=acc+0/4,1 c=acc+0/4,1 wait=matrix signal=store",
            "8: store STORE extent=1x4 type=int32 a=acc+0/4,1 c=external+256/4,1 wait=vector",
            '.constant "b"',
            "/f7/AAECA/3+/wABAgP9/v8AAQID/f7/",
            "",
        ]
    )


def test_an_instruction_by_hand():
    text = HEAD + (
        '.region "x" "" ""\n.region "y" "" ""\n\n.in 1\n'
        "  load LOAD extent=2x3 type=int8 a=external+5/3,1 c=a-2/8,1 pad=1,0,2,2 values=-1.5 signal=matrix*2 ; border\n"
        "17: matrix alu function=ADD extent=4 type=int32>int8 a=a+0/1 c=a+16 immediate values=2,1 wait=load*2\n"
    )
    program = assemble(text)
    load, alu = program.instructions
    assert (load["op"], load["queue"], load["region"]) == (Opcode.LOAD, 0, 1)
    assert (load["a_memory"], load["a"], load["c_memory"], load["c"]) == (0, 5, 1, -2)
    assert load["extent"].tolist() == [2, 3, 1, 1, 1, 1] and load["a_stride"].tolist() == [3, 1, 0, 0, 0, 0]
    assert load["pad"].tolist() == [1, 0, 2, 2] and load["immediate"].tolist() == [-1.5, 0]
    assert load["signal"].tolist() == [0, 2, 0, 0, 0, 0, 0, 0]
    assert (alu["function"], alu["flags"]) == (Function.ADD, Flag.IMMEDIATE)
    assert (alu["dtype"], alu["result_dtype"]) == (ElementType.INT32, ElementType.INT8)
    assert alu["wait"].tolist() == [2, 0, 0, 0, 0, 0, 0, 0]
    assert assemble(program.disassemble()) == program
    assert instruction_text(program, 1).startswith("matrix ALU function=add immediate extent=4 type=int32>int8 a=a+0/1")


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("laod LOAD extent=1", "unknown queue 'laod'; did you mean 'load'? expected load, matrix"),
        ("load LAOD", "unknown instruction 'LAOD'; did you mean 'LOAD'?"),
        ("load", "an instruction has too few words; expected queue, instruction, fields"),
        ("load LOAD extend=1", "unknown field 'extend'; did you mean 'extent'?"),
        ("load LOAD extent=1 extent=2", "field 'extent' appears twice"),
        ("load LOAD extent=2x", "extent = ''; expected a whole number"),
        ("load LOAD extent=1.5", "extent = '1.5'; expected a whole number"),
        ("load LOAD extent=1x1x1x1x1x1x1", "extent has 7 numbers; expected at most 6"),
        ("load LOAD extent=4294967296", "extent = 4294967296; expected -2147483648 to 2147483647"),
        ("load LOAD a=extern+0", "unknown memory 'extern'; did you mean 'external'?"),
        ("load LOAD a=external", "operand 'external'; expected memory+address or memory+address/stride,stride..."),
        ("load LOAD a=a+9999999999999999999", "address = 9999999999999999999; expected -9223372036854775808 to"),
        ("load LOAD type=int9", "unknown type 'int9'; did you mean 'int8'?"),
        ("load ALU function=ad", "unknown function 'AD'; did you mean 'ADD'?"),
        ("load LOAD wait=matrx", "unknown queue 'matrx'; did you mean 'matrix'?"),
        ("load LOAD wait=matrix*70000", "wait = 70000; expected 0 to 65535"),
        ("load LOAD wait=matrix*40000,matrix*40000", "wait = 80000; expected 0 to 65535"),
        ("load LOAD values=1,2,3", "values has 3 numbers; expected at most 2"),
        ("load LOAD values=x", "values = 'x'; expected numbers, or 0x and 16 hexadecimal digits"),
        ("load LOAD values=0x12", "values = '0x12'; expected numbers, or 0x and 16"),
        (".memoria x 1", "unknown directive '.memoria'; did you mean '.memory'?"),
        (".memory x", ".memory has 1 words; expected .memory name bytes"),
        (".memory x y", "bytes = 'y'; expected a whole number"),
        ('.region "x', "unterminated string; expected a JSON string"),
        (".in 70000", ".in = 70000; expected 0 to 65535"),
        (".tensor t int9 1 a 0 input a", "unknown type 'int9'; did you mean 'int8'?"),
        (".tensor t int8 1x a 0 input a", "shape = '1x'; expected a whole number"),
        (".constant t", "unknown constant 't'; none is defined"),
        (".machine", ".machine without .end"),
    ],
)
def test_wrong_lines_are_named(line, part):
    with pytest.raises(ProgramError) as caught:
        assemble(HEAD + line)
    assert str(caught.value).startswith(f"line {BEFORE_CODE + 1}: ") and part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "line 1: the text has no machine; expected .machine, its TOML, .end"),
        (".machine\n[near_tyle]\n.end\n", "machine: unknown field 'near_tyle'; did you mean 'near_tile'?"),
        (".machine\n\nx = = 1\n.end\n", "machine:2: not TOML"),
        (HEAD + "load LOAD extent=0\n", "instruction 0: extent = [0, 1, 1, 1, 1, 1]; expected whole numbers of at le"),
        (
            HEAD + "load NOP wait=load\n",
            "instruction 0: wait = [1, 0, 0, 0, 0, 0, 0, 0]; expected no token from a queue",
        ),
        (HEAD + "load NOP pad=1\n", "instruction 0: pad = [1, 0, 0, 0]; expected no border except for a copy"),
        (HEAD + "load LOAD extent=1x1x1x1x2\n", "expected four loops"),
        (HEAD + "load LOAD extent=2147483647x2147483647 a=a+0/2147483647,2147483647\n", "an operand of at most 2^53"),
        (HEAD + ".tensor t int8 4 a 0 constant b\n.constant t\nAAAA\n", "constant 't' has 3 bytes; expected 4"),
        (HEAD + ".tensor t int8 4 a 0 constant b\n.constant t\nA*AA\n", "the values of 't' are not valid base64"),
        (HEAD + ".tensor t int8 4 a 0 constant b\n", "program: 't' is a constant tensor without values"),
        (HEAD + ".tensor t int8 4 a 61 input b\n", "tensor 't': 4 bytes at address 61 exceed memory 'a', which has 64"),
        (HEAD + '.memory "x y" 4\n', "memory 'x y'; expected names of letters, digits, underscores and dots"),
    ],
)
def test_wrong_texts_are_refused(text, part):
    with pytest.raises(ProgramError) as caught:
        assemble(text)
    assert part in str(caught.value) and "\n" not in str(caught.value)


# ---- any program -----------------------------------------------------------------------------------------------------

small, address = st.integers(0, 40), st.integers(-(1 << 40), 1 << 40)
names = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=6)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
QUEUE_NAMES, MEMORY_NAMES = ("load", "matrix", "store"), ("external", "unit.a")


@st.composite
def instructions(draw):
    op = draw(st.sampled_from(list(Opcode)))
    queue = draw(st.integers(0, 2))
    loops = LOOPS if op in (Opcode.GEMM, Opcode.WCONV, Opcode.COLMV) else 4
    copy = op in (Opcode.LOAD, Opcode.STORE)
    fill = [1] * (LOOPS - loops)

    def tokens():
        counts = [draw(st.sampled_from([0, 0, 1, 65535])) for _ in range(3)]
        counts[queue] = 0
        return (*counts, *(0,) * (QUEUES - 3))

    def strides():
        return tuple(draw(st.lists(st.integers(-(1 << 20), 1 << 20), min_size=LOOPS, max_size=LOOPS)))

    number = st.floats() | st.integers(0, (1 << 64) - 1).map(
        lambda bits: struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    )
    return (
        op,
        queue,
        draw(st.sampled_from(list(Function))),
        draw(st.integers(0, 3)),
        draw(st.sampled_from(ElementType)),
        draw(st.sampled_from(ElementType)),
        draw(st.integers(0, 1)),
        tokens(),
        tokens(),
        *(draw(st.integers(0, 1)) for _ in range(3)),
        draw(st.integers(0, 255)) if op is Opcode.WCONV else 0,
        *(draw(address) for _ in range(3)),
        (*draw(st.lists(st.integers(1, 300), min_size=loops, max_size=loops)), *fill),
        *(strides() for _ in range(3)),
        tuple(draw(small) for _ in range(4)) if copy else (0,) * 4,
        (draw(number), draw(number)),
    )


@st.composite
def programs(draw):
    tensors, constants = [], {}
    for name in draw(st.lists(names, unique=True, max_size=3)):
        dtype = draw(st.sampled_from(sorted(STORAGE)))
        shape = tuple(draw(st.lists(st.integers(1, 9), max_size=3)))
        role = draw(st.sampled_from(["input", "output", "constant", "scratch"]))
        operand = draw(st.sampled_from(["a", "b", "out"]))
        tensors.append(Tensor(name, dtype, shape, draw(st.sampled_from(MEMORY_NAMES)), draw(small), role, operand))
        if role == "constant":
            content = draw(st.binary(min_size=tensors[-1].bytes, max_size=tensors[-1].bytes))
            constants[name] = np.frombuffer(content, STORAGE[dtype]).reshape(shape)
    return Program(
        hardware=draw(st.sampled_from([MACHINE, Hardware.load("vta"), Hardware.load("dla3")])),
        memories=[Memory(name, 1 << 20) for name in MEMORY_NAMES],
        queues=QUEUE_NAMES,
        tensors=tensors,
        regions=[Region(draw(texts), draw(texts), draw(texts)) for _ in range(2)],
        instructions=np.array(draw(st.lists(instructions(), max_size=6)), dtype=INSTRUCTION),
        constants=constants,
    )


@given(programs())
@settings(max_examples=40, deadline=None)
def test_any_program_comes_back_from_its_text(program):
    assert assemble(program.disassemble()) == program


@given(programs())
@settings(max_examples=25, deadline=None)
def test_any_program_comes_back_from_its_file(tmp_path_factory, program):
    path = tmp_path_factory.mktemp("program") / "p.vsim"
    program.save(path)
    again = Program.load(path)
    assert again == program and list(again.constants) == list(program.constants)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_changed_text_is_a_program_or_refused(data):
    text = product(m=9, n=4, k=6).disassemble()
    place = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 8))
    changed = text[:place] + data.draw(st.text(max_size=4)) + text[place + length :]
    try:
        program = assemble(changed)
    except ProgramError as error:
        assert "\n" not in str(error)
    else:
        assert assemble(program.disassemble()) == program


def test_a_program_without_anything():
    empty = Program(
        hardware=MACHINE, memories=(), queues=("q",), tensors=(), regions=(), instructions=np.zeros(0, INSTRUCTION)
    )
    assert assemble(empty.disassemble()) == empty
    assert len(empty) == 0


def test_programs_differ_in_anything():
    program = product()
    assert program == dataclasses.replace(program)
    changed = program.instructions.copy()
    changed["immediate"][3, 1] = math.nan
    assert program != dataclasses.replace(program, instructions=changed)
    assert program != dataclasses.replace(program, hardware=Hardware.load("vta"))
    assert program != dataclasses.replace(program, constants={"b": program.constants["b"] + np.int8(1)})
    assert program != dataclasses.replace(program, regions=(Region("other"),))
    assert program.tensor("c").bytes == 32 * 16 * 4 and [t.name for t in program.of_role("input")] == ["a"]
    with pytest.raises(ProgramError, match="unknown memory 'ac'; did you mean 'acc'"):
        program.memory_number("ac")
