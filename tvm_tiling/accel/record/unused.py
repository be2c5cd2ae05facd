"""Removal of loads of tiles that nothing uses.

If a block of one storage level is partitioned into blocks of the next, the last of these may lie outside the matrix:
nothing is computed there, and data loaded only for them, such as rows of the other operand, is not needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from .buffers import Place, Places
from .instances import Instances
from .nest import PLACES
from .rows import Rows


class Recorded(NamedTuple):
    """The instances of a block, and the tables of their instructions."""

    found: Instances
    first: int
    end: int


def drop_unused(recorded: list[Recorded], places: Places, rows: Rows) -> None:
    """Remove from the tables the loads of buffer tiles that no instruction reads."""
    used: dict[tirx.Buffer, list[np.ndarray]] = {}
    for found, first, end in reversed(recorded):
        store = found.leaf.block.body
        kept = None
        if found.leaf.annotation("vsim.engine") == "load" and store.buffer in used:
            pieces = _pieces(found, places[store.buffer])
            kept = np.isin(pieces, np.concatenate(used[store.buffer]))
            needed = found.keys[kept] // PLACES
            for number in range(first, end):
                stays = np.isin(rows.keys[number] // PLACES, needed)
                rows.tables[number], rows.keys[number] = rows.tables[number][stays], rows.keys[number][stays]
        loads: list[TensorLoad] = []
        tvm_ffi.structural_walk(store, (TensorLoad, loads.append))
        for buffer in {load.source for load in loads}:
            if places[buffer].loops and not buffer.same_as(store.buffer):
                read = _pieces(found, places[buffer])
                used.setdefault(buffer, []).append(np.unique(read if kept is None else read[kept]))


def _pieces(found: Instances, place: Place) -> np.ndarray:
    """Return the index of the buffer tile that each instance works on: the iteration of the loops around all its
    uses."""
    pieces = np.zeros(len(found), dtype=np.int64)
    for loop in place.loops:
        pieces = pieces * loop.most + found.values[loop.variable]
    return pieces
