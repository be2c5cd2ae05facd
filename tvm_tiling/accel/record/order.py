"""The order of loads that share a queue: that of their first use.

A schedule places a load outside the loops in which what it brings stays, so all of an operand that stays would come
before the first piece of the other one. Where both come through one queue, nothing could be multiplied until then. Each
load is put right before the first instruction that reads a byte of what it brings: no instruction between the two
touches these bytes, and loads stand in their queue in the order of their first use.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...hardware.machine import Machine
from ..checks.access import spans
from ..checks.dependences import accesses, extents_of
from ..instructions.table import Opcode
from .buffers import EXTERNAL


def loads_by_use(instructions: np.ndarray, memories: Sequence[str], machine: Machine) -> np.ndarray:
    """The instructions of a program in order, its loads of A and of B by their first use where one queue takes both: on
    a machine with storage levels those into the innermost level first, which use what those before them bring."""
    levels = [f"{level.name}." for level in reversed(machine.hardware.levels)] if machine.has_levels else [""]
    if not machine.has_levels and machine.queue_of("load_a") != machine.queue_of("load_b"):
        return instructions
    for level in levels:
        loads = _loads(instructions, memories, [f"{level}{operand}" for operand in "ab"])
        if not loads.any():
            continue
        key = 2 * np.arange(len(instructions))
        first = _first_uses(instructions, loads)
        if level and level != levels[-1]:
            overwritten = _next_writes(instructions, loads, memories.index(EXTERNAL))
            first = np.where(overwritten >= 0, np.minimum(first, overwritten), first)
        moved = loads & (first >= 0)
        key[moved] = 2 * first[moved] - 1
        instructions = instructions[np.argsort(key, kind="stable")]
    return instructions


def _loads(instructions: np.ndarray, memories: Sequence[str], targets: Sequence[str]) -> np.ndarray:
    """Whether each instruction loads to one of the targets, but what another one stores in external memory, or fills a
    border there."""
    numbers = [memories.index(name) for name in targets if name in memories]
    op, target = instructions["op"], instructions["c_memory"]
    into = np.isin(target, numbers) & np.isin(op, (int(Opcode.LOAD), int(Opcode.FILL)))
    begins, ends = spans(instructions, "a")
    low, high = spans(instructions, "c")
    stores = target == memories.index(EXTERNAL)
    order = np.argsort(low[stores], kind="stable")
    low, high = low[stores][order], np.maximum.accumulate(high[stores][order])
    before = np.searchsorted(low, ends)  # stores that begin before a load's source ends
    changed = (before > 0) & (np.append(high, 0)[before - 1] > begins) & (op == int(Opcode.LOAD))
    changed &= instructions["a_memory"] == memories.index(EXTERNAL)
    return into & ~changed


def _first_uses(instructions: np.ndarray, loads: np.ndarray) -> np.ndarray:
    """int64[instructions]: who reads first what each of the `loads` wrote; -1 for nobody, and for the others."""
    first = np.full(len(instructions), -1, dtype=np.int64)
    every = accesses(instructions)
    every = every.at(np.flatnonzero(np.isin(every.memory, np.unique(instructions["c_memory"][loads]))))
    extents, lies_in = extents_of(every, np.zeros(len(every.low), dtype=np.int64), lambda here: True)
    columns = (every.instruction, lies_in, every.low, every.form, every.reads, every.writes)
    for number, where, place, form, reads, writes in zip(*(column.tolist() for column in columns), strict=True):
        marks = extents[where].look(place, form, every.forms[form])[0].get(0)
        if marks is None:
            continue
        if reads:
            while (load := int(marks.max())) >= 0:
                if first[load] < 0:
                    first[load] = number
                marks[marks == load] = -1
        if writes and loads[number]:
            marks[...] = number
        elif writes:
            marks[...] = -1
    return first


def _next_writes(instructions: np.ndarray, loads: np.ndarray, external: int) -> np.ndarray:
    """int64[instructions]: who next overwrites what each of the `loads` reads on the chip; -1 for nobody, and for the
    others."""
    found = np.full(len(instructions), -1, dtype=np.int64)
    every = accesses(instructions)
    sources = np.setdiff1d(np.unique(instructions["a_memory"][loads]), [external])
    every = every.at(np.flatnonzero(np.isin(every.memory, sources)))
    extents, lies_in = extents_of(every, np.zeros(len(every.low), dtype=np.int64), lambda here: True)
    columns = (every.instruction, lies_in, every.low, every.form, every.reads, every.writes)
    rows = zip(*(column[::-1].tolist() for column in columns), strict=True)
    for number, where, place, form, reads, writes in rows:
        marks = extents[where].look(place, form, every.forms[form])[0].get(0)
        if marks is None:
            continue
        if writes:
            marks[...] = number
        elif reads and loads[number]:
            later = marks[marks >= 0]
            found[number] = later.min() if later.size else -1
    return found
