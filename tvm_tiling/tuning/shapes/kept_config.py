"""The cut of an entry for another shape: it is kept, and the loops around its blocks grow (page 02)."""

from __future__ import annotations

from collections.abc import Iterator

from ...decide.configs.config import Cut, Tiling, cut_of, tiling_of
from ...decide.surroundings import Surroundings
from ...errors import DatabaseError, HardwareError, UnsupportedOperator
from ...hardware.description import Hardware
from ...workload import GemmWorkload
from .entries import Entry
from .key import Workload

DEPTH = "partition_k"  # of a product's blocks in buffers; 0: all of k


def kept_cut(entry: Entry, workload: Workload, hardware: Hardware, *, ahead: bool = False) -> Cut | None:
    """The entry's cut as the machine can do it for `workload`, None where it cannot.

    A cut whose blocks hold all of k says so, and not how much that was: where a deeper product's do not fit, they are
    as deep as the entry's were, and sums are added up over several of them.
    """
    for cut in _cuts(entry, workload):
        tiling = tiling_if_possible(cut, workload, hardware, ahead=ahead)
        if tiling is not None:
            return cut if cut == entry.cut else cut_of(tiling, workload, hardware)
    return None


def tiling_if_possible(cut: Cut, workload: Workload, hardware: Hardware, *, ahead: bool = False) -> Tiling | None:
    """The decision that a cut stands for, None where the machine or the shape does not admit it."""
    try:
        return tiling_of(cut, workload, hardware, Surroundings(ahead=ahead))
    except (HardwareError, UnsupportedOperator, DatabaseError):
        return None


def _cuts(entry: Entry, workload: Workload) -> Iterator[Cut]:
    yield entry.cut
    choices, known = dict(entry.cut.choices), entry.workload
    if not isinstance(workload, GemmWorkload) or not isinstance(known, GemmWorkload) or choices.get(DEPTH) != 0:
        return
    if workload.k > known.k:
        yield Cut.of(entry.cut.op, entry.cut.form, {**choices, DEPTH: known.k})
