"""How much each instruction of a program has to do, whatever the machine: bytes to move, products, elements.

Worked out once for a program; cost.py and energy.py make cycles and picojoules of it for each machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..hardware.memory import OPERANDS as CLASSES
from .access import COPIES, OPERANDS, PRODUCTS, element_bytes, spans, uses
from .isa import Opcode
from .program import Program


@dataclass(frozen=True)
class Transfers:
    """Copies and fills: their `number`s, `bytes` of what they move without borders, and the `lane` of each, a number
    into `lanes`: (from, to, operand), names of memories, from "" for a fill, and what is moved, "a", "b" or "out"."""

    number: np.ndarray
    bytes: np.ndarray
    lane: np.ndarray
    lanes: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Products:
    """Instructions of one product opcode: their `number`s, the size of each (m, n, k), bytes of an element in and
    out."""

    number: np.ndarray
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    element: np.ndarray
    result: np.ndarray

    @property
    def macs(self) -> np.ndarray:
        """Multiply-accumulates of each."""
        macs: np.ndarray = self.m * self.n * self.k
        return macs


@dataclass(frozen=True)
class Work:
    """What a program has to do. `vector` are the numbers of the vector engine's instructions (without fills),
    `elements` how many elements every instruction of the program walks. `touched` int64[instructions, 3] are the
    numbers of the memories that it touches, each once, then -1. `extent_of` is the first byte behind all that is
    touched of each memory, by name."""

    program: Program
    transfers: Transfers
    products: dict[Opcode, Products]
    vector: np.ndarray
    elements: np.ndarray
    touched: np.ndarray
    extent_of: dict[str, int]


def work(program: Program) -> Work:
    """The work of a program."""
    rows = program.instructions
    op = rows["op"]
    walked = rows["extent"].astype(np.int64)
    return Work(
        program=program,
        transfers=_transfers(program),
        products={kind: _products(rows, kind) for kind in PRODUCTS if (op == kind).any()},
        vector=np.flatnonzero(op == Opcode.ALU),
        elements=walked[:, :4].prod(axis=1),
        touched=_touched(rows),
        extent_of=_extents(program),
    )


def _transfers(program: Program) -> Transfers:
    rows = program.instructions
    number = np.flatnonzero(np.isin(rows["op"], (*COPIES, Opcode.FILL)))
    own = rows[number]
    fill = own["op"] == Opcode.FILL
    size = element_bytes(own, "a")
    size[fill] = element_bytes(own[fill], "c")
    moved = own["extent"][:, :4].astype(np.int64).prod(axis=1) * size
    source = np.where(fill, -1, own["a_memory"].astype(np.int64))
    keys = np.stack([source, own["c_memory"].astype(np.int64), _classes(program, own)], axis=1)
    distinct, lane = np.unique(keys, axis=0, return_inverse=True)
    name = [memory.name for memory in program.memories]
    lanes = tuple((name[a] if a >= 0 else "", name[c], CLASSES[operand]) for a, c, operand in distinct.tolist())
    return Transfers(number, moved, lane.reshape(-1), lanes)


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
    return Products(
        number=number,
        m=extent[:, 0],
        n=extent[:, 1:3].prod(axis=1),
        k=extent[:, 3:].prod(axis=1),
        element=element_bytes(own, "a"),
        result=element_bytes(own, "c"),
    )


def _touched(rows: np.ndarray) -> np.ndarray:
    used = uses(rows)
    touched = np.full((len(rows), len(OPERANDS)), -1, dtype=np.int64)
    for place, operand in enumerate(OPERANDS):
        memory = np.where(used.of(operand), rows[f"{operand}_memory"].astype(np.int64), -1)
        again = (touched[:, :place] == memory[:, None]).any(axis=1)
        touched[:, place] = np.where(again, -1, memory)
    return -np.sort(-touched, axis=1)


def _extents(program: Program) -> dict[str, int]:
    rows = program.instructions
    used = uses(rows)
    reach = dict.fromkeys((memory.name for memory in program.memories), 0)
    for operand in OPERANDS:
        own = rows[used.of(operand)]
        _, ends = spans(own, operand)
        for number, name in enumerate(reach):
            reach[name] = max(reach[name], int(ends[own[f"{operand}_memory"] == number].max(initial=0)))
    return reach
