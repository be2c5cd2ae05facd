"""Copies into, between and out of the storage levels of a machine, as LOAD and STORE (design page 02).

The annotation "vsim.copies" on a block that loads says how many groups of instances hold the same tile of the buffer:
the instruction writes it that many times, consecutively, and reads it once for each copy in the level above. Compute
instructions read the first copy.

"vsim.halo" = [d, step, overlap, parts] says that instances hold separate parts of a tile, `step` elements apart along
axis d of the buffer, each with the first `overlap` elements of the next part. These are loaded by separate instructions
and stored after the copy, where compute instructions, which read the whole tile, do not need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from tvm import tirx
from tvm.ir import TensorLoad

from ...hardware.machine import Machine
from ..instructions.table import Opcode
from .border import accesses_of, bordered_load, inside_of, record_bordered_load, those
from .buffers import EXTERNAL, Place, Places
from .engines import COPY_LOOPS, constant, record_fill
from .instances import Coupled, Instances
from .rows import Rows, StridedAccess, access, grouped


def level_of(machine: Machine, memory: str) -> str | None:
    """Return the storage level that a memory belongs to, or None."""
    owner = memory.rpartition(".")[0]
    return owner if any(level.name == owner for level in machine.hardware.levels) else None


def level_engine(machine: Machine, engine: str, source: str | None, target: str) -> str | None:
    """Return the engine of a copy from one memory to another if either belongs to a level; None if neither does or if
    the vector engine copies."""
    into = level_of(machine, target)
    if engine == "load" and into is not None:
        return f"load_{into}" if target.endswith((".a", ".b")) else None
    out_of = level_of(machine, source) if source else None
    return f"store_{out_of}" if engine == "store" and out_of is not None else None


def record_level_copy(found: Instances, places: Places, rows: Rows, queue: str) -> None:
    """Record a block of the engines "load" and "store" that has a level at one of its ends."""
    nest, leaf, store = found.nest, found.leaf, found.leaf.block.body
    assert isinstance(store, tirx.BufferStore)
    within = bordered_load(store.value)
    element = store.value if within is None else within[1]
    if not isinstance(element, TensorLoad):
        raise nest.refuse(f"block {leaf.name!r} must load or store, but computes {store.value}; expected a plain copy")
    source, target = places[element.source], places[store.buffer]
    steps = _rank(places.machine, target) - _rank(places.machine, source)
    if steps == 0:
        raise nest.refuse(
            f"block {leaf.name!r} copies from memory {source.memory!r} to {target.memory!r}; expected from one "
            "storage level to another"
        )
    if target.copies % source.copies:
        raise nest.refuse(
            f"block {leaf.name!r} makes {target.copies} copies of {source.copies}; expected a vsim.copies "
            "that is a multiple of that of the level above"
        )
    accesses = (
        access(found, places, element.source, element.indices),
        access(found, places, store.buffer, store.indices),
    )
    if accesses[0].kind != accesses[1].kind:
        raise nest.refuse(
            f"block {leaf.name!r} copies {accesses[0].kind.name} to {accesses[1].kind.name}; expected equal types"
        )
    copy = _LevelCopy(rows, queue, source, target, into=steps > 0)
    if within is not None:
        copy.bordered(found, accesses, within)
    else:
        whole = np.zeros_like(found.extents), found.extents
        copy.plain(found, accesses)
        copy.halo(found, accesses, whole)


class _LevelCopy:
    """Records the instructions of one copy between places, `into` a level or out of it."""

    def __init__(self, rows: Rows, queue: str, source: Place, target: Place, *, into: bool) -> None:
        self.rows, self.queue, self.target = rows, queue, target
        self.op = Opcode.LOAD if into else Opcode.STORE
        self.number = 0
        # Loops over copies: (count, distance in the source, distance in the target). Results have a single copy.
        kept, again = (source.copies, target.copies // source.copies) if into else (1, 1)
        self.kept = (kept, source.elements, again * target.elements)
        self.again = (again, 0, target.elements)

    def plain(self, found: Instances, accesses: Sequence[StridedAccess]) -> None:
        """Record everything that the instances copy, once for each copy of the level above."""
        lead = [loop for loop in (self.kept, self.again) if loop[0] > 1]
        groups = grouped(found, accesses, COPY_LOOPS - len(lead))
        if groups is not None:
            self._add(found, accesses, groups, lead)
            return
        groups = grouped(found, accesses, COPY_LOOPS - 1)
        if groups is None or self.kept[0] == 1:
            raise Coupled
        count, step_a, step_c = self.kept
        for copy in range(count):
            moved = [
                replace(own, start=own.start + copy * step * own.kind.bytes)
                for own, step in zip(accesses, (step_a, step_c), strict=True)
            ]
            self._add(found, moved, groups, [self.again])

    def _add(
        self,
        found: Instances,
        accesses: Sequence[StridedAccess],
        groups: Sequence[Sequence[int]],
        lead: Sequence[tuple[int, int, int]],
    ) -> None:
        empty: list[list[int]] = [[] for _ in lead]
        loops = [*empty, *groups]
        self.rows.add(found, self.op, self.queue, loops, number=self.number, a=accesses[0], c=accesses[1])
        self.number += 1
        table = self.rows.tables[-1]
        for place, (count, step_a, step_c) in enumerate(lead):
            table["extent"][:, place] = count
            table["a_stride"][:, place], table["c_stride"][:, place] = np.int32(step_a), np.int32(step_c)

    def bordered(
        self, found: Instances, accesses: Sequence[StridedAccess], within: tuple[tirx.Expr, TensorLoad, tirx.Expr]
    ) -> None:
        """Record a load of the inside of an image from off-chip memory, with a border of one constant."""
        condition, _, outside = within
        border = constant(outside)
        if border is None or accesses[0].memory != EXTERNAL:
            raise found.nest.refuse(
                f"block {found.leaf.name!r} copies where {condition}, otherwise takes {outside}; expected "
                "loads from external memory within a border of one constant"
            )
        some, low, high = inside_of(found, condition)
        if not some.all():
            record_fill(those(found, ~some), self.rows, self.queue, accesses_of(accesses[1], ~some), border)
        if some.any():
            part, own = those(found, some), [accesses_of(operand, some) for operand in accesses]
            box = low[some], high[some]
            copies = None if self.again[0] == 1 else (self.again[0], self.again[2])
            record_bordered_load(part, self.rows, self.queue, own[0], own[1], box, border, copies)
            self.number = 1
            self.halo(part, own, box)

    def halo(self, found: Instances, accesses: Sequence[StridedAccess], box: tuple[np.ndarray, np.ndarray]) -> None:
        """Record the overlap of each part with the previous one, within the box."""
        for first, last, place in self._shared(found):
            low, high = box[0].copy(), box[1].copy()
            loop = self._loop(found)
            low[:, loop] = np.maximum(low[:, loop], first)
            high[:, loop] = np.minimum(high[:, loop], last)
            some = (low < high).all(axis=1) & (found.extents[:, loop] > last)
            if not some.any():
                continue
            part = replace(those(found, some), extents=(high - low)[some])
            steps = [np.array(own.steps, dtype=np.int64) * own.kind.bytes for own in accesses]
            moved = [
                replace(own, start=(own.start + (low * step).sum(axis=1))[some])
                for own, step in zip(accesses, steps, strict=True)
            ]
            # After the tile: the elements of a part, placed where they would lie if it were the first part.
            behind = (place - first * accesses[1].steps[loop]) * accesses[1].kind.bytes
            moved[1] = replace(moved[1], start=moved[1].start + behind)
            self.plain(part, moved)

    def _shared(self, found: Instances) -> Iterator[tuple[int, int, int]]:
        """Yield, for each part except the first, the range of elements it shares with the previous part, and their
        offset from the start of the tile."""
        halo = found.leaf.annotation("vsim.halo")
        if halo is None:
            return
        d, step, overlap, parts = (int(number) for number in halo)  # type: ignore[attr-defined]
        whole = self.target.elements - self.target.halo
        for part in range(1, parts):
            place = whole + (part - 1) * overlap * (whole // self.target.shape[d])
            yield part * step, part * step + overlap, place

    def _loop(self, found: Instances) -> int:
        """Return the inner loop along the axis of the halo, that is, of the corresponding block axis."""
        halo = found.leaf.annotation("vsim.halo")
        axis = found.leaf.block.iter_vars[int(halo[0])].var  # type: ignore[index]
        _, steps = found.affine(axis)
        loops = [number for number, step in enumerate(steps) if step]
        if len(loops) != 1 or steps[loops[0]] != 1:
            raise found.nest.refuse(
                f"block {found.leaf.name!r} has vsim.halo = {list(halo)!r}; expected one loop of the instruction "  # type: ignore[call-overload]
                "along that axis"
            )
        return loops[0]


def _rank(machine: Machine, place: Place) -> int:
    """Return the depth of a memory in the hierarchy: 0 for off-chip, then level by level."""
    if place.memory == EXTERNAL:
        return 0
    names = [level.name for level in machine.hardware.levels]
    owner = level_of(machine, place.memory)
    return names.index(owner) + 1 if owner is not None else len(names)
