"""Hazards: conflicting accesses to the same bytes that no token orders.

Two instructions of different queues that touch a common byte, one of them writing it, must be ordered by tokens: in
every order that the tokens allow, one finishes before the other starts. In one legal order, it suffices that each
instruction knows the latest conflicting instruction of every other queue, because the earlier ones of that queue have
then finished as well. The check therefore compares the dependences of that order with the guarantees of the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import SimulationError
from ...hardware.machine import Machine
from ..instructions.table import uses
from ..program.disassembler import instruction_name, instruction_text
from ..program.isa import OPERANDS
from ..program.program import Program
from ..program.work import work
from ..timing.cost import check_capacity
from .access import footprints, spans, under
from .bounds import check_bounds
from .dependences import dependences
from .tokens import channels, done_before, legal_order


def check(program: Program) -> None:
    """Raise an error unless the program is valid: operands lie inside their memories, the memories fit the machine that
    the program was made for, and tokens leave neither a deadlock nor an unordered conflict.

    HardwareError for memories that are too large, otherwise SimulationError. These errors do not depend on data; reads
    of bytes that were never written are found when the program runs.
    """
    check_bounds(program)
    check_capacity(work(program), Machine(program.hardware))
    check_hazards(program)


def check_order(program: Program) -> None:
    """Check a program like :func:`check`, without the capacities of the machine."""
    check_bounds(program)
    check_hazards(program)


def check_hazards(program: Program) -> None:
    """Raise SimulationError if tokens leave two conflicting accesses unordered or allow a deadlock. The message names
    both instructions and the bytes; the lines after it show the text of both instructions."""
    order = legal_order(program)
    found = channels(program.instructions)
    ordered = program.instructions[order]
    before = done_before(found, order)[order]
    place = found.place[order]
    depends = dependences(ordered)
    latest = np.maximum(depends.data, depends.space)
    wrong = (latest >= 0) & (place[latest] >= before)
    if not wrong.any():
        return
    later = int(wrong.any(axis=1).argmax())
    earlier = int(latest[later][wrong[later]].max())  # the closest of the unordered ones
    one, other = sorted((int(order[earlier]), int(order[later])))
    raise SimulationError(
        f"hazard: no token orders {instruction_name(program, one)} and {instruction_name(program, other)}: "
        f"{_conflict(program, one, other)}"
        + "".join(f"\n  {number}: {instruction_text(program, number)}" for number in (one, other))
    )


@dataclass(frozen=True)
class _Access:
    """The bytes of an operand: `touched` marks bytes from `low` on."""

    memory: int
    writes: bool
    low: int
    touched: np.ndarray


def _accesses(program: Program, number: int) -> list[_Access]:
    row = program.instructions[number : number + 1]
    used = uses(row)
    found = []
    for operand in OPERANDS:
        if used.of(operand)[0]:
            low, high = (int(bound[0]) for bound in spans(row, operand))
            touched = np.zeros(high - low, dtype=bool)
            under(touched, 0, footprints(row, operand)[0][0])[...] = True
            found.append(_Access(int(row[f"{operand}_memory"][0]), operand == "c", low, touched))
    return found


def _conflict(program: Program, one: int, other: int) -> str:
    """Return the conflict of two instructions in words: what each does, and the bytes that both touch."""
    for first in _accesses(program, one):
        for second in _accesses(program, other):
            if first.memory != second.memory or not (first.writes or second.writes):
                continue
            low = max(first.low, second.low)
            high = max(low, min(first.low + len(first.touched), second.low + len(second.touched)))
            common = [access.touched[low - access.low : high - access.low] for access in (first, second)]
            both = np.flatnonzero(common[0] & common[1])
            if len(both):
                deeds = ["writes" if access.writes else "reads" for access in (first, second)]
                where = f"bytes {low + both[0]} to {low + both[-1]} of memory {program.memories[first.memory].name!r}"
                return f"the first {deeds[0]} and the second {deeds[1]} {where}"
    raise AssertionError("dependences reported a conflict that does not exist")
