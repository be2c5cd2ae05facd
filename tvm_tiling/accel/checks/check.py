"""All that can be told of a program without running it (page 06)."""

from __future__ import annotations

from ...hardware.machine import Machine
from ..program.program import Program
from ..program.work import work
from ..timing.cost import check_room
from .bounds import check_bounds
from .hazards import check_hazards


def check(program: Program) -> None:
    """Raise unless operands lie inside their memories, memories inside those of the machine that the program was made
    for, and tokens leave neither a deadlock nor two accesses to the same bytes in no order. HardwareError for memories
    that are too large, else SimulationError. What no data could mend is found here; reads of bytes that were never
    written are found when the program runs."""
    check_bounds(program)
    check_room(work(program), Machine(program.hardware))
    check_hazards(program)
