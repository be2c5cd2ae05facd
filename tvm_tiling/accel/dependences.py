"""What each instruction of a program waits for because of its data: exact, byte by byte.

Walked in program order, every byte that several queues share remembers, per queue, the last instruction that wrote and
that read it. Only the latest instruction of a queue counts, since those of one queue come in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from .access import OPERANDS, Footprint, footprints, spans, under, uses
from .isa import QUEUES


@dataclass(frozen=True)
class Dependences:
    """int64[instructions, QUEUES]: of each instruction and each other queue the number of the latest instruction there
    that has to be done before, -1 for none. `data`: it wrote what this one reads. `space`: it read or wrote what this
    one overwrites."""

    data: np.ndarray
    space: np.ndarray


@dataclass
class _Extent:
    """Bytes [first, end) of one memory whose accesses overlap each other, kept by pieces of `piece` bytes."""

    first: int
    end: int
    piece: int
    writers: dict[int, np.ndarray] = field(default_factory=dict)  # queue -> last instruction that wrote each piece
    readers: dict[int, np.ndarray] = field(default_factory=dict)

    def pieces(self) -> int:
        return (self.end - self.first) // self.piece


def dependences(instructions: np.ndarray) -> Dependences:
    """The dependences of an INSTRUCTION array between different queues. Overlap is decided byte by byte, so two tiles
    of one matrix do not depend on each other."""
    data = np.full((len(instructions), QUEUES), -1, dtype=np.int64)
    space = data.copy()
    accesses = _accesses(instructions)
    extents, lies_in = _extents(accesses)
    watched = np.flatnonzero(lies_in >= 0)
    if not extents:
        return Dependences(data, space)
    pieces = np.array([extent.piece for extent in extents])[lies_in]
    firsts = np.array([extent.first for extent in extents])[lies_in]
    forms: dict[tuple[int, int], Footprint] = {}
    for number, queue, where, place, piece, form, reads, writes in zip(
        *(column[watched].tolist() for column in (accesses.instruction, accesses.queue, lies_in)),
        ((accesses.low - firsts) // pieces)[watched].tolist(),
        *(column[watched].tolist() for column in (pieces, accesses.form, accesses.reads, accesses.writes)),
        strict=True,
    ):
        extent = extents[where]
        here = forms.get((form, piece))
        if here is None:
            here = forms[form, piece] = _in_pieces(accesses.forms[form], piece)
        if reads:
            _latest(extent.writers, queue, place, here, data[number])
            under(extent.readers[queue], place, here)[...] = number
        if writes:
            _latest(extent.writers, queue, place, here, space[number])
            _latest(extent.readers, queue, place, here, space[number])
            under(extent.writers[queue], place, here)[...] = number
    return Dependences(data, space)


@dataclass(frozen=True)
class _Accesses:
    """All accesses of a program: arrays of equal length, in program order and within an instruction a, b, c."""

    instruction: np.ndarray
    memory: np.ndarray
    queue: np.ndarray
    low: np.ndarray
    high: np.ndarray
    reads: np.ndarray
    writes: np.ndarray
    form: np.ndarray  # numbers into `forms`
    forms: list[Footprint]


def _accesses(instructions: np.ndarray) -> _Accesses:
    used = uses(instructions)
    forms: list[Footprint] = []
    columns: dict[str, list[np.ndarray]] = {field.name: [] for field in fields(_Accesses) if field.name != "forms"}
    for operand in OPERANDS:
        chosen = np.flatnonzero(used.of(operand))
        rows = instructions[chosen]
        low, high = spans(rows, operand)
        own, number = footprints(rows, operand)
        is_c = operand == "c"
        for name, column in {
            "instruction": chosen,
            "memory": rows[f"{operand}_memory"].astype(np.int64),
            "queue": rows["queue"].astype(np.int64),
            "low": low,
            "high": high,
            "reads": used.reads_c[chosen] if is_c else np.ones(len(chosen), dtype=bool),
            "writes": np.full(len(chosen), is_c),
            "form": number + len(forms),
        }.items():
            columns[name].append(column)
        forms += own
    order = np.argsort(np.concatenate(columns["instruction"]), kind="stable")
    return _Accesses(**{name: np.concatenate(parts)[order] for name, parts in columns.items()}, forms=forms)


def _extents(accesses: _Accesses) -> tuple[list[_Extent], np.ndarray]:
    """The memories cut into extents of overlapping accesses, and of each access the number of its extent. An extent
    that is never written, or touched by one queue alone, asks for no tokens and is left out (-1)."""
    lies_in = np.full(len(accesses.low), -1, dtype=np.int64)
    steps = np.array(
        [np.gcd.reduce([form.run, *(s for s, _ in form.loops)]) for form in accesses.forms], dtype=np.int64
    )
    extents: list[_Extent] = []
    for memory in np.unique(accesses.memory):
        here = np.flatnonzero(accesses.memory == memory)
        here = here[np.argsort(accesses.low[here], kind="stable")]
        reach = np.maximum.accumulate(accesses.high[here])
        starts = np.flatnonzero(np.concatenate([[True], accesses.low[here][1:] >= reach[:-1]]))
        for start, end in zip(starts, [*starts[1:], len(here)], strict=True):
            group = here[start:end]
            queue, writes = accesses.queue[group], accesses.writes[group]
            if (queue == queue[0]).all() or not writes.any():
                continue
            first = int(accesses.low[group[0]])
            piece = int(np.gcd.reduce(np.concatenate([accesses.low[group] - first, steps[accesses.form[group]]])))
            extent = _Extent(first, int(reach[end - 1]), piece)
            for marks, touching in (
                (extent.writers, queue[writes]),
                (extent.readers, queue[accesses.reads[group]]),
            ):
                for number in np.unique(touching):
                    marks[int(number)] = np.full(extent.pieces(), -1, dtype=np.int32)
            lies_in[group] = len(extents)
            extents.append(extent)
    return extents, lies_in


def _in_pieces(form: Footprint, piece: int) -> Footprint:
    return Footprint(form.run // piece, tuple((step // piece, count) for step, count in form.loops))


def _latest(marks: dict[int, np.ndarray], queue: int, place: int, form: Footprint, found: np.ndarray) -> None:
    """Raise found[q] to the latest mark of every other queue q under the footprint."""
    for other, mark in marks.items():
        if other != queue:
            latest = under(mark, place, form).max()
            if latest > found[other]:
                found[other] = latest
