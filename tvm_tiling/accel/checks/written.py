"""Tracking of written bytes: reading any other byte is an error."""

from __future__ import annotations

import numpy as np

from ...errors import SimulationError
from ..instructions.table import uses
from ..program.disassembler import instruction_name
from ..program.isa import OPERANDS
from ..program.program import Program
from .access import Footprint, footprints, spans, under

# The whole span of an operand is searched if it is at most this many times its footprint.
_SPARSE = 8


class WrittenBytes:
    """One mark for every byte of every memory: 1 once it has been written.

    Searching a bytearray for 0 uses memchr, the fastest search available. Only operands that skip most of their span,
    or whose span has gaps that were never written, are checked run by run.
    """

    def __init__(self, program: Program) -> None:
        self._marks = [bytearray(memory.bytes) for memory in program.memories]
        self._arrays = [np.frombuffer(marks, np.uint8) for marks in self._marks]

    def all_written(self, memory: int, low: int, high: int, form: Footprint) -> bool:
        """Return whether every byte of a footprint that starts at `low` and ends before `high` has been written."""
        if not _is_sparse(form) and self._marks[memory].find(0, low, high) < 0:
            return True
        return bool(form.loops) and bool(under(self._arrays[memory], low, form).all())

    def first_missing(self, memory: int, low: int, form: Footprint) -> int:
        """Return the lowest byte of a footprint that has not been written; at least one must be missing."""
        marks = under(self._arrays[memory], low, form)
        return low + int((np.argwhere(marks == 0) @ np.array(marks.strides)).min())

    def write(self, memory: int, low: int, form: Footprint) -> None:
        """Mark every byte of a footprint that starts at `low`."""
        under(self._arrays[memory], low, form)[...] = 1


class WrittenSteps:
    """The marks, updated while instructions `numbers` of a program execute in that order.

    A written byte stays written, so a footprint at an address that was read or written before need not be checked or
    marked again; most footprints recur.
    """

    def __init__(self, program: Program, numbers: np.ndarray, instructions: np.ndarray, written: WrittenBytes) -> None:
        self._program, self._numbers, self._written = program, numbers, written
        self._reads: dict[int, list[tuple[str, int, int, int, Footprint]]] = {}
        self._writes: dict[int, tuple[int, int, Footprint]] = {}
        used = uses(instructions)
        for operand, reads in zip(OPERANDS, (used.reads_a, used.reads_b, used.reads_c), strict=True):
            low, high = spans(instructions, operand)
            forms, form = footprints(instructions, operand)
            memory = instructions[f"{operand}_memory"]
            where = np.stack([memory.astype(np.int64), low, form], axis=1)
            for at in _firsts(where, reads):
                self._reads.setdefault(at, []).append(
                    (operand, int(memory[at]), int(low[at]), int(high[at]), forms[form[at]])
                )
            if operand == "c":
                self._writes = {
                    at: (int(memory[at]), int(low[at]), forms[form[at]]) for at in _firsts(where, used.writes_c)
                }

    def before(self, place: int) -> None:
        """Raise SimulationError if the instruction at `place` reads a byte that was never written."""
        for operand, memory, low, high, form in self._reads.get(place, ()):
            if not self._written.all_written(memory, low, high, form):
                raise SimulationError(
                    f"{instruction_name(self._program, int(self._numbers[place]))}: operand {operand} reads byte "
                    f"{self._written.first_missing(memory, low, form)} of memory "
                    f"{self._program.memories[memory].name!r}, which was never written"
                )

    def after(self, place: int) -> None:
        """Mark the bytes that the instruction at `place` has written."""
        where = self._writes.get(place)
        if where is not None:
            self._written.write(*where)


def _firsts(rows: np.ndarray, chosen: np.ndarray) -> list[int]:
    """Return the indices of the chosen rows that equal no earlier chosen row."""
    numbers = np.flatnonzero(chosen)
    keys = np.ascontiguousarray(rows[numbers]).view(f"V{rows.itemsize * rows.shape[1]}").reshape(-1).tolist()
    first: dict[bytes, int] = {}
    for key, number in zip(keys, numbers.tolist(), strict=True):
        first.setdefault(key, number)
    return list(first.values())


def _is_sparse(form: Footprint) -> bool:
    """Return whether a footprint skips most of its span."""
    span = touched = form.run
    for step, count in form.loops:
        span += step * (count - 1)
        touched *= count
    return span > _SPARSE * touched
