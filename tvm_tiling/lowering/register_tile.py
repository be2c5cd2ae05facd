"""The microkernel in TIR: mr x nr accumulators in registers, with one step per group of the reduction axis.

Loops over rows, vectors and lanes are unrolled or vectorised with constant extents, so that LLVM keeps every
accumulator in a register. A tile at the edge is the same code with smaller constants, never a padded copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..hardware.dot_instructions import DotInstruction
from .dot import dot, every_lane, from_panel
from .loops import when
from .prefetch import prefetch
from .registers import registers

Expr: TypeAlias = tirx.Expr
# (row within the tile, vector) -> the register of these sums
Accumulators: TypeAlias = dict[tuple[int, int], tirx.Var]
# (row within the tile, group of the reduction axis) -> one element of A
ElementOfA = Callable[[int, Expr], Expr]


@dataclass(frozen=True)
class TileShape:
    """`rows` rows by `columns` columns; the last vector may be partly used."""

    rows: int
    columns: int
    lanes: int

    @property
    def vectors(self) -> int:
        return -(-self.columns // self.lanes)

    def width(self, vector: int) -> int:
        """Return the number of columns in a vector."""
        return min(self.lanes, self.columns - vector * self.lanes)

    def slots(self) -> list[tuple[int, int]]:
        """Return (row, vector) of every accumulator."""
        return [(i, v) for i in range(self.rows) for v in range(self.vectors)]


def accumulators(shape: TileShape, engine: DotInstruction) -> Accumulators:
    """Return a register for every vector of the tile."""
    slots = shape.slots()
    return dict(zip(slots, registers(len(slots), shape.lanes, engine.acc), strict=True))


def clear_accumulators(acc: Accumulators, shape: TileShape, engine: DotInstruction) -> None:
    """Set acc[i, j] = 0, including idle lanes of the last vector."""
    zeros = T.broadcast(tirx.const(0, engine.acc), shape.lanes)
    for slot in shape.slots():
        T.buffer_store(acc[slot], zeros, [T.ramp(0, 1, shape.lanes)])


def resume(acc: Accumulators, shape: TileShape, first: Expr | bool, value: Callable[[int, Expr], Expr]) -> None:
    """Emit acc[i, j] += value(i, j) unless this K block is the `first`; only for the used columns, since the others may
    be outside the matrix."""
    if first is True:
        return
    with when(tirx.Not(first)):
        for row, vector in shape.slots():
            with T.vectorized(0, shape.width(vector)) as lane:
                so_far = value(row, vector * shape.lanes + lane)
                T.buffer_store(acc[row, vector], acc[row, vector][lane] + so_far, [lane])


def write_back(acc: Accumulators, shape: TileShape, store: Callable[[Expr, int, Expr], None]) -> None:
    """Call store(accumulator, i, j) for every element of the tile."""
    for row, vector in shape.slots():
        with T.vectorized(0, shape.width(vector)) as lane:
            store(acc[row, vector][lane], row, vector * shape.lanes + lane)


def step_in_place(acc: Accumulators, shape: TileShape, k: Expr, a: ElementOfA, b: Callable[[Expr, Expr], Expr]) -> None:
    """Emit the step for one element of K with B read in place: b(k, column)."""
    for row, vector in shape.slots():
        with T.vectorized(0, shape.width(vector)) as lane:
            product = a(row, k) * b(k, vector * shape.lanes + lane)
            T.buffer_store(acc[row, vector], acc[row, vector][lane] + product, [lane])


def step_packed(
    acc: Accumulators,
    shape: TileShape,
    k: Expr,
    a: ElementOfA,
    panel: tirx.Var,
    base: Expr,
    engine: DotInstruction,
    *,
    from_memory: bool = False,
) -> None:
    """Emit the step for one group of the reduction axis with B in a packed panel whose group starts at `base`.

    from_memory: the panel may have to be read from memory, so it is prefetched.
    """
    lanes, group = shape.lanes, engine.group
    if from_memory:
        prefetch(panel, base, shape.vectors * lanes * group)
    # TVM does not vectorise conversions from a vector's words; integer sums are made to wrap around later.
    if engine.stored or (group == 1 and "int" in engine.acc):
        for row, vector in shape.slots():
            slot = acc[row, vector]
            with T.vectorized(0, lanes) as lane:
                product = a(row, k) * from_panel(engine, panel[base + vector * lanes + lane])
                T.buffer_store(slot, slot[lane] + product, [lane])
        return
    whole = T.ramp(0, 1, lanes)
    right = [panel[T.ramp(base + vector * lanes * group, 1, lanes * group)] for vector in range(shape.vectors)]
    for row in range(shape.rows):
        if group == 1:
            left = T.broadcast(a(row, k), lanes)
        else:
            left = every_lane(engine, T.reinterpret(engine.word, a(row, k)), lanes)
        for vector in range(shape.vectors):
            slot = acc[row, vector]
            if group == 1:
                total = slot[whole] + left * right[vector]
            else:
                total = dot(engine, slot[whole], left, right[vector], lanes)
            T.buffer_store(slot, total, [whole])
