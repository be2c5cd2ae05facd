"""How messages name an instruction."""

from __future__ import annotations

from .isa import Function, Opcode
from .program import Program


def instruction_name(program: Program, number: int) -> str:
    """Such as "instruction 7 (GEMM, queue 'matrix', of 'conv1')"."""
    row = program.instructions[number]
    what = Opcode(int(row["op"])).name
    if what == "ALU":
        what = f"ALU {Function(int(row['function'])).name}"
    region = f", of {program.regions[row['region']].name!r}" if program.regions else ""
    return f"instruction {number} ({what}, queue {program.queues[row['queue']]!r}{region})"
