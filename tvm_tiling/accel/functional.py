"""The results of a program: its instructions carried out with NumPy, byte for byte as the machine would (page 06).

Memories are arrays of bytes, operands strided views of them. An instruction reads all of its operands before it writes.
Any order that queues and tokens allow gives the same result for a program without hazards (hazards.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import psutil

from ..errors import SimulationError
from .access import OPERANDS, Footprint, footprints, spans, uses
from .bounds import check_bounds
from .carry_out import Steps
from .instruction_name import instruction_name
from .program import Program
from .tensor_values import place_tensors, read_outputs
from .tokens import legal_order
from .written import WrittenBytes

_CHUNK = 4096  # instructions whose columns are turned into Python numbers at a time


def run(
    program: Program, inputs: Mapping[str, Any], *, order: int | None = None, check: bool = True
) -> dict[str, np.ndarray]:
    """The outputs of a program by name, from its inputs by name.

    Arrays have the tensors' shapes and types; bfloat16 is taken as float32, which is rounded, or as its uint16 bits,
    and given as float32. `order` is the seed of a random order that queues and tokens allow; without it program order
    is kept if they allow it. `check=False` leaves out the search for reads of what was never written, for programs
    that have been run before. SimulationError names the instruction, its operand and what is wrong.
    """
    check_bounds(program)
    numbers = legal_order(program, order)
    _check_room(program)
    data = [np.zeros(memory.bytes, np.uint8) for memory in program.memories]
    written = WrittenBytes(program) if check else None
    place_tensors(program, inputs, data, written)
    for start in range(0, len(numbers), _CHUNK):
        chunk = numbers[start : start + _CHUNK]
        steps = Steps(program.instructions[chunk], data)
        touched = None if written is None else _Touched(program, chunk, written)
        for place, number in enumerate(chunk.tolist()):
            if touched is not None:
                touched.check_reads(place)
            try:
                steps.carry_out(place)
            except SimulationError as error:
                raise SimulationError(f"{instruction_name(program, number)}: {error}") from None
            if touched is not None:
                touched.mark_writes(place)
    return read_outputs(program, data, written)


def _check_room(program: Program) -> None:
    """SimulationError if the memories and their marks are more than this computer has."""
    needed, there = 2 * sum(memory.bytes for memory in program.memories), psutil.virtual_memory().total
    if needed > there:
        largest = max(program.memories, key=lambda memory: memory.bytes)
        raise SimulationError(
            f"memory {largest.name!r} of {largest.bytes} bytes: {needed} bytes to run, this computer has {there}"
        )


class _Touched:
    """What each instruction of a chunk reads and writes, as the marks of written bytes need it."""

    def __init__(self, program: Program, chunk: np.ndarray, written: WrittenBytes) -> None:
        self._program, self._chunk, self._written = program, chunk, written
        rows = program.instructions[chunk]
        used = uses(rows)
        self._reads: list[list[tuple[str, tuple[int, int, int, Footprint]]]] = [[] for _ in range(len(rows))]
        self._writes: list[tuple[int, int, int, Footprint] | None] = [None] * len(rows)
        for operand, reads in zip(OPERANDS, (used.reads_a, used.reads_b, used.reads_c), strict=True):
            touching = np.flatnonzero(used.of(operand))
            own = rows[touching]
            low, high = (bound.tolist() for bound in spans(own, operand))
            forms, number = footprints(own, operand)
            memory, read = own[f"{operand}_memory"].tolist(), reads[touching].tolist()
            for at, place in enumerate(touching.tolist()):
                where = (memory[at], low[at], high[at], forms[number[at]])
                if read[at]:
                    self._reads[place].append((operand, where))
                if operand == "c":
                    self._writes[place] = where

    def check_reads(self, place: int) -> None:
        """SimulationError if the instruction reads a byte that was never written."""
        for operand, where in self._reads[place]:
            if not self._written.all_written(*where):
                memory, low, _, form = where
                raise SimulationError(
                    f"{instruction_name(self._program, int(self._chunk[place]))}: operand {operand} reads byte "
                    f"{self._written.first_missing(memory, low, form)} of memory "
                    f"{self._program.memories[memory].name!r}, which was never written"
                )

    def mark_writes(self, place: int) -> None:
        """Mark what the instruction has written."""
        where = self._writes[place]
        if where is not None:
            self._written.write(*where)
