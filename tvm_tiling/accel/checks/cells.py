"""Pieces of memory that every access touches together, as cells: what was last written or read in each is found for
all accesses at once, by sorting.

Pieces get the sum of a random number of each footprint over them; equal sums are one cell. Should two cells have one
sum, they count as one, which asks for more than is needed, never for less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .access import Footprint, under

MOST_CELLS = 8  # of an access on average; with more, walking through the accesses is quicker


@dataclass(frozen=True)
class Touched:
    """Cells that accesses touch, an entry for each access and each of its cells, by cell and then in order: `access`,
    and the entry with which its cell starts."""

    access: np.ndarray
    start: np.ndarray

    def latest(self, chosen: np.ndarray) -> np.ndarray:
        """Of each entry the latest access of the same cell before it among those that are `chosen`, -1 for none."""
        place = np.where(chosen[self.access], np.arange(len(self.access)), -1)
        before = np.concatenate([[-1], np.maximum.accumulate(place)[:-1]])
        return np.where(before >= self.start, self.access[before], -1)


def touched(place: np.ndarray, form: np.ndarray, forms: Callable[[int, int], Footprint], pieces: int) -> Touched | None:
    """The cells that each access touches in a memory of `pieces`. Access i starts at piece place[i];
    forms(i, form[i]) is its footprint counted in pieces. None if there are more than MOST_CELLS times as many cells
    touched as accesses."""
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
