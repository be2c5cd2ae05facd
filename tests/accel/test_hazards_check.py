"""The complete check of a program before it runs, in one call."""

from __future__ import annotations

import dataclasses

import pytest
from accel_programs import product
from test_tokens import with_instructions

from tvm_tiling.accel.checks.hazards import check
from tvm_tiling.errors import HardwareError, SimulationError
from tvm_tiling.hardware import Hardware


def test_a_program_of_the_builder_is_legal():
    check(product())


def test_operands_outside_deadlocks_and_hazards_are_found():
    program = product()
    for field, value, sentence in (
        ("a", 10**6, "operand a takes bytes 1000000 to"),
        ("wait", [9, 9, 9, 9, 9, 0, 0, 0], "deadlock: queue"),
        ("wait", [0] * 8, "hazard: no token orders"),
    ):
        rows = program.instructions.copy()
        number = len(rows) - 1
        if field == "wait":
            value = [count if queue != rows["queue"][number] else 0 for queue, count in enumerate(value)]
        rows[field][number] = value
        with pytest.raises(SimulationError, match=sentence):
            check(with_instructions(program, rows))


def test_memories_are_those_of_the_machine():
    small = Hardware.neartile(buf_a=64, buf_b=4096, acc_max=4096, bw_a=16, bw_b=16, macs_per_cycle=256)
    program = dataclasses.replace(product(block=8), hardware=small)
    with pytest.raises(HardwareError, match="needs 384 bytes of memory 'a', which has 128"):
        check(program)
