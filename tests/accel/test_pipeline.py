"""Instructions that read results of their own queue: cycles calculated by hand, and dependences compared with a
byte-by-byte analysis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from random_programs import programs

from tvm_tiling.accel.checks.access import footprints, spans, under
from tvm_tiling.accel.checks.own_results import own_results
from tvm_tiling.accel.instructions.table import Opcode, multiplies, uses
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.program.isa import OPERANDS
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.memory import Memory
from tvm_tiling.hardware.queues import Queues
from tvm_tiling.hardware.vector import Vector
from tvm_tiling.hardware.vector_functions import Function

PLAIN = Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=4096, bw_a=16, bw_b=16, macs_per_cycle=256)
VECTOR = Vector(lanes=16, latency=4)


def with_vector(**fields):
    return replace(PLAIN, vector=replace(VECTOR, **fields))


def place(memory, address=0, dtype="int32"):
    return At(memory, address, (1,), dtype)


def adds(hardware, count, step=0):
    """Return `count` one-cycle instructions that add to 16 elements, each `step` bytes after the previous one."""
    build = ProgramBuilder(hardware)
    for number in range(count):
        here = place("acc", number * step)
        build.append(Opcode.ALU, "vector", (16,), a=here, c=here, function=Function.ADD, immediate=(1.0,))
    return build.build()


def test_100_adds_that_depend_on_each_other_take_their_latency_each():
    report = simulate(adds(with_vector(), 100))
    assert report.cycles == 100 * (1 + 4)
    assert report.stalls["vector"]["latency"] == 99 * 4
    assert simulate(adds(with_vector(forwards=True), 100)).cycles == 100 * 1 + 4
    assert simulate(adds(with_vector(), 32, step=64)).cycles == 32 * 1 + 4  # none reads another one's result


@pytest.mark.parametrize(("interval", "cycles"), [(1, 14), (3, 30 + 4), (10, 100 + 4)])
def test_instructions_begin_an_issue_interval_apart(interval, cycles):
    assert simulate(adds(with_vector(interval=interval), 10, step=64)).cycles == cycles


@pytest.mark.parametrize(("size", "cycles"), [(64, 8), (160, 20)])
def test_40_transfers_that_depend_on_each_other_take_the_memorys_latency_each(size, cycles):
    machine = replace(PLAIN, memories={"external": Memory(bytes_per_cycle=8, latency=64)})
    machine = replace(machine, near_tile=replace(machine.near_tile, bw_a=8.0))
    build = ProgramBuilder(machine)
    for number in range(40):
        ends = (place("external", 0, "int8"), place("a", 0, "int8"))
        source, target = ends if number % 2 == 0 else ends[::-1]
        build.append(Opcode.LOAD, "load_a", (size,), a=source, c=target)
    report = simulate(build.build())
    assert report.cycles == 40 * (cycles + 64)
    assert report.lower_bound == 40 * cycles and report.upper_bound == report.cycles


def product(build, sums="acc", accumulate=False, left="a"):
    build.append(
        Opcode.GEMM, "matrix", (8, 1, 8, 1, 1, 64),
        a=At(left, 0, (64, 0, 0, 0, 0, 1), "int8"), b=At("b", 0, (0, 0, 64, 0, 0, 1), "int8"),
        c=At(sums, 0, (8, 0, 1), "int32"), accumulate=accumulate,
    )  # fmt: skip


MATRIX = replace(with_vector(), near_tile=replace(PLAIN.near_tile, fill=2, drain=7))
BLOCKS = 2 + 8 * 8 * 64 // 256


def test_sums_that_the_engine_holds_are_added_after_its_pipeline_and_others_wait():
    for sums, each in (("acc", BLOCKS), ("out", BLOCKS + 8 * 8 // 16 + 7)):
        build = ProgramBuilder(MATRIX)
        for _ in range(5):
            product(build, sums, accumulate=True)
        last = BLOCKS + (0 if sums == "acc" else 8 * 8 // 16) + 7
        assert simulate(build.build()).cycles == 4 * each + last


def test_a_product_of_a_product_waits_for_its_drain():
    build = ProgramBuilder(MATRIX)
    product(build, sums="a")
    product(build)
    assert simulate(build.build()).cycles == 2 * (BLOCKS + 7)
    forwards = replace(MATRIX, near_tile=replace(MATRIX.near_tile, forwards=True))
    assert simulate(build.build(), forwards).cycles == 2 * BLOCKS + 7


@pytest.mark.parametrize("forwards", [False, True])
def test_two_engines_of_one_queue_never_forward_to_each_other(forwards):
    machine = replace(
        MATRIX,
        vector=replace(MATRIX.vector, forwards=forwards),
        near_tile=replace(MATRIX.near_tile, forwards=forwards),
        queues=Queues(of_engine={"matrix": "compute", "vector": "compute"}),
    )
    build = ProgramBuilder(machine)
    product(build)
    build.append(Opcode.ALU, "vector", (64,), a=place("acc"), c=place("acc"), function=Function.RELU)
    product(build, accumulate=True)
    # The sums are available 7 cycles after the blocks, those with relu 4 after their 4 cycles.
    assert simulate(build.build()).cycles == (BLOCKS + 7) + (4 + 4) + (BLOCKS + 7)


def test_what_lies_between_the_bytes_of_a_result_is_not_waited_for():
    build = ProgramBuilder(with_vector())
    even, odd = (At("acc", first, (2,), "int32") for first in (0, 4))
    build.append(Opcode.ALU, "vector", (16,), a=place("a"), c=even, function=Function.RELU)
    build.append(Opcode.ALU, "vector", (16,), a=odd, c=place("out"), function=Function.RELU)
    assert simulate(build.build()).cycles == 2 + 4
    build.append(Opcode.ALU, "vector", (16,), a=even, c=place("out", 64), function=Function.RELU)
    assert simulate(build.build()).cycles == 1 + 4 + 1 + 4


def walked(instructions):
    """Compute own_results by marks on every byte: (unit, instruction) of the last write."""
    used, adds = uses(instructions), multiplies(instructions)
    units = [Opcode[int(op)].unit for op in instructions["op"]]
    last = {}
    found = {name: [-1] * len(instructions) for name in ("same", "other", "sums")}
    for number in range(len(instructions)):
        row = instructions[number : number + 1]
        queue = int(row["queue"][0])
        for operand in OPERANDS:
            low, high = (int(bound[0]) for bound in spans(row, operand))
            touched = np.zeros(high - low, dtype=bool)
            under(touched, 0, footprints(row, operand)[0][0])[...] = True
            places = [(queue, int(row[f"{operand}_memory"][0]), low + int(at)) for at in np.flatnonzero(touched)]
            reads = {"a": used.reads_a, "b": used.reads_b, "c": used.reads_c}[operand][number]
            for at in places if reads else ():
                before = last.get(at, -1)
                if before < 0:
                    continue
                same = "sums" if operand == "c" and adds[number] else "same"
                name = same if units[before] == units[number] else "other"
                found[name][number] = max(found[name][number], before)
            if operand == "c" and used.writes_c[number]:
                last.update(dict.fromkeys(places, number))
    return found


@settings(max_examples=60, deadline=None)
@given(programs(most=40))
def test_results_of_the_own_queue_are_those_of_a_walk_byte_by_byte(case):
    instructions = case[0].instructions
    found = own_results(instructions)
    assert {name: getattr(found, name).tolist() for name in ("same", "other", "sums")} == walked(instructions)
