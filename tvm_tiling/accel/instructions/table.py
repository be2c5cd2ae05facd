"""The instruction table, and its properties looked up for all instructions of a program at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...hardware.numbered import Table
from ...hardware.vector_functions import Function
from ..program.isa import LOOPS, OPERANDS, Flag, Operand
from .fold import WCONV
from .moves import FILL, LOAD, NOP, STORE
from .products import COLMV, GEMM
from .row import Instruction
from .vector import ALU

Opcode: Table[Instruction] = Table((NOP, LOAD, STORE, FILL, GEMM, WCONV, COLMV, ALU))
"""Every instruction, by number and by name."""


def marked(instructions: np.ndarray, rows: Sequence[bool]) -> np.ndarray:
    """Return whether the row of each instruction of an INSTRUCTION array is marked; `rows` holds one mark per row."""
    marks: np.ndarray = np.array(rows)[instructions["op"]]
    return marks


def multiplies(instructions: np.ndarray) -> np.ndarray:
    """Return, for each instruction, whether it accumulates products."""
    return marked(instructions, [row.work == "sums" for row in Opcode])


@dataclass(frozen=True)
class Uses:
    """Which operands each instruction reads (a, b, c) and whether it writes c: boolean arrays, one entry per
    instruction."""

    reads_a: np.ndarray
    reads_b: np.ndarray
    reads_c: np.ndarray
    writes_c: np.ndarray

    def of(self, operand: Operand) -> np.ndarray:
        """Return which instructions touch the operand at all."""
        return {"a": self.reads_a, "b": self.reads_b, "c": self.writes_c}[operand]


def uses(instructions: np.ndarray) -> Uses:
    """Return what each instruction of an INSTRUCTION array reads and writes. A vector function that reduces reads c and
    not b; b is also not read if the function has one operand or takes an immediate number."""
    flags = instructions["flags"]
    a, b, c = (marked(instructions, [operand in row.loops for row in Opcode]) for operand in OPERANDS)
    functions = marked(instructions, [row.takes_function for row in Opcode])
    reduces = functions & ((instructions["extent"] > 1) & (instructions["c_stride"] == 0)).any(axis=1)
    binary = np.array([function.operands == 2 for function in Function])[instructions["function"]]
    second = binary & ((flags & Flag.IMMEDIATE) == 0) & ~reduces
    adds = marked(instructions, [row.accumulates for row in Opcode]) & ((flags & Flag.ACCUMULATE) != 0)
    return Uses(reads_a=a, reads_b=b & (~functions | second), reads_c=adds | reduces, writes_c=c)


def walked(instructions: np.ndarray, operand: Operand) -> np.ndarray:
    """Return bool[instructions, LOOPS]: the loops of each instruction that the operand uses."""
    marks: np.ndarray = np.array([[loop in row.loops.get(operand, ()) for loop in range(LOOPS)] for row in Opcode])
    return marks[instructions["op"]]
