"""An instruction and a vector function added as docs/design.md describes: one table row each suffices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import te

import tvm_tiling as tt
from tvm_tiling.accel.checks.hazards import check
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.instructions.row import ELEMENTS, Instruction
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.assembler import assemble
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.program.elements import narrowed, widened
from tvm_tiling.accel.program.program import Program
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.errors import ProgramError
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.vector import Vector
from tvm_tiling.hardware.vector_functions import FLOATS, Function, VectorFunction

COUNT, LANES, LATENCY, RATE = 96, 16, 5, 16
PLAIN = Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=4096, bw_a=RATE, bw_b=RATE, macs_per_cycle=256)


def scaled_sum(a, b, c, how):
    """c = a + b * immediate[0]"""
    kind, result = how.kinds
    c[...] = narrowed(widened(a, kind) + widened(b, kind) * int(how.immediate[0]), result)


def two_passes(batch, machine):
    """The vector engine processes the elements twice."""
    return 2 * -(-batch.elements // machine.vector.lanes), machine.vector.latency


@pytest.fixture
def machine():
    """A machine with the function SQUARE, of three cycles, and the instruction AXPY."""
    square = VectorFunction(len(Function), "square", 1, lambda np, x: np.square(x), cycles=3)
    axpy = Instruction(
        len(Opcode),
        "AXPY",
        {"a": ELEMENTS, "b": ELEMENTS, "c": ELEMENTS},
        scaled_sum,
        work="elements",
        unit="vector",
        cycles=two_passes,
    )
    Function.add(square)
    Opcode.add(axpy)
    yield replace(PLAIN, vector=Vector(lanes=LANES, latency=LATENCY, functions=("square", "copy")))
    Opcode.remove(axpy)
    Function.remove(square)


def toy(machine):
    """y = (x + 3 * w)^2, saturated to 16 bits, for bytes x and w."""
    build = ProgramBuilder(machine)
    places = {}
    for name, near in (("x", "a"), ("w", "b")):
        tensor = build.tensor(name, "int8", (COUNT,), role="input", operand=near)
        places[name] = At(near, 0, (1,), "int8")
        far = At("external", tensor.address, (1,), "int8")
        build.append(Opcode.LOAD, f"load_{near}", (COUNT,), a=far, c=places[name])
    y = build.tensor("y", "int16", (COUNT,), role="output", operand="out")
    sums = At("acc", 0, (1,), "int32")
    build.append(Opcode.AXPY, "vector", (COUNT,), a=places["x"], b=places["w"], c=sums, immediate=(3,))
    build.append(Opcode.ALU, "vector", (COUNT,), a=sums, c=At("out", 0, (1,), "int16"), function=Function.SQUARE)
    far = At("external", y.address, (1,), "int16")
    build.append(Opcode.STORE, "store", (COUNT,), a=At("out", 0, (1,), "int16"), c=far)
    return build.build()


def test_a_toy_instruction_is_executed_and_checked(machine):
    program = toy(machine)
    check(program)
    rng = np.random.default_rng(0)
    x, w = rng.integers(-128, 128, (2, COUNT)).astype(np.int8)
    expected = np.minimum((x.astype(np.int64) + 3 * w.astype(np.int64)) ** 2, 32767)
    assert (expected == 32767).any() and (expected < 32767).any()
    np.testing.assert_array_equal(run(program, {"x": x, "w": w})["y"], expected)
    np.testing.assert_array_equal(run(program, {"x": x, "w": w}, order=1)["y"], expected)


def test_a_toy_instruction_is_timed(machine):
    report = simulate(toy(machine))
    each, load = COUNT // LANES, COUNT // RATE
    assert report.engines["vector"].busy == (2 + 3) * each
    # The square waits for the sums, which it reads; results leave immediately.
    assert report.cycles == load + (2 * each + LATENCY) + (3 * each + LATENCY)
    assert report.energy["vector"] == pytest.approx(2 * COUNT * 0.9)
    touched = {"a": 2 * COUNT, "b": 2 * COUNT, "acc": 2 * 4 * COUNT, "out": 2 * 2 * COUNT}
    for name, count in touched.items():
        assert report.energy[name] == pytest.approx(count * 2.5)


def test_a_toy_instruction_is_saved_and_written_as_text(machine, tmp_path):
    program = toy(machine)
    program.save(tmp_path / "toy.vsim")
    assert Program.load(tmp_path / "toy.vsim") == program
    text = program.disassemble()
    assert f"vector AXPY extent={COUNT} type=int8>int32 a=a+0/1 b=b+0/1 c=acc+0/1 values=3.0,0.0" in text
    assert "vector ALU function=square" in text
    assert assemble(text) == program
    simulate(program).save_trace(tmp_path / "toy.json")
    trace = (tmp_path / "toy.json").read_text()
    assert '"name": "AXPY"' in trace and '"name": "SQUARE"' in trace


def test_without_its_row_a_program_is_refused(machine, tmp_path):
    program = toy(machine)
    program.save(tmp_path / "toy.vsim")
    row = Opcode.AXPY
    Opcode.remove(row)
    try:
        with pytest.raises(ProgramError, match="instruction 2: op = 8; expected 0 to 7"):
            Program.load(tmp_path / "toy.vsim")
    finally:
        Opcode.add(row)


def test_rows_keep_their_numbers(machine):
    for row in (replace(Opcode.AXPY, number=3, name="other"), replace(Opcode.AXPY, number=len(Opcode))):
        with pytest.raises(ValueError, match="expected number 9 and a new name"):
            Opcode.add(row)
    with pytest.raises(ValueError, match="is not the last one"):
        Opcode.remove(Opcode.GEMM)
    with pytest.raises(AttributeError, match="no row 'DOT'"):
        _ = Opcode.DOT


def test_a_schedule_asks_for_a_toy_function_by_its_name():
    """A function of one float implements TVM's intrinsic of that name."""
    cosine = VectorFunction(len(Function), "cos", 1, lambda np, x: np.cos(x), types=(FLOATS,))
    x = te.placeholder((COUNT,), "float32", name="x")
    source = te.create_prim_func([x, te.compute((COUNT,), lambda i: te.cos(x[i]), name="y")])
    Function.add(cosine)
    try:
        machine = replace(PLAIN, vector=Vector(lanes=LANES, latency=LATENCY))
        assert "cos" in machine.vector.functions  # a machine that names no functions has all
        program = record(tt.tiling_schedule(source, target=machine).mod, machine)
        values = np.linspace(-9, 9, COUNT, dtype=np.float32)
        (name,) = (tensor.name for tensor in program.of_role("input"))
        (result,) = run(program, {name: values}).values()
        np.testing.assert_array_equal(result, np.cos(values.astype(np.float64)).astype(np.float32))
    finally:
        Function.remove(cosine)
