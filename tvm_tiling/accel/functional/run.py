"""Functional simulation of a program: instructions execute in NumPy with results exact to the byte.

Memories are arrays of bytes, operands are strided views of them. An instruction reads all its operands before it
writes. For a program without hazards, any order that queues and tokens allow gives the same result (hazards.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import psutil

from ...errors import SimulationError
from ..checks.bounds import check_bounds
from ..checks.hazards import check as check_program
from ..checks.tokens import legal_order
from ..checks.written import WrittenBytes, WrittenSteps
from ..program.disassembler import instruction_name
from ..program.program import Program
from .execute import Steps
from .tensor_values import place_tensors, read_outputs

_CHUNK = 4096  # instructions whose views are created at a time


def run(
    program: Program, inputs: Mapping[str, Any], *, order: int | None = None, check: bool = True
) -> dict[str, np.ndarray]:
    """Return the outputs of a program by name, given its inputs by name.

    Arrays have the shapes and types of the tensors; a bfloat16 input may be float32, which is rounded, or its uint16
    bits, and a bfloat16 output is returned as float32. `order` seeds a random order that queues and tokens allow; by
    default program order is used if it is legal. Refused are programs with hazards, programs that need more memory than
    their machine has, and reads of bytes that were never written; `check=False` skips these checks. SimulationError
    names the instruction, its operand and what is wrong; HardwareError names the memory that is too small.
    """
    if check:
        check_program(program)
    return execute(program, inputs, order=order, check_written=check)


def execute(
    program: Program, inputs: Mapping[str, Any], *, order: int | None = None, check_written: bool = True
) -> dict[str, np.ndarray]:
    """Run like :func:`run` a program that has been checked or whose tokens the builder set. `check_written=False` skips
    the check for reads of unwritten bytes, for programs that have run before."""
    check_bounds(program)
    _check_room(program)
    numbers = legal_order(program, order)
    instructions = program.instructions[numbers]
    data = [np.zeros(memory.bytes, np.uint8) for memory in program.memories]
    written = WrittenBytes(program) if check_written else None
    place_tensors(program, inputs, data, written)
    marks = None if written is None else WrittenSteps(program, numbers, instructions, written)
    steps = Steps(data, program.hardware)
    for start in range(0, len(numbers), _CHUNK):
        steps.prepare(instructions[start : start + _CHUNK])
        with np.errstate(all="ignore"):  # the floats of the machine overflow silently
            for place in range(start, min(start + _CHUNK, len(numbers))):
                if marks is not None:
                    marks.before(place)
                try:
                    steps.execute(place - start)
                except SimulationError as error:
                    raise SimulationError(f"{instruction_name(program, int(numbers[place]))}: {error}") from None
                if marks is not None:
                    marks.after(place)
    return read_outputs(program, data, written)


def _check_room(program: Program) -> None:
    """Raise SimulationError if the memories and their marks exceed the memory of this computer."""
    needed, there = 2 * sum(memory.bytes for memory in program.memories), psutil.virtual_memory().total
    if needed > there:
        largest = max(program.memories, key=lambda memory: memory.bytes)
        raise SimulationError(
            f"memory {largest.name!r} has {largest.bytes} bytes: the run needs {needed} bytes, but this "
            f"computer has {there}"
        )
