"""Ordering of the loads that share a queue by their first use.

A schedule places a load outside the loops in which its data stays resident, so all resident tiles of one operand would
be loaded before the first tile of the other. If both share a queue, computation could not start until then. Each load
is therefore moved directly before the first instruction that reads a byte of its data: no instruction in between
touches these bytes, and loads appear in their queue in the order of their first use.
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
    """Return the instructions of a program with its loads of A and B ordered by first use if they share a queue. On a
    machine with storage levels, loads into the innermost level are moved first, since they use what the outer ones
    load."""
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
    """Return whether each instruction loads to one of the targets (or fills a border there), excluding data that
    another instruction stores to external memory."""
    numbers = [memories.index(name) for name in targets if name in memories]
    op, target = instructions["op"], instructions["c_memory"]
    into = np.isin(target, numbers) & np.isin(op, (int(Opcode.LOAD), int(Opcode.FILL)))
    begins, ends = spans(instructions, "a")
    low, high = spans(instructions, "c")
    stores = target == memories.index(EXTERNAL)
    order = np.argsort(low[stores], kind="stable")
    low, high = low[stores][order], np.maximum.accumulate(high[stores][order])
    before = np.searchsorted(low, ends)  # stores that begin before the load's source ends
    changed = (before > 0) & (np.append(high, 0)[before - 1] > begins) & (op == int(Opcode.LOAD))
    changed &= instructions["a_memory"] == memories.index(EXTERNAL)
    return into & ~changed


def _first_uses(instructions: np.ndarray, loads: np.ndarray) -> np.ndarray:
    """Return int64[instructions]: the first reader of what each of the `loads` wrote; -1 if there is none, and for all
    other instructions."""
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
    """Return int64[instructions]: the next instruction that overwrites what each of the `loads` reads on the chip; -1
    if there is none, and for all other instructions."""
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
