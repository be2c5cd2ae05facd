"""Copies into, between and out of the storage levels of a machine, as LOAD and STORE (page 02).

The annotation "vsim.copies" on a block that loads says that so many groups of instances have the same piece of the
buffer: the instruction writes it as often, one copy behind the other, and reads it once for each copy that the level
above has. The first copy is the one that products read.
"""

from __future__ import annotations

import numpy as np
from tvm import tirx
from tvm.ir import TensorLoad

from ..hardware.machine import Machine
from .isa import Opcode
from .record_buffers import EXTERNAL, Place, Places
from .record_engines import COPY_LOOPS
from .record_instances import Coupled, Instances
from .record_rows import Rows, grouped, walk


def level_of(machine: Machine, memory: str) -> str | None:
    """The storage level that a memory belongs to, None for others."""
    owner = memory.rpartition(".")[0]
    return owner if any(level.name == owner for level in machine.hardware.levels) else None


def level_engine(machine: Machine, engine: str, source: str | None, target: str) -> str | None:
    """The engine of a copy from a memory to another where one of them belongs to a level; None where none does, or
    where the vector engine does it."""
    into = level_of(machine, target)
    if engine == "load" and into is not None:
        return f"load_{into}" if target.endswith((".a", ".b")) else None
    out_of = level_of(machine, source) if source else None
    return f"store_{out_of}" if engine == "store" and out_of is not None else None


def record_level_copy(found: Instances, places: Places, rows: Rows, queue: str) -> None:
    """A block of the engines "load" and "store" with a level at one of its ends."""
    nest, leaf, store = found.nest, found.leaf, found.leaf.block.body
    assert isinstance(store, tirx.BufferStore)
    if not isinstance(store.value, TensorLoad):
        raise nest.refuse(f"block {leaf.name!r} is to load or store and computes {store.value}; accepted: a plain copy")
    source, target = places[store.value.source], places[store.buffer]
    steps = _rank(places.machine, target) - _rank(places.machine, source)
    if steps == 0:
        raise nest.refuse(
            f"block {leaf.name!r} copies from memory {source.memory!r} to {target.memory!r}; accepted: from one "
            "storage level to another"
        )
    if target.copies % source.copies:
        raise nest.refuse(
            f"block {leaf.name!r} makes {target.copies} copies of {source.copies}; accepted: vsim.copies that is a "
            "multiple of that of the level above"
        )
    walks = (
        walk(found, places, store.value.source, store.value.indices),
        walk(found, places, store.buffer, store.indices),
    )
    if walks[0].kind != walks[1].kind:
        raise nest.refuse(
            f"block {leaf.name!r} copies {walks[0].kind.name} to {walks[1].kind.name}; accepted: equal types"
        )
    again = target.copies // source.copies if steps > 0 else 1
    kept = source.copies if steps > 0 else 1  # results have no copies
    lead = [
        (count, step_a, step_c)
        for count, step_a, step_c in (
            (kept, source.elements, again * target.elements),
            (again, 0, target.elements),
        )
        if count > 1
    ]
    groups = grouped(found, walks, COPY_LOOPS - len(lead))
    if groups is None:
        raise Coupled
    loops: list[list[int]] = [[] for _ in lead]
    rows.add(found, Opcode.LOAD if steps > 0 else Opcode.STORE, queue, [*loops, *groups], a=walks[0], c=walks[1])
    table = rows.tables[-1]
    for place, (count, step_a, step_c) in enumerate(lead):
        table["extent"][:, place] = count
        table["a_stride"][:, place], table["c_stride"][:, place] = np.int32(step_a), np.int32(step_c)


def _rank(machine: Machine, place: Place) -> int:
    """How far in a memory lies: 0 off the chip, then level by level."""
    if place.memory == EXTERNAL:
        return 0
    names = [level.name for level in machine.hardware.levels]
    owner = level_of(machine, place.memory)
    return names.index(owner) + 1 if owner is not None else len(names)
