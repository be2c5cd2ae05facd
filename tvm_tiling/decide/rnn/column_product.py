"""The product of a matrix by a vector on page 04's engine: how many columns and rows at once, and in which pieces.

A product of `rows` x `depth` takes ceil(depth/EP) * ceil(rows/VP) cycles and the latency of EP at its end; VP is as
many rows as the multipliers allow beside EP columns. There are a handful of EP, so all are counted. The matrix comes in
pieces, whole multiples of EP columns and of VP rows, so that it is loaded while the piece before is multiplied and the
pieces cost no more cycles than the whole. A piece is given back when its results are there, the latency after its last
cycle: as many versions of pieces, vectors and sums are on the chip as keep the engine busy until then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...errors import HardwareError
from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ...workload import GemmWorkload
from ..explain import Sections
from ..gemm.traffic import ceil_div, refuse_types
from ..tiling import Decision, Reason

PIECES = 8  # of columns, so that all but the first one's load is hidden


@dataclass(frozen=True, kw_only=True)
class ColumnTiling(Decision):
    """A matrix by a vector: `ep` columns and `vp` rows at once, in pieces of `rows` x `columns` elements of the matrix.
    `versions` of pieces, `vectors` of vectors (of a batch) and `sums` of the sums of a piece's rows are on the chip.
    `cycles` of the products with the last one's latency, if loads are hidden; `utilisation` of the multipliers over
    them."""

    op: ClassVar[str] = "column"

    ep: int
    vp: int
    rows: int
    columns: int
    versions: int
    vectors: int
    sums: int
    cycles: int
    utilisation: float

    sections: ClassVar[Sections] = (
        ("columns", ("ep", "vp")),
        ("piece", ("rows", "columns", "versions", "vectors", "sums")),
        ("predicted", ("cycles", "utilisation")),
    )


def decide_column(workload: GemmWorkload, hardware: Hardware) -> ColumnTiling:
    """The configuration of a product of a matrix by a vector, m = 1 or n = 1, on `hardware.column`: of fewest cycles,
    then of the smallest latency.

    HardwareError where the unit takes no such type, or its memories hold no two blocks of EP x VP and VP sums.
    """
    unit = hardware.column
    assert unit is not None and 1 in (workload.m, workload.n)  # or this were another kind of machine
    refuse_types(hardware, unit, workload)  # so that the matrix and the vector have elements of one size
    rows, depth, machine = max(workload.m, workload.n), workload.k, Machine(hardware)

    def cycles(ep: int, vp: int) -> int:
        return workload.batch * ceil_div(depth, ep) * ceil_div(rows, vp) + unit.latency(ep)

    choices = [(ep, min(rows, unit.multipliers // ep)) for ep in unit.column_counts]
    fitting = [choice for choice in choices if _fits(workload, machine, *choice)]
    if not fitting:
        ep, vp = min(choices, key=lambda choice: choice[0] * choice[1])
        raise HardwareError(
            f"{hardware.name}: its memories hold no two blocks of {ep} x {vp} elements and their sums; expected "
            f"memory 'b' of at least {2 * ep * vp * workload.a_bytes} bytes, 'acc' of {vp * workload.acc_bytes}"
        )
    ep, vp = min(fitting, key=lambda choice: (cycles(*choice), unit.latency(choice[0])))
    taken = cycles(ep, vp)
    piece = _Piece(workload, machine, rows, ep, vp, unit.latency(ep))
    utilisation = workload.macs / (unit.multipliers * taken)
    others = ", ".join(f"{other}: {cycles(other, lines)}" for other, lines in fitting if other != ep)
    return ColumnTiling(
        ep=ep,
        vp=vp,
        rows=piece.rows,
        columns=piece.columns,
        versions=piece.versions,
        vectors=piece.vectors,
        sums=piece.sums,
        cycles=taken,
        utilisation=utilisation,
        reasons=(
            Reason("ep", ep, f"{taken} cycles; by others {others}" if others else "the only one that the tree serves"),
            Reason("vp", vp, "all rows" if vp == rows else f"{unit.multipliers} multipliers beside {ep} columns"),
            Reason("rows", piece.rows, "of a piece: all" if piece.rows == rows else "of a piece: what memories hold"),
            Reason("columns", piece.columns, f"of a piece: {ceil_div(depth, piece.columns)} of them"),
            Reason("versions", piece.versions, f"a piece is given back {unit.latency(ep)} cycles after its last one"),
            Reason("cycles", taken, f"{unit.latency(ep)} of them until the last result is there"),
            Reason("utilisation", utilisation, f"{workload.macs} products on {unit.multipliers} multipliers"),
        ),
    )


def _fits(workload: GemmWorkload, machine: Machine, ep: int, vp: int) -> bool:
    """Whether the memories hold two blocks of the matrix and the sums of one."""
    room, sums = machine.capacity("b"), machine.capacity("acc")
    blocks = room is None or 2 * ep * vp * workload.a_bytes <= room
    return blocks and (sums is None or vp * workload.acc_bytes <= sums)


class _Piece:
    """The piece of the matrix, and how many versions of everything find room and are of use."""

    def __init__(self, workload: GemmWorkload, machine: Machine, rows: int, ep: int, vp: int, latency: int) -> None:
        w, memory = workload, machine.capacity
        blocks = ceil_div(w.k, ep)
        most = min(_holds(memory("b"), 2 * ep * w.a_bytes), _holds(memory("acc"), w.acc_bytes))
        if most >= 2 * vp:  # two versions of sums, where rows are cut at all
            most = min(most, max(vp, _holds(memory("acc"), 2 * w.acc_bytes)))
        self.rows = rows if most >= rows else most // vp * vp
        lines = ceil_div(self.rows, vp)
        held = _holds(memory("b"), self.rows * ep * w.a_bytes)  # blocks of EP columns
        together = max(1, min(ceil_div(blocks, PIECES), held // PIECES))
        self.columns = min(w.k, together * ep)
        turns = w.batch * ceil_div(rows, self.rows)
        wanted = 2 + latency // (together * lines)
        self.versions = max(1, min(wanted, held // together, turns * ceil_div(blocks, together)))
        whole = 2 + latency // (blocks * lines)
        self.vectors = max(1, min(whole, _holds(memory("a"), w.k * w.a_bytes), w.batch))
        self.sums = max(1, min(whole, _holds(memory("acc"), self.rows * w.acc_bytes), turns))


def _holds(room: int | None, size: int) -> int:
    """How many times `size` bytes find room."""
    return 1 << 62 if room is None else room // size
