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

BUFFERS = ("a", "b")  # whose loads may share a queue


def loads_by_use(instructions: np.ndarray, memories: Sequence[str], machine: Machine) -> np.ndarray:
    """The instructions of a program in order, its loads of A and of B by their first use where one queue takes both."""
    if machine.has_levels or machine.queue_of("load_a") != machine.queue_of("load_b"):
        return instructions
    loads = _loads(instructions, memories)
    if not loads.any():
        return instructions
    key = 2 * np.arange(len(instructions))
    first = _first_uses(instructions, loads)
    moved = loads & (first >= 0)
    key[moved] = 2 * first[moved] - 1
    return instructions[np.argsort(key, kind="stable")]


def _loads(instructions: np.ndarray, memories: Sequence[str]) -> np.ndarray:
    """Whether each instruction loads to A or B what no instruction writes, or fills a border there."""
    numbers = [memories.index(name) for name in BUFFERS if name in memories]
    op, target = instructions["op"], instructions["c_memory"]
    into = np.isin(target, numbers) & np.isin(op, (int(Opcode.LOAD), int(Opcode.FILL)))
    begins, ends = spans(instructions, "a")
    low, high = spans(instructions, "c")
    stores = target == memories.index(EXTERNAL)
    order = np.argsort(low[stores], kind="stable")
    low, high = low[stores][order], np.maximum.accumulate(high[stores][order])
    before = np.searchsorted(low, ends)  # stores that begin before a load's source ends
    changed = (before > 0) & (np.append(high, 0)[before - 1] > begins) & (op == int(Opcode.LOAD))
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
