"""Reads of results that an earlier instruction of the same queue wrote, exact to the byte.

A queue starts its instructions in order, and a result is available only after the latency of its engine. Whether the
next instruction stalls for it depends on the machine (:mod:`tvm_tiling.accel.timing.cost`); which instruction reads
which result depends on the program alone and is computed here. Only the latest result matters, since results of a queue
become available in order.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from ..instructions.table import Opcode, multiplies
from ..program.isa import Operand
from .access import Walk
from .dependences import Accesses, Extent, accesses, extents_of

_KINDS = SAME, OTHER, SUMS = range(3)


@dataclass(frozen=True)
class OwnResults:
    """int64[instructions] each: the latest earlier instruction of the same queue whose result is read, or -1. `same`:
    of the same unit. `other`: of another unit or a transfer. `sums`: of the same unit, where multiply-accumulates are
    added to c."""

    same: np.ndarray
    other: np.ndarray
    sums: np.ndarray


def own_results(instructions: np.ndarray, walked: dict[Operand, Walk] | None = None) -> OwnResults:
    """Return the results of its own queue that each instruction of an INSTRUCTION array reads. Transfers and fills
    count as one unit, whatever memories they connect. `walked` are the access patterns, if they are already known."""
    names = list(dict.fromkeys(row.unit for row in Opcode))
    unit = np.array([names.index(row.unit) for row in Opcode])[instructions["op"]]
    latest = np.full((len(_KINDS), len(instructions)), -1, dtype=np.int64)
    every = accesses(instructions, walked)
    for queue in np.unique(every.queue):
        own = every.at(np.flatnonzero(every.queue == queue))
        extents, lies_in = extents_of(own, unit[own.instruction], functools.partial(_reads_what_it_writes, own))
        watched = np.flatnonzero(lies_in >= 0)
        if len(watched):
            _of_queue(own.at(watched), extents, lies_in[watched], unit, multiplies(instructions), latest)
    return OwnResults(*latest)


def _reads_what_it_writes(accesses: Accesses, here: np.ndarray) -> bool:
    return bool(accesses.reads[here].any() and accesses.writes[here].any())


def _of_queue(
    own: Accesses, extents: list[Extent], lies_in: np.ndarray, unit: np.ndarray, sums: np.ndarray, latest: np.ndarray
) -> None:
    """Record in `latest` which results of one queue its own accesses read. `unit` and `sums` (whether it accumulates
    products) are given for every instruction."""
    mine = unit[own.instruction]
    kind = np.where(own.reads & own.writes & sums[own.instruction], SUMS, SAME)
    writer = _of_write_before(own)
    known = writer >= 0
    kinds = np.where(unit[writer] == mine, kind, OTHER)[known]
    np.maximum.at(latest, (kinds, own.instruction[known]), writer[known])
    asks = own.reads & ~known
    # Bytes are tracked only where a read is still unresolved.
    asked = np.zeros(len(extents), dtype=bool)
    asked[lies_in[asks]] = True
    left = np.flatnonzero((own.writes | asks) & asked[lies_in])
    columns = (own.instruction, mine, lies_in, own.low, own.form, asks, own.writes, kind)
    for number, key, where, place, form, reads, writes, same in zip(
        *(column[left].tolist() for column in columns), strict=True
    ):
        writers, _ = extents[where].look(place, form, own.forms[form])
        for other, marks in writers.items():
            if reads:
                row = latest[same if other == key else OTHER]
                row[number] = max(row[number], np.maximum.reduce(marks, axis=None))
            if writes:
                marks[...] = number if other == key else -1


def _of_write_before(own: Accesses) -> np.ndarray:
    """Return, for each read of exactly the bytes that the last write before it wrote, the instruction of that write; -1
    otherwise. Such a read cannot depend on any other result, and most reads are of this kind."""
    writes = np.flatnonzero(own.writes)
    # an access that reads and writes is ordered before its write
    before = np.searchsorted(writes, np.arange(len(own.low)))
    last = writes[np.maximum(before - 1, 0)]
    same = (before > 0) & own.reads
    for column in (own.memory, own.low, own.form):
        same &= column == column[last]
    found: np.ndarray = np.where(same, own.instruction[last], -1)
    return found
