"""Data dependences between the instructions of a program, exact to the byte.

The program is visited in program order. Every byte that several queues share records, per queue, the last instruction
that wrote it and the last one that read it. Only the latest instruction of a queue matters, since each queue is in
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

import numpy as np

from ..instructions.table import uses
from ..program.isa import OPERANDS, QUEUES, Operand
from .access import Footprint, Walk, under, walks
from .cells import touched

PIECES = 1 << 22  # processed together, 16 bytes each


@dataclass(frozen=True)
class Dependences:
    """int64[instructions, QUEUES]: for each instruction and each other queue, the latest instruction of that queue that
    must finish first, or -1. `data`: it wrote what this instruction reads. `space`: it read or wrote what this
    instruction overwrites."""

    data: np.ndarray
    space: np.ndarray


Marks = dict[int, np.ndarray]  # queue or other key -> for each piece, the last instruction that touched it


@dataclass
class Extent:
    """Bytes [first, end) of one memory whose accesses overlap, tracked in pieces of `piece` bytes from the first to the
    last of its `left` accesses. `writing` and `reading` are the queues (or other keys) that access it."""

    first: int
    end: int
    piece: int
    writing: list[int]
    reading: list[int]
    left: int
    writers: Marks = field(default_factory=dict)
    readers: Marks = field(default_factory=dict)
    seen: dict[tuple[int, int], tuple[Marks, Marks]] = field(default_factory=dict)

    @property
    def pieces(self) -> int:
        """Number of pieces."""
        return (self.end - self.first) // self.piece

    def in_pieces(self, form: Footprint) -> Footprint:
        """Return the footprint in units of pieces."""
        return Footprint(form.run // self.piece, tuple((step // self.piece, count) for step, count in form.loops))

    def look(self, place: int, number: int, form: Footprint) -> tuple[Marks, Marks]:
        """Return views of the writer and reader marks under footprint `number` at `place`. Views are cached, since
        tiles recur."""
        if not self.writers:
            pieces = self.pieces
            self.writers = {queue: np.full(pieces, -1, dtype=np.int32) for queue in self.writing}
            self.readers = {queue: np.full(pieces, -1, dtype=np.int32) for queue in self.reading}
        found = self.seen.get((place, number))
        if found is None:
            start, here = (place - self.first) // self.piece, self.in_pieces(form)
            writers, readers = (
                {queue: under(marks, start, here) for queue, marks in kind.items()}
                for kind in (self.writers, self.readers)
            )
            found = self.seen[place, number] = (writers, readers)
        self.left -= 1
        if not self.left:
            self.writers, self.readers, self.seen = {}, {}, {}
        return found


class _Latest:
    """The latest instructions of the other queues, recorded only for the instructions queried."""

    def __init__(self, count: int) -> None:
        self.table = np.full((count, QUEUES), -1, dtype=np.int64)
        self.rows: list[tuple[int, int, int]] = []  # instruction, other queue, its latest instruction

    def add(self, number: int, queue: int, marks: Marks) -> None:
        for other, view in marks.items():
            if other != queue:
                self.rows.append((number, other, int(np.maximum.reduce(view, axis=None))))

    def found(self) -> np.ndarray:
        if self.rows:
            number, other, latest = np.array(self.rows, dtype=np.int64).T
            np.maximum.at(self.table, (number, other), latest)
        return self.table


def dependences(instructions: np.ndarray) -> Dependences:
    """Return the dependences between different queues of an INSTRUCTION array. Overlap is exact to the byte, so two
    tiles of one matrix do not depend on each other."""
    data, space = _Latest(len(instructions)), _Latest(len(instructions))
    every = accesses(instructions)
    extents, lies_in = extents_of(every, every.queue, lambda here: _is_shared(every, here))
    walked = np.zeros(len(extents) + 1, bool)  # the last entry stands for accesses without an extent
    for together in _groups(extents):
        here = np.flatnonzero((lies_in >= together[0]) & (lies_in <= together[-1]))
        walked[together] = not _by_cells(every.at(here), lies_in[here], extents, together, data, space)
    watched = np.flatnonzero(walked[lies_in])
    columns = (every.instruction, every.queue, lies_in, every.low, every.form, every.reads, every.writes)
    for number, queue, where, place, form, reads, writes in zip(
        *(column[watched].tolist() for column in columns), strict=True
    ):
        writers, readers = extents[where].look(place, form, every.forms[form])
        if reads:
            data.add(number, queue, writers)
            readers[queue][...] = number
        if writes:
            space.add(number, queue, writers)
            space.add(number, queue, readers)
            writers[queue][...] = number
    return Dependences(data.found(), space.found())


def _groups(extents: list[Extent]) -> Iterator[list[int]]:
    """Yield groups of neighbouring extents, of about PIECES pieces each."""
    group, pieces = [], 0
    for number, extent in enumerate(extents):
        group.append(number)
        pieces += extent.pieces
        if pieces > PIECES:
            yield group
            group, pieces = [], 0
    if group:
        yield group


def _by_cells(
    here: Accesses, lies_in: np.ndarray, extents: list[Extent], group: list[int], data: _Latest, space: _Latest
) -> bool:
    """Resolve all accesses of a group of extents at once. Return whether that was possible."""
    first, piece = (np.array([getattr(extents[n], name) for n in group]) for name in ("first", "piece"))
    base = np.cumsum([0, *(extents[number].pieces for number in group)])
    own = lies_in - group[0]
    place = base[own] + (here.low - first[own]) // piece[own]
    cells = touched(
        place, here.form, lambda access, form: extents[lies_in[access]].in_pieces(here.forms[form]), int(base[-1])
    )
    if cells is None:
        return False
    number, queue = here.instruction[cells.access], here.queue[cells.access]
    for other in np.unique(here.queue).tolist():
        by = here.queue == other
        wrote, read = (cells.latest(by & did) for did in (here.writes, here.reads))
        for table, asks, latest in (
            (data.table, here.reads, wrote),
            (space.table, here.writes, wrote),
            (space.table, here.writes, read),
        ):
            known = np.flatnonzero((latest >= 0) & (queue != other) & asks[cells.access])
            np.maximum.at(table, (number[known], other), here.instruction[latest[known]])
    return True


@dataclass(frozen=True)
class Accesses:
    """All accesses of a program: arrays of equal length in program order, and a, b, c within an instruction."""

    instruction: np.ndarray
    memory: np.ndarray
    queue: np.ndarray
    low: np.ndarray
    high: np.ndarray
    reads: np.ndarray
    writes: np.ndarray
    form: np.ndarray  # indices into `forms`
    forms: list[Footprint]

    def at(self, places: np.ndarray) -> Accesses:
        """Return the accesses at the given positions, in that order."""
        columns = {name.name: getattr(self, name.name)[places] for name in fields(self) if name.name != "forms"}
        return Accesses(**columns, forms=self.forms)


def accesses(instructions: np.ndarray, walked: dict[Operand, Walk] | None = None) -> Accesses:
    """Return all accesses of an INSTRUCTION array. `walked` are its access patterns, if they are already known."""
    walked = walks(instructions) if walked is None else walked
    used = uses(instructions)
    forms: dict[Footprint, int] = {}
    columns: dict[str, list[np.ndarray]] = {field.name: [] for field in fields(Accesses) if field.name != "forms"}
    for operand in OPERANDS:
        chosen = np.flatnonzero(used.of(operand))
        own = walked[operand]
        numbers = np.array([forms.setdefault(form, len(forms)) for form in own.forms], dtype=np.int64)
        is_c = operand == "c"
        for name, column in {
            "instruction": chosen,
            "memory": instructions[f"{operand}_memory"][chosen].astype(np.int64),
            "queue": instructions["queue"][chosen].astype(np.int64),
            "low": own.low[chosen],
            "high": own.high[chosen],
            "reads": used.reads_c[chosen] if is_c else np.ones(len(chosen), dtype=bool),
            "writes": np.full(len(chosen), is_c),
            "form": numbers[own.form[chosen]],
        }.items():
            columns[name].append(column)
    order = np.argsort(np.concatenate(columns["instruction"]), kind="stable")
    return Accesses(**{name: np.concatenate(parts)[order] for name, parts in columns.items()}, forms=list(forms))


def extents_of(
    accesses: Accesses, keys: np.ndarray, counts: Callable[[np.ndarray], bool]
) -> tuple[list[Extent], np.ndarray]:
    """Partition the memories into extents of overlapping accesses. Return the extents and, for each access, the index
    of its extent, or -1 for an extent whose accesses fail `counts`.

    Marks are kept separately for each key in `keys`: the queue of an access, or another property.
    """
    lies_in = np.full(len(accesses.low), -1, dtype=np.int64)
    steps = np.array(
        [np.gcd.reduce([form.run, *(s for s, _ in form.loops)]) for form in accesses.forms], dtype=np.int64
    )
    extents: list[Extent] = []
    for memory in np.unique(accesses.memory):
        here = np.flatnonzero(accesses.memory == memory)
        here = here[np.argsort(accesses.low[here], kind="stable")]
        reach = np.maximum.accumulate(accesses.high[here])
        starts = np.flatnonzero(np.concatenate([[True], accesses.low[here][1:] >= reach[:-1]]))
        for start, end in zip(starts, [*starts[1:], len(here)], strict=True):
            group = here[start:end]
            if not counts(group):
                continue
            first = int(accesses.low[group[0]])
            piece = int(np.gcd.reduce(np.concatenate([accesses.low[group] - first, steps[accesses.form[group]]])))
            key, writes = keys[group], accesses.writes[group]
            writing, reading = (np.unique(key[did]).tolist() for did in (writes, accesses.reads[group]))
            lies_in[group] = len(extents)
            extents.append(Extent(first, int(reach[end - 1]), piece, writing, reading, len(group)))
    return extents, lies_in


def _is_shared(accesses: Accesses, here: np.ndarray) -> bool:
    """Return whether accesses may need tokens: several queues make them, and at least one access writes."""
    queue = accesses.queue[here]
    return bool((queue != queue[0]).any() and accesses.writes[here].any())


def place_tokens(instructions: np.ndarray) -> None:
    """Set `wait` and `signal` of an INSTRUCTION array without tokens so that every order that the tokens allow gives
    the results of program order.

    Instructions are visited in program order. For each queue, the pass tracks the latest instruction of every other
    queue that is known to have finished when the next instruction of the queue starts. An instruction that needs more
    than that takes one token, which the needed instruction puts. Waiting for an instruction implies everything that it
    waited for and everything before it in its queue, so tokens implied by an earlier wait are omitted.
    """
    found = dependences(instructions)
    needs = np.maximum(found.data, found.space)
    rows, producers = np.nonzero(needs >= 0)
    wanted: dict[int, list[tuple[int, int]]] = {}
    for row, producer, needed in zip(rows.tolist(), producers.tolist(), needs[rows, producers].tolist(), strict=True):
        wanted.setdefault(row, []).append((needed, producer))
    known = [[-1] * QUEUES for _ in range(QUEUES)]  # per queue: what its next instruction may assume
    behind: list[tuple[int, ...]] = []  # per instruction: what has finished when it has
    for number, queue in enumerate(instructions["queue"].tolist()):
        mine = known[queue]
        # Latest first: whatever it implies needs no wait of its own.
        for needed, producer in sorted(wanted.get(number, ()), reverse=True):
            if needed > mine[producer]:
                instructions["wait"][number, producer] = 1
                instructions["signal"][needed, queue] = 1
                known[queue] = mine = [max(pair) for pair in zip(mine, behind[needed], strict=True)]
        mine[queue] = number
        behind.append(tuple(mine))
