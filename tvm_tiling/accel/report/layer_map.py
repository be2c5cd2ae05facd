"""The mapping of a layer to a machine: the loops of its schedule, what each block moves or computes, and how often
every operand enters each level of storage, as text and as data.

All figures are counted over the recorded instructions. Loops with one iteration are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ...figures import quantity
from ..instructions.row import Batch
from ..program.program import Program
from ..program.work import work
from ..record.function import RecordedBlocks
from ..record.nest import Loop
from .report import Table


@dataclass(frozen=True)
class MapLoop:
    """A loop at `depth` with `turns` iterations, or at most that many if they depend on other loops."""

    depth: int
    name: str
    turns: int


@dataclass(frozen=True)
class MapWork:
    """The work of a block at `depth` in `instructions` of a `queue`: `bytes` moved of an `operand` from `source` to
    `target`, multiply-accumulates, or elements of the vector engine, summed over all its instructions."""

    depth: int
    name: str
    queue: str
    instructions: int
    operand: str = ""
    source: str = ""
    target: str = ""
    bytes: int = 0
    macs: int = 0
    elements: int = 0


@dataclass(frozen=True)
class Reuse:
    """The traffic of an operand into a memory: the `bytes` transferred, the `times` that each byte of the operand's
    tensors was transferred (below 1: not all of it), and the multiply-accumulates of the layer `per_byte`
    transferred."""

    memory: str
    operand: str
    bytes: int
    times: float
    per_byte: float


@dataclass(frozen=True)
class LayerMap:
    """Loops and work, outermost loops and first blocks first, and the reuse of operands at each memory."""

    lines: tuple[MapLoop | MapWork, ...]
    reuse: tuple[Reuse, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"lines": [asdict(line) for line in self.lines], "reuse": [asdict(row) for row in self.reuse]}

    def text(self) -> str:
        """Return the loops as text: an indented line for each loop and block."""
        return "\n".join("  " * line.depth + _words(line) for line in self.lines)

    def table(self) -> Table:
        """Return the reuse of operands by memory as a table."""
        rows = [(r.memory, r.operand, r.bytes, f"{r.times:.4g}", f"{r.per_byte:.4g}") for r in self.reuse]
        return Table("Reuse", ("into", "operand", "bytes", "times", "MAC per byte"), rows)


def layer_map(recorded: RecordedBlocks) -> LayerMap:
    """Return the map of a scheduled function, as recorded by :func:`tvm_tiling.accel.record.function.blocks_of`."""
    lines: list[MapLoop | MapWork] = []
    around: tuple[Loop, ...] = ()
    for found, tables in recorded.blocks:
        own = found.leaf.loops[: len(found.leaf.loops) - len(found.inner)]
        outer = tuple(loop for loop in own if loop.most > 1)
        shared = next(
            (place for place, (one, other) in enumerate(zip(around, outer, strict=False)) if one is not other),
            min(len(around), len(outer)),
        )
        lines += [MapLoop(place, outer[place].variable.name, outer[place].most) for place in range(shared, len(outer))]
        lines += _work(recorded.program, found.leaf.name, len(outer), np.concatenate(tables))
        around = outer
    return LayerMap(tuple(lines), tuple(_reuse(recorded.program)))


def _work(program: Program, name: str, depth: int, instructions: np.ndarray) -> Iterator[MapWork]:
    """Yield one entry for each kind of instruction that a block was lowered to."""
    own = replace(program, instructions=instructions)
    for batch in work(own).batches:
        line = MapWork(depth, name, program.queues[int(batch.column("queue")[0])], len(batch.number))
        if batch.row.work == "bytes":
            moved = int(batch.bytes.sum())
            yield replace(line, operand=batch.operand, source=batch.source, target=batch.target, bytes=moved)
        elif batch.row.work == "sums":
            yield replace(line, macs=int(batch.macs.sum()))
        else:
            yield replace(line, elements=int(batch.elements.sum()))


def _reuse(program: Program) -> Iterator[Reuse]:
    """Yield the reuse of operands by target memory, in order of first transfer."""
    found = work(program)
    sizes: dict[str, int] = {}
    for tensor in program.tensors:
        if tensor.role != "scratch":
            sizes[tensor.operand] = sizes.get(tensor.operand, 0) + tensor.bytes
    came: dict[tuple[str, str], int] = {}
    for batch in sorted(found.of("bytes"), key=_first):
        if batch.source:
            key = (batch.target, batch.operand)
            came[key] = came.get(key, 0) + int(batch.bytes.sum())
    for (memory, operand), count in came.items():
        times = count / sizes[operand] if sizes.get(operand) else 0.0
        yield Reuse(memory, operand, count, times, found.macs / count if count else 0.0)


def _first(batch: Batch) -> int:
    return int(batch.number[0])


def _words(line: MapLoop | MapWork) -> str:
    if isinstance(line, MapLoop):
        return f"for {line.name} in {line.turns}:"
    if line.bytes:
        way = f"{line.source or 'zeros'} to {line.target}"
        done = f"{line.bytes} bytes of {line.operand}, {way}"
    elif line.macs:
        done = f"{line.macs} multiply-accumulates"
    else:
        done = f"{line.elements} elements"
    many = f"in {quantity(line.instructions, 'instruction')}" if line.instructions > 1 else "in one instruction"
    return f"{line.name}: {done}, {many} of {line.queue}"
