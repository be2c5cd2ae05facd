"""What each instruction reads that an instruction before it in its own queue has written: exact, byte by byte.

A queue starts its instructions in order, and their results are there only after the latency of their engine. Whether
the next one waits for them is the machine's (:mod:`tvm_tiling.accel.timing.cost`); who reads whose result is the
program's, and is told here. Only the latest result counts, since those of one queue come in order.
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
    """int64[instructions] each: the latest instruction before it in its queue whose result it reads, -1 for none.
    `same`: of its own unit. `other`: of another unit, or of a transfer. `sums`: of its own unit, where sums of products
    are added to what lies in c."""

    same: np.ndarray
    other: np.ndarray
    sums: np.ndarray


def own_results(instructions: np.ndarray, walked: dict[Operand, Walk] | None = None) -> OwnResults:
    """The results of its own queue that each instruction of an INSTRUCTION array reads. Transfers and fills are a unit
    too, whatever they are between. `walked` are its walks, where they are known already."""
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
    """Put what the accesses of one queue read of each other's results into `latest`. `unit` and `sums` (whether it sums
    products) are of every instruction."""
    mine = unit[own.instruction]
    kind = np.where(own.reads & own.writes & sums[own.instruction], SUMS, SAME)
    writer = _of_write_before(own)
    known = writer >= 0
    kinds = np.where(unit[writer] == mine, kind, OTHER)[known]
    np.maximum.at(latest, (kinds, own.instruction[known]), writer[known])
    asks = own.reads & ~known
    # Bytes are walked only where somebody still asks for them.
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
    """Of each read whose bytes are exactly those that the last write before it wrote, that write's instruction; -1 of
    all others. It cannot read any other result, and most reads are such."""
    writes = np.flatnonzero(own.writes)
    before = np.searchsorted(writes, np.arange(len(own.low)))  # an access that reads and writes comes before its write
    last = writes[np.maximum(before - 1, 0)]
    same = (before > 0) & own.reads
    for column in (own.memory, own.low, own.form):
        same &= column == column[last]
    found: np.ndarray = np.where(same, own.instruction[last], -1)
    return found
