"""Matrix-vector multiplication on the column engine: the numbers of columns and rows at once, and the pieces of the
matrix.

A matrix of `rows` x `depth` takes ceil(depth/EP) * ceil(rows/VP) cycles plus the latency of EP at the end; VP is the
largest number of rows for which there are multipliers with EP columns. There are few values of EP, so all are tried.
The matrix is loaded in pieces, whole multiples of EP columns and of VP rows, so that each is loaded while the previous
one is multiplied and the pieces take no more cycles in total. A piece is freed when its results are available, the
latency after its last cycle. The chip therefore holds as many versions of pieces, vectors and sums as keep the engine
busy until then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...errors import HardwareError
from ...figures import quantity
from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ...workload import GemmWorkload
from ..explain import Sections
from ..gemm.traffic import ceil_div, refuse_types
from ..tiling import Decision, Reason

PIECES = 8  # pieces of the columns, so that all loads but the first overlap with multiplications


@dataclass(frozen=True, kw_only=True)
class ColumnTiling(Decision):
    """A matrix-vector multiplication: `ep` columns and `vp` rows at once, in pieces of `rows` x `columns` elements of
    the matrix.

    The chip holds `versions` pieces, `vectors` vectors (of a batch) and `sums` versions of the sums of a piece's rows.
    `cycles` includes the latency of the last result and assumes that loads overlap; `utilisation` is that of the
    multipliers.
    """

    op: ClassVar[str] = "column"
    title: ClassVar[str] = "matrix-vector multiplication"

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
    """Return the configuration of a matrix-vector multiplication, m = 1 or n = 1, on `hardware.column`: the fewest
    cycles, then the smallest latency.

    Raises HardwareError if the unit does not support the type, or its memories cannot hold two blocks of EP x VP and VP
    sums.
    """
    unit = hardware.column
    assert unit is not None and 1 in (workload.m, workload.n)  # guaranteed by the choice of kind
    refuse_types(hardware, unit, workload)  # ensures that matrix and vector have elements of the same size
    rows, depth, machine = max(workload.m, workload.n), workload.k, Machine(hardware)

    def cycles(ep: int, vp: int) -> int:
        return workload.batch * ceil_div(depth, ep) * ceil_div(rows, vp) + unit.latency(ep)

    choices = [(ep, min(rows, unit.multipliers // ep)) for ep in unit.column_counts]
    fitting = [choice for choice in choices if _fits(workload, machine, *choice)]
    if not fitting:
        ep, vp = min(choices, key=lambda choice: choice[0] * choice[1])
        raise HardwareError(
            f"{hardware.name}: its memories cannot hold two blocks of {ep} x {vp} elements and their sums; expected "
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
            Reason("ep", ep, f"{taken} cycles; with EP {others}" if others else "the only EP that the tree supports"),
            Reason("vp", vp, "all rows" if vp == rows else f"{unit.multipliers} multipliers for {ep} columns"),
            Reason("rows", piece.rows, "per piece: all" if piece.rows == rows else "per piece: the most that fits"),
            Reason("columns", piece.columns, f"per piece: {quantity(ceil_div(depth, piece.columns), 'piece')}"),
            Reason(
                "versions", piece.versions, f"a piece is freed {unit.latency(ep)} cycles after its last multiplication"
            ),
            Reason("cycles", taken, f"including {unit.latency(ep)} until the last result"),
            Reason("utilisation", utilisation, f"{workload.macs} multiplications on {unit.multipliers} multipliers"),
        ),
    )


def _fits(workload: GemmWorkload, machine: Machine, ep: int, vp: int) -> bool:
    """Return whether the memories hold two blocks of the matrix and the sums of one."""
    room, sums = machine.capacity("b"), machine.capacity("acc")
    blocks = room is None or 2 * ep * vp * workload.a_bytes <= room
    return blocks and (sums is None or vp * workload.acc_bytes <= sums)


class _Piece:
    """The piece of the matrix, and how many versions of everything fit and are useful."""

    def __init__(self, workload: GemmWorkload, machine: Machine, rows: int, ep: int, vp: int, latency: int) -> None:
        w, memory = workload, machine.capacity
        blocks = ceil_div(w.k, ep)
        most = min(_holds(memory("b"), 2 * ep * w.a_bytes), _holds(memory("acc"), w.acc_bytes))
        if most >= 2 * vp:  # two versions of sums, if rows are divided at all
            most = min(most, max(vp, _holds(memory("acc"), 2 * w.acc_bytes)))
        self.rows = rows if most >= rows else most // vp * vp
        lines = ceil_div(self.rows, vp)
        held = _holds(memory("b"), self.rows * ep * w.a_bytes)  # blocks of EP columns that fit
        together = max(1, min(ceil_div(blocks, PIECES), held // PIECES))
        self.columns = min(w.k, together * ep)
        turns = w.batch * ceil_div(rows, self.rows)
        wanted = 2 + latency // (together * lines)
        self.versions = max(1, min(wanted, held // together, turns * ceil_div(blocks, together)))
        whole = 2 + latency // (blocks * lines)
        self.vectors = max(1, min(whole, _holds(memory("a"), w.k * w.a_bytes), w.batch))
        self.sums = max(1, min(whole, _holds(memory("acc"), self.rows * w.acc_bytes), turns))


def _holds(room: int | None, size: int) -> int:
    """Return how many times `size` bytes fit."""
    return 1 << 62 if room is None else room // size
