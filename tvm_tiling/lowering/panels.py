"""Packing: B into panels of nr columns, rows of A into a buffer with its own leading dimension.

For each group of the reduction axis, a panel holds nr columns side by side, with the group's elements of one column
adjacent: [group of k][column][element of the group]. Columns and elements of K outside the matrix are zero. For an
instruction that offsets A (see decide/dot_engine.py), one more row of 32-bit words follows: the initial values of the
accumulators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..hardware.dot_instructions import DotInstruction
from .dot import dot
from .registers import register, registers
from .transpose import transpose

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
Element = Callable[[Index, Index], Expr]


@dataclass(frozen=True)
class PanelLayout:
    """Sizes of packed panels, in elements of engine.panel; `groups` is the largest number of groups in a K block."""

    nr: int
    lanes: int
    groups: int
    engine: DotInstruction

    @property
    def row(self) -> int:
        """Elements of one group of the reduction axis."""
        return self.nr * self.engine.group

    @property
    def rows(self) -> int:
        return self.groups + (1 if self.engine.offset else 0)

    @property
    def size(self) -> int:
        """Elements of one panel of one K block."""
        return self.rows * self.row

    def starts(self, panel: tirx.Var, base: Index, vector: int) -> Expr:
        """Return the accumulators' initial values for one vector as 32-bit words."""
        offset = base + self.groups * self.row + vector * self.lanes * self.engine.group
        return T.reinterpret(
            f"{self.engine.word}x{self.lanes}", panel[T.ramp(offset, 1, self.lanes * self.engine.group)]
        )


def pack_panel_group(
    panel: tirx.Var, base: Index, b: Element, k: Index, layout: PanelLayout, columns: int, rows: int
) -> None:
    """Write one group of a panel at `base`: its first `rows` elements of K, b(k + r, column), and zeros elsewhere."""
    engine, lanes, group = layout.engine, layout.lanes, layout.engine.group
    zero = tirx.const(0, engine.panel)
    for start in range(0, layout.nr, lanes):
        used = max(0, min(lanes, columns - start))
        if group > 1 and used == lanes and rows == group:
            _interleave(panel, base + start * group, b, k, start, layout)
            continue
        for r in range(group):
            filled = used if r < rows else 0
            if filled:
                with T.vectorized(0, filled) as lane:
                    T.buffer_store(panel, b(k + r, start + lane), [base + (start + lane) * group + r])
            if filled < lanes:
                with T.vectorized(0, lanes - filled) as lane:
                    T.buffer_store(panel, zero, [base + (start + filled + lane) * group + r])


def _interleave(panel: tirx.Var, at: Index, b: Element, k: Index, start: int, layout: PanelLayout) -> None:
    """Write full vectors of a grouped instruction: the rows of one group are loaded whole and shuffled into columns."""
    lanes, group = layout.lanes, layout.engine.group
    rows = register(lanes * group, layout.engine.operand)
    for r in range(group):
        with T.vectorized(0, lanes) as lane:
            T.buffer_store(rows, b(k + r, start + lane), [r * lanes + lane])
    order = [r * lanes + lane for lane in range(lanes) for r in range(group)]
    whole = rows[T.ramp(0, 1, lanes * group)]
    T.buffer_store(panel, T.Shuffle([whole], order), [T.ramp(at, 1, lanes * group)])


def pack_transposed(panel: tirx.Var, base: Index, b: Element, group: Index, layout: PanelLayout, columns: int) -> None:
    """Write `lanes` groups of a panel, starting at `group`, if B's columns are contiguous; `base` is the panel's start.

    A group of narrow elements is one word, so words are transposed for every instruction.
    """
    engine, lanes = layout.engine, layout.lanes
    word = engine.word if engine.group > 1 else engine.panel
    length = lanes * engine.group
    for start in range(0, layout.nr, lanes):
        rows = registers(lanes, lanes, word)
        whole = T.ramp(0, 1, lanes)
        for j, row in enumerate(rows):
            if start + j >= columns:
                T.buffer_store(row, T.broadcast(tirx.const(0, word), lanes), [whole])
            elif engine.group == 1:
                with T.vectorized(0, lanes) as lane:
                    T.buffer_store(row, b(group + lane, start + j), [lane])
            else:
                elements = register(length, engine.operand)
                with T.vectorized(0, length) as lane:
                    T.buffer_store(elements, b(group * engine.group + lane, start + j), [lane])
                T.buffer_store(row, T.reinterpret(f"{word}x{lanes}", elements[T.ramp(0, 1, length)]), [whole])
        for i, column in enumerate(transpose([row[whole] for row in rows], word)):
            at = T.ramp(base + (group + i) * layout.row + start * engine.group, 1, length)
            value = column if engine.group == 1 else T.reinterpret(f"{engine.operand}x{length}", column)
            T.buffer_store(panel, value, [at])


