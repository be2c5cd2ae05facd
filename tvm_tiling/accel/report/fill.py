"""Occupancy of each on-chip buffer over time: bytes count from when they are written until they are last read.

A buffer is divided into PIECES pieces of what the program touches of it. A piece is occupied from the start of the
instruction that writes it to the end of the last one that reads it before it is written again; if nothing reads it,
until it is written. An instruction occupies the pieces between its first and its last byte.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...hardware.memory import OFF_CHIP
from ..checks.access import spans
from ..instructions.table import uses
from ..program.isa import OPERANDS
from ..program.program import Program
from ..timing.timing import Timing

PIECES = 64


@dataclass(frozen=True)
class Fill:
    """A buffer over time: int64 `bytes` held from each cycle in `times` to the next; `size` bytes are what the program
    touches of the buffer."""

    times: np.ndarray
    bytes: np.ndarray
    size: int


def fills(program: Program, timing: Timing) -> dict[str, Fill]:
    """Return the occupancy of each on-chip memory that the program writes."""
    touches = _Touches(program, timing)
    found = {}
    for number, memory in enumerate(program.memories):
        if memory.name not in OFF_CHIP and memory.bytes:
            fill = _fill(touches, number, memory.bytes)
            if len(fill.times):
                found[memory.name] = fill
    return found


def _fill(touches: _Touches, number: int, size: int) -> Fill:
    piece = -(-size // PIECES)
    place, start, end, fresh = touches.of(number, piece)
    # If two instructions write a piece in the same cycle (a hazard), the one that ends later counts.
    order = np.lexsort((end, fresh, start, place))
    place, start, end, fresh = place[order], start[order], end[order], fresh[order]
    # An occupancy interval begins where a piece is written afresh; data read without being written has none.
    begins = fresh.copy()
    begins[:1] = True
    begins[1:] |= place[1:] != place[:-1]
    first = np.flatnonzero(begins)
    if not len(first):
        return Fill(start, start, size)
    written = fresh[first]
    until = np.maximum.reduceat(end, first)
    # Data that an instruction overwrites in place ends at its start.
    again = np.flatnonzero(place[first[1:]] == place[first[:-1]])
    until[again] = np.minimum(until[again], start[first[again + 1]])
    since, until = start[first][written], until[written]
    bytes_ = np.minimum(piece, size - place[first][written] * piece)
    times = np.concatenate([since, until])
    steps = np.concatenate([bytes_, -bytes_])
    changes, which = np.unique(times, return_inverse=True)
    # Sums below 2^53 are exact in the float64 of bincount.
    held = np.cumsum(np.bincount(which, weights=steps, minlength=len(changes))).astype(np.int64)
    apart = np.ones(len(held), dtype=bool)
    apart[1:] = held[1:] != held[:-1]
    return Fill(changes[apart], held[apart], size)


class _Touches:
    """The bytes that the instructions of a program touch, with their cycles."""

    def __init__(self, program: Program, timing: Timing) -> None:
        self.rows, self.timing = program.instructions, timing
        self.used = uses(self.rows)
        self.spans = {operand: spans(self.rows, operand) for operand in OPERANDS}

    def of(self, number: int, piece: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return every piece of a memory that an instruction touches: its index, the cycles of the instruction, and
        whether it is written without being read."""
        timing, used = self.timing, self.used
        found = []
        for operand, ends in self.spans.items():
            here = np.flatnonzero(used.of(operand) & (self.rows[f"{operand}_memory"] == number))
            low, high = ends[0][here], ends[1][here]
            first = low // piece
            count = (high - 1) // piece - first + 1
            which = np.repeat(np.arange(len(here)), count)
            place = first[which] + np.arange(len(which)) - (np.cumsum(count) - count)[which]
            fresh = (used.writes_c & ~used.reads_c)[here] if operand == "c" else np.zeros(len(here), dtype=bool)
            found.append((place, timing.start[here][which], timing.end[here][which], fresh[which]))
        place, start, end, fresh = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return place, start, end, fresh
