"""Which bytes of the memories have been written: reads of others are errors (page 06)."""

from __future__ import annotations

import numpy as np

from .access import Footprint, under
from .program import Program

# The span of an operand is looked through whole where it is at most this many times as long as what is touched of it.
_SPARSE = 8


class WrittenBytes:
    """A mark for every byte of every memory: 1 where it has been written.

    Looking for a 0 in a stretch of a bytearray takes C's memchr, the fastest search there is; only operands that leave
    out most of their span, or whose span has gaps that were never written, are looked at run by run.
    """

    def __init__(self, program: Program) -> None:
        self._marks = [bytearray(memory.bytes) for memory in program.memories]
        self._arrays = [np.frombuffer(marks, np.uint8) for marks in self._marks]

    def all_written(self, memory: int, low: int, high: int, form: Footprint) -> bool:
        """Whether every byte of a footprint that starts at `low` and ends before `high` has been written."""
        if not is_sparse(form) and self._marks[memory].find(0, low, high) < 0:
            return True
        return bool(form.loops) and bool(under(self._arrays[memory], low, form).all())

    def first_missing(self, memory: int, low: int, form: Footprint) -> int:
        """The least byte of a footprint that has not been written; one must be missing."""
        marks = under(self._arrays[memory], low, form)
        at = np.argwhere(marks == 0)
        return low + int((at @ (np.array(marks.strides, dtype=np.int64))).min())

    def write(self, memory: int, low: int, high: int, form: Footprint) -> None:
        """Mark every byte of a footprint."""
        if not form.loops:
            self._arrays[memory][low:high] = 1
        elif is_sparse(form) or self._marks[memory].find(0, low, high) >= 0:
            under(self._arrays[memory], low, form)[...] = 1


def is_sparse(form: Footprint) -> bool:
    """Whether a footprint leaves out most of its span."""
    span = touched = form.run
    for step, count in form.loops:
        span += step * (count - 1)
        touched *= count
    return span > _SPARSE * touched
