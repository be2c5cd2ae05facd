"""The results of a program: its instructions executed with NumPy, byte for byte as the machine would (page 06).

Memories are arrays of bytes, operands strided views of them. An instruction reads all of its operands before it writes.
Any order that queues and tokens allow gives the same result for a program without hazards (hazards.py).
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

_CHUNK = 4096  # instructions whose columns are made into views at a time


def run(
    program: Program, inputs: Mapping[str, Any], *, order: int | None = None, check: bool = True
) -> dict[str, np.ndarray]:
    """The outputs of a program by name, from its inputs by name.

    Arrays have the tensors' shapes and types; bfloat16 is taken as float32, which is rounded, or as its uint16 bits,
    and given as float32. `order` is the seed of a random order that queues and tokens allow; without it program order
    is kept if they allow it. A program with hazards, of more bytes than the memories of its machine have, or that reads
    what was never written is refused; `check=False` leaves these out. SimulationError names the instruction, its
    operand and what is wrong; HardwareError the memory that is too small.
    """
    if check:
        check_program(program)
    return execute(program, inputs, order=order, check_written=check)


def execute(
    program: Program, inputs: Mapping[str, Any], *, order: int | None = None, check_written: bool = True
) -> dict[str, np.ndarray]:
    """As :func:`run`, of a program that has been checked or that the builder gave tokens. `check_written=False` leaves
    out the search for reads of what was never written, for programs that have been run before."""
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
        with np.errstate(all="ignore"):  # the machine's floats overflow without a word
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
    """SimulationError if the memories and their marks are more than this computer has."""
    needed, there = 2 * sum(memory.bytes for memory in program.memories), psutil.virtual_memory().total
    if needed > there:
        largest = max(program.memories, key=lambda memory: memory.bytes)
        raise SimulationError(
            f"memory {largest.name!r} of {largest.bytes} bytes: {needed} bytes to run, this computer has {there}"
        )
