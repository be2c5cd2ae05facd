"""Hazards: accesses to the same bytes that only luck orders (page 06).

Two instructions of different queues that touch a common byte, one of them writing it, must be ordered by tokens: one is
over before the other starts in every order that the tokens allow. Walked in one legal order, each instruction has to
know of the latest instruction of every other queue that conflicts with it; those before that one in its queue are over
then as well. So the dependences of that order are compared with what tokens promise, and nothing else need be.
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
    """Raise unless operands lie inside their memories, memories inside those of the machine that the program was made
    for, and tokens leave neither a deadlock nor two accesses to the same bytes in no order. HardwareError for memories
    that are too large, else SimulationError. What no data could mend is found here; reads of bytes that were never
    written are found when the program runs."""
    check_bounds(program)
    check_capacity(work(program), Machine(program.hardware))
    check_hazards(program)


def check_order(program: Program) -> None:
    """As :func:`check`, whatever the machine."""
    check_bounds(program)
    check_hazards(program)


def check_hazards(program: Program) -> None:
    """SimulationError, naming both instructions and the bytes, if tokens leave two conflicting accesses in no order; a
    deadlock is one too. The text of both instructions stands in the lines behind."""
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
    earlier = int(latest[later][wrong[later]].max())  # the closest of those in no order with it
    one, other = sorted((int(order[earlier]), int(order[later])))
    raise SimulationError(
        f"hazard: no token orders {instruction_name(program, one)} and {instruction_name(program, other)}: "
        f"{_conflict(program, one, other)}"
        + "".join(f"\n  {number}: {instruction_text(program, number)}" for number in (one, other))
    )


@dataclass(frozen=True)
class _Access:
    """The bytes of an operand: `touched` marks those from `low` on."""

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
    """What two instructions do to which bytes that they have in common."""
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
    raise AssertionError("dependences found a conflict where there is none")
