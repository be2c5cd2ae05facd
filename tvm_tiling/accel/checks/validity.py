"""Range checks of instruction fields. Bounds of operands, reads of unwritten bytes and tokens are checked when a
program runs."""

from __future__ import annotations

import numpy as np

from ...errors import ProgramError
from ...hardware.vector_functions import Function
from ..instructions.table import Opcode, marked, uses
from ..program.isa import OPERANDS, ElementType, Flag, element_bytes
from .access import extents

_COUNTS = ("no", "one", "two", "three", "four", "five", "six")
MOST_SPAN = float(1 << 53)  # bytes from the first to the last byte of an operand


def check_instructions(instructions: np.ndarray, queues: int, memories: int, regions: int) -> None:
    """Raise ProgramError, naming the instruction and the field, unless all fields are valid in a program of the given
    number of queues, memories and regions."""
    _below(instructions, "op", len(Opcode))
    _below(instructions, "queue", queues)
    _below(instructions, "dtype", len(ElementType))
    _below(instructions, "result_dtype", len(ElementType))
    _below(instructions, "function", len(Function))
    _below(instructions, "region", max(regions, 1))
    _refuse(instructions, "flags", instructions["flags"] > sum(Flag), f"at most {sum(Flag)}")
    blocks = marked(instructions, [row.block for row in Opcode])
    having = ", ".join(row.name for row in Opcode if row.block)
    _refuse(instructions, "block", ~blocks & (instructions["block"] != 0), f"0 but of {having}")
    for name in ("wait", "signal"):
        tokens = instructions[name]
        _refuse(instructions, name, (tokens[:, queues:] != 0).any(axis=1), f"tokens of the {queues} queues")
        itself = np.take_along_axis(tokens, instructions["queue"].astype(np.int64)[:, None], axis=1)[:, 0] != 0
        _refuse(instructions, name, itself, "no token from a queue to itself")
    _refuse(instructions, "extent", (instructions["extent"] < 1).any(axis=1), "whole numbers of at least 1")
    for depth in sorted({row.depth for row in Opcode}):
        own = marked(instructions, [row.depth == depth for row in Opcode])
        deeper = (instructions["extent"][:, depth:] != 1).any(axis=1)
        _refuse(instructions, "extent", own & deeper, f"{_COUNTS[depth]} loops")
    borders = marked(instructions, [row.border for row in Opcode])
    _refuse(instructions, "pad", (instructions["pad"] < 0).any(axis=1), "whole numbers of at least 0")
    _refuse(instructions, "pad", ~borders & instructions["pad"].any(axis=1), "no border except for a copy")
    used = uses(instructions)
    for operand in OPERANDS:
        touched = used.of(operand)
        memory = instructions[f"{operand}_memory"]
        named = touched | (memory > 0) | (instructions[operand] != 0) | instructions[f"{operand}_stride"].any(axis=1)
        _refuse(instructions, f"{operand}_memory", named & (memory >= memories), f"0 to {memories - 1}")
        _refuse(instructions, operand, touched & (np.abs(instructions[operand].astype(float)) > MOST_SPAN), "2^53")
        # In float64, which does not wrap around.
        steps = (extents(instructions, operand) - 1).astype(float) * instructions[f"{operand}_stride"]
        reach = np.abs(steps).sum(axis=1) * element_bytes(instructions, operand)
        _refuse(instructions, f"{operand}_stride", touched & (reach > MOST_SPAN), "an operand of at most 2^53 bytes")


def _below(instructions: np.ndarray, field: str, limit: int) -> None:
    _refuse(instructions, field, instructions[field] >= limit, f"0 to {limit - 1}")


def _refuse(instructions: np.ndarray, field: str, wrong: np.ndarray | np.bool_, accepted: str) -> None:
    if np.any(wrong):
        number = int(np.argmax(wrong))
        value = instructions[field][number].tolist()
        raise ProgramError(f"instruction {number}: {field} = {value}; expected {accepted}")
