"""How much each instruction of a program has to do, whatever the machine: bytes to move, products, elements.

Worked out once for a program; cost.py and energy.py make cycles and picojoules of it for each machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...hardware.memory import OPERANDS as CLASSES
from ..checks.access import COPIES, OPERANDS, PRODUCTS, element_bytes, spans, uses
from .isa import Opcode
from .program import Program


@dataclass(frozen=True)
class Lane:
    """Copies and fills that are alike: their `number`s and the `bytes` that each writes without its border; from where
    to where (names of memories, from "" for fills), and which operand it is, "a", "b" or "out". `read` are the bytes
    that each reads: fewer where several instances of a storage level get the same ones in one transfer (loops that do
    not move in the source)."""

    source: str
    target: str
    operand: str
    number: np.ndarray
    bytes: np.ndarray
    read: np.ndarray

    @property
    def total(self) -> int:
        """Bytes that all of them write."""
        return int(self.bytes.sum())

    @property
    def total_read(self) -> int:
        """Bytes that all of them read."""
        return int(self.read.sum()) if self.source else 0


@dataclass(frozen=True)
class Vectors:
    """Instructions of the vector engine of one function, or fills of one queue: their `number`s and `elements`."""

    number: np.ndarray
    elements: np.ndarray


@dataclass(frozen=True)
class Products:
    """Instructions of one product opcode: their `number`s, the size of each (m, n, k), bytes of an element in and out,
    and the memories of a, b and c by number, int64[3, products]."""

    number: np.ndarray
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    macs: np.ndarray
    element: np.ndarray
    result: np.ndarray
    memory: np.ndarray


@dataclass(frozen=True)
class Work:
    """What a program has to do: `lanes` of copies and fills, `products` by opcode, `vectors` by the number of their
    function, `fills` by queue (they are in a lane too). `touched` int64[instructions, 3] are the numbers of the
    memories that each touches, each once, then -1. `peak` is the first byte behind all that is touched of each memory,
    by name, `bytes` how many copies, fills and vector instructions read and write of it."""

    program: Program
    lanes: tuple[Lane, ...]
    products: dict[Opcode, Products]
    vectors: dict[int, Vectors]
    fills: dict[str, Vectors]
    touched: np.ndarray
    peak: dict[str, int]
    bytes: dict[str, int]


def work(program: Program) -> Work:
    """The work of a program."""
    rows = program.instructions
    op, function = rows["op"], rows["function"]
    elements = rows["extent"][:, :4].astype(np.int64).prod(axis=1)

    def vectors(which: np.ndarray) -> Vectors:
        number = np.flatnonzero(which)
        return Vectors(number, elements[number])

    alu, fill = op == Opcode.ALU, op == Opcode.FILL
    lanes = _lanes(program, elements)
    return Work(
        program=program,
        lanes=lanes,
        products={kind: _products(rows, kind) for kind in PRODUCTS if (op == kind).any()},
        vectors={number: vectors(alu & (function == number)) for number in np.unique(function[alu]).tolist()},
        fills={
            program.queues[queue]: vectors(fill & (rows["queue"] == queue))
            for queue in np.unique(rows["queue"][fill]).tolist()
        },
        touched=_touched(rows),
        peak=_peak(program),
        bytes=_bytes(program, lanes, elements),
    )


def _lanes(program: Program, elements: np.ndarray) -> tuple[Lane, ...]:
    rows = program.instructions
    number = np.flatnonzero(np.isin(rows["op"], (*COPIES, Opcode.FILL)))
    own = rows[number]
    fill = own["op"] == Opcode.FILL
    moved = elements[number] * np.where(fill, element_bytes(own, "c"), element_bytes(own, "a"))
    name = [memory.name for memory in program.memories]
    source = np.where(fill, len(name), own["a_memory"])
    sizes = (len(name) + 1, len(name), len(CLASSES))
    key = np.ravel_multi_index((source, own["c_memory"], _classes(program, own)), sizes) if len(own) else source
    found = []
    for here in np.flatnonzero(np.bincount(key)).tolist():
        a, c, operand = np.unravel_index(here, sizes)
        mine = np.flatnonzero(key == here)
        read = moved[mine]
        if "." in name[c]:
            still = (own["a_stride"][mine, :4] == 0) & (own["c_stride"][mine, :4] != 0)
            read = read // np.where(still, own["extent"][mine, :4], 1).astype(np.int64).prod(axis=1)
        found.append(Lane([*name, ""][a], name[c], CLASSES[operand], number[mine], moved[mine], read))
    return tuple(found)


def _classes(program: Program, own: np.ndarray) -> np.ndarray:
    """Of each transfer the operand that it is counted in, by number. What goes into a buffer of A or B is that operand;
    what is stored is a result; the rest (a bias, sums that come back) is as the tensor says that it is read from, and a
    result where none does."""
    out = CLASSES.index("out")
    found = np.full(len(own), out, dtype=np.int64)
    load = own["op"] == Opcode.LOAD
    for number, memory in enumerate(program.memories):
        into = memory.name.rpartition(".")[2]
        here = load & (own["c_memory"] == number)
        if into in ("a", "b"):
            found[here] = CLASSES.index(into)
    left = load & (found == out)
    for number, memory in enumerate(program.memories):
        tensors = sorted((t.address, t) for t in program.tensors if t.memory == memory.name) if left.any() else []
        here = np.flatnonzero(left & (own["a_memory"] == number))
        if not tensors or not len(here):
            continue
        starts = np.array([address for address, _ in tensors])
        ends = np.array([tensor.address + tensor.bytes for _, tensor in tensors])
        classes = np.array([CLASSES.index(tensor.operand) for _, tensor in tensors])
        which = np.maximum(np.searchsorted(starts, own["a"][here], side="right") - 1, 0)
        inside = (starts[which] <= own["a"][here]) & (own["a"][here] < ends[which])
        found[here[inside]] = classes[which[inside]]
    return found


def _products(rows: np.ndarray, kind: Opcode) -> Products:
    number = np.flatnonzero(rows["op"] == kind)
    own = rows[number]
    extent = own["extent"].astype(np.int64)
    m, n, k = extent[:, 0], extent[:, 1:3].prod(axis=1), extent[:, 3:].prod(axis=1)
    return Products(
        number=number,
        m=m,
        n=n,
        k=k,
        macs=m * n * k,
        element=element_bytes(own, "a"),
        result=element_bytes(own, "c"),
        memory=np.stack([own[f"{operand}_memory"].astype(np.int64) for operand in OPERANDS]),
    )


def _touched(rows: np.ndarray) -> np.ndarray:
    used = uses(rows)
    touched = np.full((len(rows), len(OPERANDS)), -1, dtype=np.int64)
    for place, operand in enumerate(OPERANDS):
        memory = np.where(used.of(operand), rows[f"{operand}_memory"].astype(np.int64), -1)
        again = (touched[:, :place] == memory[:, None]).any(axis=1)
        touched[:, place] = np.where(again, -1, memory)
    return -np.sort(-touched, axis=1)


def _peak(program: Program) -> dict[str, int]:
    rows = program.instructions
    used = uses(rows)
    reach = dict.fromkeys((memory.name for memory in program.memories), 0)
    for operand in OPERANDS:
        _, ends = spans(rows, operand)
        for number, name in enumerate(reach):
            here = used.of(operand) & (rows[f"{operand}_memory"] == number)
            reach[name] = max(reach[name], int(ends[here].max(initial=0)))
    return reach


def _bytes(program: Program, lanes: tuple[Lane, ...], elements: np.ndarray) -> dict[str, int]:
    total = dict.fromkeys((memory.name for memory in program.memories), 0)
    for lane in lanes:
        total[lane.target] += lane.total
        if lane.source:
            total[lane.source] += lane.total_read
    rows = program.instructions
    alu = rows["op"] == Opcode.ALU
    own, elements = rows[alu], elements[alu]
    used = uses(own)
    for operand, touches in (("a", used.reads_a), ("b", used.reads_b), ("c", used.reads_c), ("c", used.writes_c)):
        count = elements * element_bytes(own, operand) * touches  # type: ignore[arg-type]
        for number, name in enumerate(total):
            total[name] += int(count[own[f"{operand}_memory"] == number].sum())
    return total
