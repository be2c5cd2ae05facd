"""NOP, LOAD, STORE and FILL: tokens, strided copies with a border, constants.

    NOP           nothing but its tokens
    LOAD, STORE   c[d0, d1, d2, d3] = a[d0, d1, d2, d3]; a border of `pad` = (before d1, after d1, before d2, after d2)
                  in c gets the value immediate[0]; extents are those of a, c is larger by its border
    FILL          c[d0, d1, d2, d3] = immediate[0]

A copy occupies its queue for ceil(bytes / rate) cycles at the rate of the slower memory; its result is available after
the latencies of both memories. Bytes of the border are not moved. A memory may transfer whole rows and charge for the
pages that a copy enters. Between two storage levels, the rate is that of the inner level, which describes its link to
the outer one; data multicast to several instances is read once. A fill moves its result; on the queue of the vector
engine it runs at the rate of its lanes.
"""

from __future__ import annotations

import numpy as np

from ...hardware.machine import Machine
from ..program.elements import narrowed, widened
from ..program.isa import Operand
from .row import ELEMENTS, Batch, Cycles, How, Instruction, ceil_quotient, instances, nothing


def copy(a: np.ndarray, b: np.ndarray, c: np.ndarray, how: How) -> None:
    """Copy a to c, inside a border if there is one. All of `a` is read before anything is written."""
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
    """Set every element of c to immediate[0], converted to its type."""
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
    """Return how each transfer accesses one of its ends: the bytes of a run of its innermost loop with more than one
    iteration, the number of runs, and the bytes between the starts of two runs (in the next such loop)."""
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
    """Return the bytes of each transfer, with its runs rounded up to whole rows of a memory."""
    run, runs, _ = _runs(batch, name)
    moved: np.ndarray = runs * -(-run // row_bytes) * row_bytes
    return moved


def _pages(batch: Batch, name: str, page_bytes: int) -> np.ndarray:
    """Return the expected number of pages that each transfer enters, averaged over all addresses: each run counts its
    share of a page."""
    run, runs, apart = _runs(batch, name)
    entered: np.ndarray = runs * np.maximum(run / page_bytes, np.minimum(1.0, apart / page_bytes))
    return entered


def fill_cycles(batch: Batch, machine: Machine) -> Cycles:
    if batch.queue != machine.queue_of("vector") or machine.vector_is_tail:
        return copy_cycles(batch, machine)
    unit = machine.vector
    return np.maximum(-(-batch.elements // unit.lanes), unit.interval), unit.latency


def _inner(machine: Machine, batch: Batch) -> str:
    """Return the memory of the inner of the two storage levels that a transfer connects, or "" if it does not connect
    two levels."""
    names = [level.name for level in machine.hardware.levels]
    places = [(end.rpartition(".")[0], end) for end in (batch.source, batch.target)]
    if not all(level in names for level, _ in places):
        return ""
    return max(places, key=lambda place: names.index(place[0]))[1]


def _rate(machine: Machine, name: str, operand: str) -> float | None:
    """Return the bytes per cycle of a transfer of an operand at one of its ends, or None without a limit."""
    if name in ("external", "internal"):
        return machine.rate(name, operand)
    rate = machine.memory(name).bytes_per_cycle
    return None if rate is None else rate * instances(machine, name)


_COPY: dict[Operand, tuple[int, ...]] = {"a": ELEMENTS, "c": ELEMENTS}

NOP = Instruction(0, "NOP", {}, nothing)
LOAD = Instruction(1, "LOAD", _COPY, copy, work="bytes", cycles=copy_cycles, border=True, inward=True)
STORE = Instruction(2, "STORE", _COPY, copy, work="bytes", cycles=copy_cycles, border=True)
FILL = Instruction(3, "FILL", {"c": ELEMENTS}, fill, work="bytes", cycles=fill_cycles)
