"""Programs that cannot run give one clear sentence each: bounds, unwritten bytes, inputs, oversized memories."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from accel_programs import MACHINE, product
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.program.tables import Memory
from tvm_tiling.errors import SimulationError, TilingError
from tvm_tiling.hardware.vector_functions import Function

A = np.zeros((32, 24), np.int8)


def changed(program, number, **fields):
    rows = program.instructions.copy()
    for name, value in fields.items():
        rows[name][number] = value
    return dataclasses.replace(program, instructions=rows)


@pytest.mark.parametrize(
    "number, fields, sentence",
    [
        (
            1,
            {"c": 4000},
            r"instruction 1 \(LOAD, queue 'load_a', of 'product'\): operand c takes bytes 4000 to 4191 of",
        ),
        (1, {"a": -5}, "operand a takes bytes -5 to 186 of memory 'external', which has"),
        (
            2,
            {"b": 10_000},
            r"instruction 2 \(GEMM.*operand b takes bytes 10000 to 10383 of memory 'b', which has 384 by",
        ),
        (4, {"c_stride": (10**6, 1, 0, 0, 0, 0)}, r"instruction 4 \(STORE.*operand c takes bytes"),
    ],
)
def test_operands_lie_inside_their_memories(number, fields, sentence):
    with pytest.raises(SimulationError, match=sentence):
        run(changed(product(), number, **fields), {"a": A})


def test_strides_of_0_do_not_make_more_than_a_computer_holds():
    row = product().instructions[2]
    extent, stride = row["extent"].tolist(), row["a_stride"].tolist()
    extent[3], stride[3] = 2**26, 0
    with pytest.raises(SimulationError, match=r"operand a has 1.28849e[+]10 elements; expected at most 268435456"):
        run(changed(product(), 2, extent=extent, a_stride=stride), {"a": A})


def test_a_memory_may_be_read_to_its_last_byte_and_no_further():
    build = ProgramBuilder(MACHINE)
    x = build.tensor("x", "int8", (8,), role="input", operand="a")
    build.append(Opcode.LOAD, "load_a", (8,), a=At("external", x.address, (1,), "int8"), c=At("a", 0, (1,), "int8"))
    program = build.build()
    run(program, {"x": np.zeros(8, np.int8)})
    with pytest.raises(SimulationError, match="operand a takes bytes 1 to 8 of memory 'external', which has 8 bytes"):
        run(changed(program, 0, a=1), {"x": np.zeros(8, np.int8)})


def never_written(op, **options):
    """Return a program whose second instruction reads byte 5 of memory 'a', of which only bytes 0 to 4 are loaded."""
    build = ProgramBuilder(MACHINE)
    x = build.tensor("x", "int8", (8,), role="input", operand="a")
    build.append(Opcode.LOAD, "load_a", (5,), a=At("external", x.address, (1,), "int8"), c=At("a", 0, (1,), "int8"))
    build.append(op, "vector", (1, 2, 3) if op is Opcode.ALU else (2, 1, 1, 1, 1, 3), **options)
    return build.build(), {"x": np.zeros(8, np.int8)}


def test_a_read_of_what_was_never_written_names_the_byte():
    a, c = At("a", 0, (0, 3, 1), "int8"), At("out", 0, (0, 3, 1), "int8")
    program, inputs = never_written(Opcode.ALU, a=a, c=c, function=Function.RELU)
    message = (
        r"instruction 1 \(ALU RELU, queue 'vector'\): operand a reads byte 5 of memory 'a', which was never written"
    )
    with pytest.raises(SimulationError, match=message):
        run(program, inputs)
    assert run(program, inputs, check=False) == {}


def test_gaps_between_runs_need_not_be_written():
    """Runs of two bytes at a distance of four; the bytes between, and before the first, stay unwritten."""
    build = ProgramBuilder(MACHINE)
    x = build.tensor("x", "int8", (6,), role="input", operand="a")
    y = build.tensor("y", "int8", (6,), role="output", operand="out")
    near = At("a", 1, (4, 1), "int8")
    build.append(Opcode.LOAD, "load_a", (3, 2), a=At("external", x.address, (2, 1), "int8"), c=near)
    build.append(Opcode.STORE, "store", (3, 2), a=near, c=At("external", y.address, (2, 1), "int8"))
    program = build.build()
    values = np.arange(6, dtype=np.int8)
    assert run(program, {"x": values})["y"].tolist() == values.tolist()
    with pytest.raises(SimulationError, match="operand a reads byte 4 of memory 'a'"):
        run(changed(program, 1, a_stride=(3, 1, 0, 0, 0, 0)), {"x": values})


def test_far_apart_runs_are_looked_at_one_by_one():
    build = ProgramBuilder(MACHINE)
    x = build.tensor("x", "int8", (4,), role="input", operand="a")
    y = build.tensor("y", "int8", (4,), role="output", operand="out")
    far = At("a", 0, (1000,), "int8")
    build.append(Opcode.LOAD, "load_a", (4,), a=At("external", x.address, (1,), "int8"), c=far)
    build.append(Opcode.STORE, "store", (4,), a=far, c=At("external", y.address, (1,), "int8"))
    program = build.build()
    assert run(program, {"x": np.arange(4, dtype=np.int8)})["y"].tolist() == [0, 1, 2, 3]
    with pytest.raises(SimulationError, match="operand a reads byte 999 of memory 'a'"):
        run(changed(program, 1, a_stride=(999, 0, 0, 0, 0, 0)), {"x": np.zeros(4, np.int8)})


@pytest.mark.parametrize("case", ["product", "reduction"])
def test_what_is_added_to_must_be_there(case):
    build = ProgramBuilder(MACHINE)
    x = build.tensor("x", "int8", (4,), role="input", operand="a")
    row = At("external", x.address, (0, 0, 0, 0, 0, 1), "int8")
    total = At("acc", 64, (0,), "int32")
    if case == "product":
        build.append(Opcode.GEMM, "matrix", (1, 1, 1, 1, 1, 4), a=row, b=row, c=total, accumulate=True)
    else:
        flat = At("external", x.address, (1,), "int8")
        build.append(Opcode.ALU, "vector", (4,), a=flat, c=total, function=Function.ADD)
    with pytest.raises(SimulationError, match="operand c reads byte 64 of memory 'acc', which was never written"):
        run(build.build(), {"x": np.zeros(4, np.int8)})


def test_an_output_must_be_written_completely():
    program = product()
    with pytest.raises(SimulationError, match=r"output 'c': element \[24, 0\] was never written"):
        run(dataclasses.replace(program, instructions=program.instructions[:-4]), {"a": A})


@pytest.mark.parametrize(
    "inputs, sentence",
    [
        ({}, "input 'a' is missing, given: none"),
        ({"a": A, "b": A}, "input 'b' is unknown; expected a"),
        ({"a": A.T}, r"input 'a': int8\[24, 32\]; expected int8\[32, 24\]"),
        ({"a": A.astype(np.int16)}, r"input 'a': int16\[32, 24\]; expected int8\[32, 24\]"),
    ],
)
def test_inputs_are_those_of_the_program(inputs, sentence):
    with pytest.raises(SimulationError, match=sentence):
        run(product(), inputs)


def test_memories_beyond_this_computer_are_refused():
    program = product()
    memories = (Memory("external", 1 << 40), *program.memories[1:])
    assert program.memories[0].name == "external"
    with pytest.raises(SimulationError, match=r"memory 'external' has 1099511627776 bytes: the run needs \d+ bytes"):
        run(dataclasses.replace(program, memories=memories), {"a": A})


def test_the_error_is_one_that_users_catch():
    assert issubclass(SimulationError, TilingError)


def test_bfloat16_inputs_are_values_or_bits():
    build = ProgramBuilder(MACHINE)
    x = build.tensor("x", "bfloat16", (3,), role="input", operand="a")
    y = build.tensor("y", "bfloat16", (3,), role="output", operand="out")
    source = At("external", x.address, (1,), "bfloat16")
    build.append(Opcode.LOAD, "load_a", (3,), a=source, c=At("external", y.address, (1,), "bfloat16"))
    program = build.build()
    expected = [1.0, -2.5, 3.0]
    near = np.array([1.0, -2.5, 3.0 + 2**-9], np.float32)
    assert run(program, {"x": near})["y"].tolist() == expected
    assert run(program, {"x": np.array([0x3F80, 0xC020, 0x4040], np.uint16)})["y"].tolist() == expected
    with pytest.raises(SimulationError, match=r"expected bfloat16\[3\]"):
        run(program, {"x": near.astype(np.float64)})


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_corrupted_instructions_run_or_are_refused(data):
    """Whatever a field contains, there is a result or an error that users can catch."""
    rows = product(m=16).instructions.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(rows.dtype.names))
        number = data.draw(st.integers(0, len(rows) - 1))
        if rows[name].dtype.kind == "f":
            value = data.draw(st.floats(width=64))
        else:
            limits = np.iinfo(rows[name].dtype)
            near = st.integers(max(-20, int(limits.min)), 20)
            value = data.draw(st.one_of(near, st.integers(int(limits.min), int(limits.max))))
        places = rows[name][number]
        if np.ndim(places):
            rows[name][number, data.draw(st.integers(0, len(places) - 1))] = value
        else:
            rows[name][number] = value
    try:
        program = dataclasses.replace(product(m=16), instructions=rows)
        outputs = run(program, {"a": A[:16]})
    except TilingError as error:
        first, *texts = str(error).splitlines()
        assert first and len(texts) == (2 if first.startswith("hazard: ") else 0)
    else:
        assert outputs["c"].shape == (16, 16)
