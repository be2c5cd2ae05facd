"""The machine-independent work of each instruction of a program: bytes moved, multiply-accumulates, elements.

It is computed once per program; cost.py and energy.py turn it into cycles and picojoules for each machine.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ...hardware.memory import OPERANDS as CLASSES
from ...hardware.vector_functions import Function
from ..checks.access import spans
from ..instructions.row import Batch, Instruction
from ..instructions.table import Opcode, uses
from .disassembler import instruction_name
from .isa import OPERANDS, Operand, element_bytes
from .program import Program


@dataclass(frozen=True)
class Work:
    """The work of a program. `batches` are in table order. `touched` int64[instructions, 3] are the distinct memories
    that each instruction touches, padded with -1. By memory name, `peak` is one past the last byte touched, and `bytes`
    how many bytes the instructions that touch every element once read and write."""

    program: Program
    batches: tuple[Batch, ...]
    touched: np.ndarray
    peak: dict[str, int]
    bytes: dict[str, int]

    def of(self, kind: str) -> list[Batch]:
        """Return the batches of one kind of work: "bytes", "elements" or "sums"."""
        return [batch for batch in self.batches if batch.row.work == kind]

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole program."""
        return sum(int(batch.macs.sum()) for batch in self.of("sums"))


def work(program: Program) -> Work:
    """Return the work of a program."""
    batches = tuple(_batches(program))
    return Work(program, batches, _touched(program.instructions), _peak(program), _bytes(program, batches))


def _batches(program: Program) -> Iterator[Batch]:
    rows = program.instructions
    named = functools.partial(instruction_name, program)
    for op in np.unique(rows["op"]).tolist():
        row = Opcode[op]
        number = np.flatnonzero(rows["op"] == op)
        if row.work == "bytes":
            yield from _transfers(program, row, number, named)
        elif row.takes_function:
            function = rows["function"][number]
            for which in np.unique(function).tolist():
                yield Batch(row, rows, number[function == which], Function[which], named)
        else:
            yield Batch(row, rows, number, Function[0], named)


def _transfers(program: Program, row: Instruction, number: np.ndarray, named: Callable[[int], str]) -> Iterator[Batch]:
    """Yield copies or fills, grouped by path."""
    own = program.instructions[number]
    memories = [*(memory.name for memory in program.memories), ""]
    source = own["a_memory"] if "a" in row.loops else np.full(len(own), len(memories) - 1)
    sizes = (len(memories), len(memories), len(CLASSES), len(program.queues))
    ways = (source, own["c_memory"], _classes(program, row, own), own["queue"])
    key = np.ravel_multi_index(ways, sizes)
    for here in np.flatnonzero(np.bincount(key)).tolist():
        a, c, operand, queue = np.unravel_index(here, sizes)
        yield Batch(
            row,
            program.instructions,
            number[key == here],
            Function[0],
            named,
            queue=program.queues[queue],
            source=memories[a],
            target=memories[c],
            operand=CLASSES[operand],
        )


def _classes(program: Program, row: Instruction, own: np.ndarray) -> np.ndarray:
    """Return, for each transfer, the index of the operand that it counts towards. Data for a buffer of A or B counts as
    that operand; data that moves outward counts as a result; the rest (a bias, sums that return) counts as its source
    tensor states, or as a result without one."""
    out = CLASSES.index("out")
    found = np.full(len(own), out, dtype=np.int64)
    if not row.inward:
        return found
    for number, memory in enumerate(program.memories):
        into = memory.name.rpartition(".")[2]
        here = own["c_memory"] == number
        if into in ("a", "b"):
            found[here] = CLASSES.index(into)
    left = found == out
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


def _bytes(program: Program, batches: tuple[Batch, ...]) -> dict[str, int]:
    total = dict.fromkeys((memory.name for memory in program.memories), 0)
    for batch in batches:
        if batch.row.work == "bytes":
            total[batch.target] += int(batch.bytes.sum())
            if batch.source:
                total[batch.source] += int(batch.read.sum())
        elif batch.row.traffic is None and batch.row.loops:
            _count_operands(program, batch, total)
    return total


def _count_operands(program: Program, batch: Batch, total: dict[str, int]) -> None:
    """Add the bytes of operands that each instruction reads and writes, counting every element once."""
    own = program.instructions[batch.number]
    used = uses(own)
    reads: tuple[tuple[Operand, np.ndarray], ...] = (
        ("a", used.reads_a),
        ("b", used.reads_b),
        ("c", used.reads_c),
        ("c", used.writes_c),
    )
    for operand, touches in reads:
        loops = list(batch.row.loops.get(operand, ()))
        elements = own["extent"][:, loops].astype(np.int64).prod(axis=1)
        count = elements * element_bytes(own, operand) * touches
        for number, name in enumerate(total):
            total[name] += int(count[own[f"{operand}_memory"] == number].sum())
