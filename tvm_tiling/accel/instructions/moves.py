"""NOP, LOAD, STORE and FILL: tokens, strided copies with a border, constants.

    NOP           nothing but its tokens
    LOAD, STORE   c[d0, d1, d2, d3] = a[d0, d1, d2, d3]; a border of `pad` = (before d1, after d1, before d2, after d2)
                  in c gets the value immediate[0]; extents are those of a, c is larger by its border
    FILL          c[d0, d1, d2, d3] = immediate[0]

A copy keeps its queue for ceil(bytes / rate), the slower of its two memories giving the rate; the result is there the
latency of both later. Bytes of the border are not moved. A memory may move whole rows, and charge the pages that a copy
enters. Between two storage levels the inner one's rate counts, which is that of its link to the outer one; what several
instances get in one transfer is read once. A fill moves its result; on the queue of the vector engine it takes that
one's lanes.
"""

from __future__ import annotations

import numpy as np

from ...hardware.machine import Machine
from ..program.elements import narrowed, widened
from ..program.isa import Operand
from .row import ELEMENTS, Batch, Cycles, How, Instruction, ceil_quotient, instances, nothing


def copy(a: np.ndarray, b: np.ndarray, c: np.ndarray, how: How) -> None:
    """c = a, inside a border where there is one. All of `a` is read before anything is written."""
    kind, result = how.kinds
    values = a if kind == result else narrowed(widened(a, kind), result)
    if how.pad is not None:
        if values is a:
            values = a.copy()
        fill(a, b, c, how)
        top, bottom, left, right = how.pad
        c = c[:, top : c.shape[1] - bottom, left : c.shape[2] - right]
    c[...] = values


def fill(a: np.ndarray, b: np.ndarray, c: np.ndarray, how: How) -> None:
    """Every element of c = immediate[0], as an element of its type."""
    c[...] = narrowed(np.float64(how.immediate[0]).reshape(()), how.kinds[1])


def copy_cycles(batch: Batch, machine: Machine) -> Cycles:
    inner = _inner(machine, batch)
    ends = [
        (name, moved)
        for name, moved in ((batch.source, batch.read), (batch.target, batch.bytes))
        if name and inner in (name, "")
    ]
    busy = np.zeros(len(batch.number), dtype=np.int64)
    for name, moved in ends:
        rate = _rate(machine, name, batch.operand)
        if rate is not None:
            memory = machine.memory(name)
            cycles = ceil_quotient(moved if memory.row_bytes == 1 else _in_rows(batch, name, memory.row_bytes), rate)
            if memory.page_bytes is not None:
                cycles += np.ceil(_pages(batch, name, memory.page_bytes) * memory.page_cycles).astype(np.int64)
            busy = np.maximum(busy, cycles)
    return busy, sum(machine.memory(name).latency for name, _ in ends)


def _runs(batch: Batch, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How each transfer walks one of its ends: bytes of a run of its innermost loop that goes round more than once, the
    number of runs, and bytes from the start of one to that of the next (of the last loop before it that goes round)."""
    operand: Operand = "a" if batch.source == name else "c"
    size = batch.element if operand == "a" else batch.result
    extent = batch.column("extent").astype(np.int64)[:, : len(ELEMENTS)]
    stride = np.abs(batch.column(f"{operand}_stride").astype(np.int64)[:, : len(ELEMENTS)])
    run = np.ones(len(batch.number), dtype=np.int64)
    apart = np.ones(len(batch.number), dtype=np.int64)
    inner, outer = (np.zeros(len(batch.number), dtype=bool) for _ in range(2))
    for loop in reversed(ELEMENTS):
        turns = extent[:, loop] > 1
        first, second = turns & ~inner & (stride[:, loop] == 1), turns & ~outer & (inner | (stride[:, loop] != 1))
        run[first] = extent[first, loop]
        apart[second] = stride[second, loop]
        inner |= turns
        outer |= second
    return run * size, batch.elements // run, np.where(outer, apart, run) * size


def _in_rows(batch: Batch, name: str, row_bytes: int) -> np.ndarray:
    """Bytes of each transfer, its runs rounded up to whole rows of a memory."""
    run, runs, _ = _runs(batch, name)
    moved: np.ndarray = runs * -(-run // row_bytes) * row_bytes
    return moved


def _pages(batch: Batch, name: str, page_bytes: int) -> np.ndarray:
    """Pages that each transfer enters, on the average of all addresses: a run its share of one."""
    run, runs, apart = _runs(batch, name)
    entered: np.ndarray = runs * np.maximum(run / page_bytes, np.minimum(1.0, apart / page_bytes))
    return entered


def fill_cycles(batch: Batch, machine: Machine) -> Cycles:
    if batch.queue != machine.queue_of("vector") or machine.vector_is_tail:
        return copy_cycles(batch, machine)
    unit = machine.vector
    return np.maximum(-(-batch.elements // unit.lanes), unit.interval), unit.latency


def _inner(machine: Machine, batch: Batch) -> str:
    """The memory of the inner one of two storage levels that a transfer is between; "" where it is between others."""
    names = [level.name for level in machine.hardware.levels]
    places = [(end.rpartition(".")[0], end) for end in (batch.source, batch.target)]
    if not all(level in names for level, _ in places):
        return ""
    return max(places, key=lambda place: names.index(place[0]))[1]


def _rate(machine: Machine, name: str, operand: str) -> float | None:
    """Bytes per cycle of a transfer of an operand at one of its ends, None without limit."""
    if name in ("external", "internal"):
        return machine.rate(name, operand)
    rate = machine.memory(name).bytes_per_cycle
    return None if rate is None else rate * instances(machine, name)


_COPY: dict[Operand, tuple[int, ...]] = {"a": ELEMENTS, "c": ELEMENTS}

NOP = Instruction(0, "NOP", {}, nothing)
LOAD = Instruction(1, "LOAD", _COPY, copy, work="bytes", cycles=copy_cycles, border=True, inward=True)
STORE = Instruction(2, "STORE", _COPY, copy, work="bytes", cycles=copy_cycles, border=True)
FILL = Instruction(3, "FILL", {"c": ELEMENTS}, fill, work="bytes", cycles=fill_cycles)
