"""Programs of the simulated accelerator: tables and instructions, nothing else. They need no TVM.

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

    `instructions` is an array of INSTRUCTION whose queue, memory and region numbers index the tables here; `constants`
    maps the name of every constant tensor to its array, of the tensor's shape and of the type that STORAGE names.
    `hardware` is the machine it was made for; it may be timed on others. ProgramError says what is not possible.
    """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to one file, whole or not at all."""
        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Program:
        """A saved program. It is data: nothing in the file is executed. ProgramError says what is wrong with it."""
        return load(cls, path)

    def disassemble(self) -> str:
        """The program as text that :func:`.assembler.assemble` reads back as an equal program."""
        return disassemble(self)
