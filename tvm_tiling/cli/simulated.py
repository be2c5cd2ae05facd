"""What `simulate` and `sweep` work on: a program's file, or an operator as text, which is recorded for a machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..accel.program import Program
from ..errors import ProgramError
from ..hardware import Hardware
from .operator_text import OPERATORS, parse_operator

MACHINE = "neartile"  # for operators, where none is named


@dataclass(frozen=True)
class Subject:
    """`program` for a machine, the same for every machine where it comes from a file; `hardware` is where it runs."""

    name: str
    hardware: Hardware
    program: Program | Callable[[Hardware], Program]

    def on_its_machine(self) -> Program:
        """The program for `hardware`."""
        return self.program if isinstance(self.program, Program) else self.program(self.hardware)


def subject_of(words: Sequence[str], hardware: str) -> Subject:
    """A file that Program.save wrote, or else an operator such as "gemm 64 64 64".

    `hardware` is a preset or a TOML file; empty is the machine that the program was made for, for operators the preset
    neartile. ProgramError, or OperatorTextError with word and place, for what is neither.
    """
    name = " ".join(words)
    if Path(name).is_file():
        program = Program.load(name)
        return Subject(name, Hardware.load(hardware) if hardware else program.hardware, program)
    if not words or name.split()[0] not in OPERATORS:
        raise ProgramError(
            f"{name!r} is no file and no operator; accepted: a program that Program.save wrote, or an operator that "
            f"begins with one of {', '.join(OPERATORS)}"
        )
    workload = parse_operator(name)

    def record(machine: Hardware) -> Program:
        from ..accel.workload_program import workload_program  # brings TVM

        return workload_program(workload, machine)

    return Subject(name, Hardware.load(hardware or MACHINE), record)
