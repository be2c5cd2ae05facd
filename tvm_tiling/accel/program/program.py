"""Programs of the simulated accelerator: tables and instructions only. They do not need TVM.

A program is made by :class:`.builder.ProgramBuilder`, by assembling text, or by loading a file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from .disassembler import disassemble
from .file import load, save
from .tables import Memory, ProgramTables, Region, Tensor

__all__ = ["Memory", "Program", "Region", "Tensor"]


@dataclass(frozen=True, eq=False)
class Program(ProgramTables):
    """Instructions for a machine.

    `memories`, `queues`, `tensors` and `regions` are its tables: the memories that it uses, the names of its queues,
    its inputs, outputs, constants and scratch tensors, and the operators that its instructions come from.
    `instructions` is an array of INSTRUCTION whose queue, memory and region numbers index the tables here; `constants`
    maps the name of every constant tensor to its array, which has the shape of the tensor and the type that STORAGE
    names. `hardware` is the machine that the program was made for; it can be timed on others. Raises ProgramError if
    the program is invalid.
    """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to the file `path`, atomically. Raises OSError if it cannot be written."""
        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Program:
        """Load the program in the file `path`. It is pure data: nothing in the file is executed. Raises ProgramError if
        it is not a valid program.
        """
        return load(cls, path)

    def disassemble(self) -> str:
        """Return the program as text that :func:`.assembler.assemble` turns back into an equal program."""
        return disassemble(self)
