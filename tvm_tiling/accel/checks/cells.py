"""Partition of memory pieces into cells that every access touches as a whole, so that the last write or read of each
cell can be found for all accesses at once by sorting.

Each piece gets the sum of the random tags of the footprints that cover it; pieces with equal sums form a cell. If the
sums of two cells collide, they count as one cell, which adds dependences but never loses one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .access import Footprint, under

MOST_CELLS = 8  # per access on average; above this, visiting the accesses one by one is faster


@dataclass(frozen=True)
class Touched:
    """Cells that accesses touch: one entry per access and cell, sorted by cell and then by program order. `access` is
    the access, `start` the index of the first entry of the same cell."""

    access: np.ndarray
    start: np.ndarray

    def latest(self, chosen: np.ndarray) -> np.ndarray:
        """Return, for each entry, the latest earlier access of the same cell among the `chosen` ones, or -1."""
        place = np.where(chosen[self.access], np.arange(len(self.access)), -1)
        before = np.concatenate([[-1], np.maximum.accumulate(place)[:-1]])
        return np.where(before >= self.start, self.access[before], -1)


def touched(place: np.ndarray, form: np.ndarray, forms: Callable[[int, int], Footprint], pieces: int) -> Touched | None:
    """Return the cells that accesses touch in `pieces` pieces of memory, or None if there are more than MOST_CELLS per
    access on average.

    Access i covers footprint number form[i] from place[i]; forms(access, number) returns that footprint in pieces.
    """
    _, first, way = np.unique(place * (form.max() + 1) + form, return_index=True, return_inverse=True)
    tags = np.zeros(pieces, np.uint64)
    odd = np.random.default_rng(0).integers(1 << 63, size=len(first), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    starts = place[first].tolist()
    footprints = [forms(*each) for each in zip(first.tolist(), form[first].tolist(), strict=True)]
    for number, start, own in zip(odd, starts, footprints, strict=True):
        under(tags, start, own)[...] += number
    cell = np.unique(tags, return_inverse=True)[1].reshape(-1)
    lists = []
    for start, own in zip(starts, footprints, strict=True):
        here = under(cell, start, own)
        lists.append(here.reshape(1) if here.size == 1 else np.unique(here))
    sizes = np.array([len(each) for each in lists])
    counts = sizes[way]
    if counts.sum() > MOST_CELLS * len(place):
        return None
    ends, offsets = np.cumsum(counts), np.concatenate([[0], np.cumsum(sizes)[:-1]])
    within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    cells = np.concatenate(lists)[np.repeat(offsets[way], counts) + within]
    order = np.argsort(cells, kind="stable")
    changes = np.flatnonzero(np.diff(cells[order], prepend=-1))
    start_of = np.repeat(changes, np.diff(changes, append=len(cells)))
    return Touched(np.repeat(np.arange(len(place)), counts)[order], start_of)