def pack_starts(panel: tirx.Var, base: Index, groups: Expr, layout: PanelLayout) -> None:
    """Append to a packed panel -offset times each column's sum, which cancels the offset of A."""
    lanes = layout.lanes
    vectors = layout.nr // lanes
    sums = registers(vectors, lanes, "int32")
    whole = T.ramp(0, 1, lanes)
    for v in range(vectors):
        T.buffer_store(sums[v], T.broadcast(tirx.const(0, "int32"), lanes), [whole])
    ones = T.broadcast(tirx.const(0x01010101, "int32"), lanes)
    width = lanes * layout.engine.group
    with T.serial(0, groups) as k:
        for v in range(vectors):
            right = panel[T.ramp(base + k * layout.row + v * width, 1, width)]
            T.buffer_store(sums[v], dot(layout.engine, sums[v][whole], ones, right, lanes), [whole])
    for v in range(vectors):
        words = sums[v][whole] * T.broadcast(tirx.const(-layout.engine.offset, "int32"), lanes)
        at = base + layout.groups * layout.row + v * width
        T.buffer_store(panel, T.reinterpret(f"{layout.engine.operand}x{width}", words), [T.ramp(at, 1, width)])


def copy_rows(buffer: tirx.Var, rows: range, stride: int, a: Element, length: Index, padded: Index, chunk: int) -> None:
    """Copy `length` elements of the tile's `rows` to buffer[(i - rows.start) * stride + k], with zeros up to
    `padded`."""
    for i in rows:
        copy_row(buffer, (i - rows.start) * stride, i, a, length, padded, chunk)


def copy_row(buffer: tirx.Var, at: Index, i: Index, a: Element, length: Index, padded: Index, chunk: int) -> None:
    """Copy `length` elements of row `i` to buffer[at + k], with zeros up to `padded`."""
    with T.serial(0, tirx.floordiv(length, chunk)) as block, T.vectorized(0, chunk) as lane:
        T.buffer_store(buffer, a(i, block * chunk + lane), [at + block * chunk + lane])
    whole = tirx.floordiv(length, chunk) * chunk
    with T.serial(0, length - whole) as rest:
        T.buffer_store(buffer, a(i, whole + rest), [at + whole + rest])
    if padded is not length:
        with T.serial(0, padded - length) as rest:
            T.buffer_store(buffer, tirx.const(0, str(buffer.dtype)), [at + length + rest])


def copy_blocks(
    buffer: tirx.Var, rows: int, stride: int, a: Element, length: Index, padded: Index, engine: DotInstruction
) -> None:
    """Copy `length` elements of `rows` rows as a matrix instruction takes them: the rows of one instruction from
    buffer[row * stride] on, group by group, each group of all its rows. An odd row is copied twice."""
    group, width = engine.group, engine.rows * engine.group
    chunk = 2 * group
    order = [part * chunk + g * group + e for g in range(2) for part in range(engine.rows) for e in range(group)]
    zero = tirx.const(0, str(buffer.dtype))
    for row in range(0, rows, engine.rows):
        parts = [min(row + part, rows - 1) for part in range(engine.rows)]
        with T.serial(0, tirx.floordiv(length, chunk)) as block:
            held = register(engine.rows * chunk, engine.operand)
            for part, i in enumerate(parts):
                with T.vectorized(0, chunk) as lane:
                    T.buffer_store(held, a(i, block * chunk + lane), [part * chunk + lane])
            woven = T.Shuffle([held[T.ramp(0, 1, engine.rows * chunk)]], order)
            at = row * stride + block * (2 * width)
            T.buffer_store(buffer, woven, [T.ramp(at, 1, 2 * width)])
        whole = tirx.floordiv(length, chunk) * chunk
        with T.serial(0, padded - whole) as rest:
            k = whole + rest
            at = row * stride + tirx.floordiv(k, group) * width + tirx.floormod(k, group)
            for part, i in enumerate(parts):
                with T.If(k < length):
                    with T.Then():
                        T.buffer_store(buffer, a(i, k), [at + part * group])
                    with T.Else():
                        T.buffer_store(buffer, zero, [at + part * group])


def copy_columns(buffer: tirx.Var, rows: int, stride: int, a: Element, length: Index) -> None:
    """Copy a tile of an A with contiguous columns: buffer[k * stride + i] = a(i, k)."""
    with T.serial(0, length) as k, T.vectorized(0, rows) as i:
        T.buffer_store(buffer, a(i, k), [k * stride + i])
