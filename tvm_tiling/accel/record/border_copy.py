"""Blocks of the vector engine that copy within a border on the chip: the border is filled, the inside copied."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import tirx

from ...hardware.vector_functions import Function
from ..instructions.table import Opcode
from .border import accesses_of, bordered_load, inside_of, those
from .buffers import EXTERNAL, Places
from .engines import COPY_LOOPS, constant, record_fill
from .instances import Coupled, Instances
from .rows import Rows, StridedAccess, access, grouped


def is_bordered_copy(found: Instances) -> bool:
    """Return whether the block stores an element within a border."""
    store = found.leaf.block.body
    return isinstance(store, tirx.BufferStore) and bordered_load(store.value) is not None


def record_bordered_copy(found: Instances, places: Places, rows: Rows, queue: str) -> None:
    """Record a FILL of everything that the block writes, then an ALU copy of the inside."""
    store = found.leaf.block.body
    condition, element, outside = bordered_load(store.value) or (None, None, None)
    assert condition is not None and element is not None
    border = constant(outside)
    source = access(found, places, element.source, element.indices)
    target = access(found, places, store.buffer, store.indices)
    if border is None or EXTERNAL in (source.memory, target.memory) or source.kind != target.kind:
        raise found.nest.refuse(
            f"block {found.leaf.name!r} computes the conditional value {store.value}; expected a copy on the chip "
            "within a border of one constant"
        )
    some, low, high = inside_of(found, condition)
    record_fill(found, rows, queue, target, border)
    if some.any():
        part = replace(those(found, some), extents=(high - low)[some])
        moved = [_moved(accesses_of(w, some), low[some]) for w in (source, target)]
        loops = grouped(part, moved, COPY_LOOPS)
        if loops is None:
            raise Coupled
        rows.add(part, Opcode.ALU, queue, loops, number=1, a=moved[0], c=moved[1], function=Function.COPY)


def _moved(operand: StridedAccess, low: np.ndarray) -> StridedAccess:
    """Return the operand shifted to the first point of the box."""
    steps = np.array(operand.steps, dtype=np.int64) * operand.kind.bytes
    return replace(operand, start=operand.start + (low * steps).sum(axis=1))
