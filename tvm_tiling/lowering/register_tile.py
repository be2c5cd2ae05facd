"""The microkernel in TIR: mr x nr accumulators in registers, with one step per group of the reduction axis.

Loops over rows, vectors and lanes are unrolled or vectorised with constant extents, so that LLVM keeps every
accumulator in a register. A tile at the edge is the same code with smaller constants, never a padded copy.

A matrix instruction sums blocks of several rows and columns. The sums of that many rows and one vector of columns take
as many registers, each of which holds a block during the loop, and a row while sums are loaded and stored;
transpose_sums() converts one into the other. An odd last row is multiplied twice.
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
from .registers import register, registers, small_buffer
from .transpose import transpose

Expr: TypeAlias = tirx.Expr
# (row within the tile, vector) -> the register of these sums
Accumulators: TypeAlias = dict[tuple[int, int], tirx.Var]
# (row within the tile, group of the reduction axis) -> one element of A, or groups of as many rows as an instruction
# takes, from that row on
ElementOfA = Callable[[int, Expr], Expr]

_KEPT_ROWS = 12  # of vectors in one small buffer


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
        """Return (row, vector) of every vector of results."""
        return [(i, v) for i in range(self.rows) for v in range(self.vectors)]


def accumulators(shape: TileShape, engine: DotInstruction) -> Accumulators:
    """Return a register for every vector of the tile, its rows rounded up to whole blocks of a matrix instruction."""
    rows = -(-shape.rows // engine.rows) * engine.rows
    slots = [(i, v) for i in range(rows) for v in range(shape.vectors)]
    return dict(zip(slots, registers(len(slots), shape.lanes, engine.acc), strict=True))


def clear_accumulators(acc: Accumulators, shape: TileShape, engine: DotInstruction) -> None:
    """Set acc[i, j] = 0, including idle lanes of the last vector."""
    zeros = T.broadcast(tirx.const(0, engine.acc), shape.lanes)
    for sums in acc.values():
        T.buffer_store(sums, zeros, [T.ramp(0, 1, shape.lanes)])


def transpose_sums(acc: Accumulators, shape: TileShape, engine: DotInstruction) -> None:
    """Turn registers of rows into registers of blocks for a matrix instruction, or back."""
    if engine.rows == 1:
        return
    assert engine.rows == 2
    half = shape.lanes // 2
    whole = T.ramp(0, 1, shape.lanes)
    low = [lane + part * shape.lanes for part in range(2) for lane in range(half)]
    for upper, vector in acc:
        if upper % 2:
            continue
        pair = acc[upper, vector], acc[upper + 1, vector]
        halves = [register(shape.lanes, engine.acc) for _ in pair]
        for number, held in enumerate(halves):
            order = [lane + number * half for lane in low]
            T.buffer_store(held, T.Shuffle([sums[whole] for sums in pair], order), [whole])
        for sums, held in zip(pair, halves, strict=True):
            T.buffer_store(sums, held[whole], [whole])


def groups_of_rows(engine: DotInstruction, rows: int, read: Callable[[int], Expr]) -> ElementOfA:
    """Return the elements of A for step_packed: read(row) for every row. For a matrix instruction the groups of two
    rows are joined, and an odd last row is used twice."""
    if engine.rows == 1:
        read_once = [read(row) for row in range(rows)]
        return lambda row, _: read_once[row]
    order = list(range(engine.rows * engine.group))
    joined = {
        row: T.Shuffle([read(min(row + part, rows - 1)) for part in range(engine.rows)], order)
        for row in range(0, rows, engine.rows)
    }
    return lambda row, _: joined[row]


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


def write_back(
    acc: Accumulators, shape: TileShape, store: Callable[[Expr, int | Expr, Expr], None], together: int = 1
) -> None:
    """Call store(accumulator, i, j) for every element of the tile, for `together` vectors or more at once."""
    if together > 1:
        _write_back_in_turn(acc, shape, store, together)
        return
    for row, vector in shape.slots():
        with T.vectorized(0, shape.width(vector)) as lane:
            store(acc[row, vector][lane], row, vector * shape.lanes + lane)


def _write_back_in_turn(
    acc: Accumulators, shape: TileShape, store: Callable[[Expr, int | Expr, Expr], None], together: int
) -> None:
    """Emit a loop whose turns store `together` vectors or more, for values that take many instructions.

    The sums wait in memory: functions of all of them in one piece of code take more registers than there are, and LLVM
    then computes one after the other.
    """
    lanes, whole = shape.lanes, T.ramp(0, 1, shape.lanes)
    rows_together = -(-together // shape.vectors)
    most = max(rows_together, _KEPT_ROWS // rows_together * rows_together)
    for first in range(0, shape.rows, most):
        rows = min(most, shape.rows - first)
        kept = [small_buffer((rows * lanes,), str(acc[first, vector].dtype)) for vector in range(shape.vectors)]
        for row in range(rows):
            for vector, sums in enumerate(kept):
                T.buffer_store(sums, acc[first + row, vector][whole], [T.ramp(row * lanes, 1, lanes)])

        def one_row(row: int | Expr, first: int = first, kept: list[tirx.Var] = kept) -> None:
            for vector, sums in enumerate(kept):
                with T.vectorized(0, shape.width(vector)) as lane:
                    store(sums[row * lanes + lane], row + first, vector * lanes + lane)

        turns = rows // rows_together
        if turns:
            with T.serial(0, turns) as turn:
                for part in range(rows_together):
                    one_row(turn * rows_together + part)
        for row in range(turns * rows_together, rows):
            one_row(row)


def write_back_turned(
    acc: Accumulators, shape: TileShape, wide: int, store: Callable[[Expr, int, int, int, Expr], None]
) -> None:
    """Emit store(sum, row, first, j, lane) for every element of a tile of rows of `wide` pixels, vectors of which are
    transposed in registers: lanes are pixels first + lane of a row, for outputs whose columns are adjacent."""
    lanes, kind = shape.lanes, str(next(iter(acc.values())).dtype)
    whole = T.ramp(0, 1, lanes)
    for vector in range(shape.vectors):
        for row in range(shape.rows // wide):
            for first in range(0, wide, lanes):
                width = min(lanes, wide - first)
                pixels = [acc[row * wide + first + min(i, width - 1), vector][whole] for i in range(lanes)]
                for j, turned in enumerate(transpose(pixels, kind)[: shape.width(vector)]):
                    kept = register(lanes, kind)
                    T.buffer_store(kept, turned, [whole])
                    with T.vectorized(0, width) as lane:
                        store(kept[lane], row, first, vector * lanes + j, lane)


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
    if engine.rows > 1:
        _step_blocks(acc, shape, k, a, panel, base, engine)
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


def _step_blocks(
    acc: Accumulators, shape: TileShape, k: Expr, a: ElementOfA, panel: tirx.Var, base: Expr, engine: DotInstruction
) -> None:
    """step_packed() for a matrix instruction: blocks of `engine.rows` rows by a part of a vector's columns. The operand
    that takes fewer registers stays in them, as registers_of() in decide/gemm/microkernel.py counts."""
    whole, length = T.ramp(0, 1, shape.lanes), shape.lanes // engine.rows * engine.group
    words = f"{engine.lane_word}x{shape.lanes}"
    blocks = range(0, shape.rows, engine.rows)
    parts = [(vector, part) for vector in range(shape.vectors) for part in range(engine.rows)]
    if len(blocks) < len(parts):
        order = [(row, vector, part) for vector, part in parts for row in blocks]
    else:
        order = [(row, vector, part) for row in blocks for vector, part in parts]
    for row, vector, part in order:
        at = base + (vector * engine.rows + part) * length
        slot = acc[row + part, vector]
        right = panel[T.ramp(at, 1, length)]
        total = dot(engine, slot[whole], T.reinterpret(words, a(row, k)), right, shape.lanes)
        T.buffer_store(slot, total, [whole])
