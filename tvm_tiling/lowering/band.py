"""Copies a band of the input to a layout suited to the microkernel: padded, channels last, in the multiply
instruction's type.

One pass does all that is needed: padding (combined with the stride-fold, whose rows are rounded up), moving channels
last, conversion, and a distance between positions that avoids collisions in L1. A band has as many rows as stay in L2,
so the copy costs one load and one store for data that is read many times.

    band[tap of depth][row][position][channel]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from .registers import registers
from .transpose import transpose

# The last square of a row is transposed if it has at least this share of the columns; otherwise they are copied one by
# one.
FEWEST_TURNED = 4

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
# (column of the image, channel) -> the element in the instruction's type
RowElement = Callable[[Index, Index], Expr]


@dataclass(frozen=True)
class BandLayout:
    """Sizes of a band in elements. `rows` are those of one tap of depth, `columns` are positions of a row."""

    depth: int
    rows: int
    columns: int
    channels: int
    pitch: int  # from one position to the next
    slack: int = 0  # after the band, for instructions that read whole groups

    @property
    def row(self) -> int:
        return self.columns * self.pitch

    @property
    def size(self) -> int:
        return self.depth * self.rows * self.row + self.slack

    def at(self, depth: Index, row: Index, column: Index) -> Index:
        """Return the offset of a position's first channel."""
        return ((depth * self.rows + row) * self.columns + column) * self.pitch


@dataclass(frozen=True)
class RowSource:
    """The source of a band's row: column x of the band is column x * step + start of the image.

    `flat`: the image's row is one run of positions with adjacent channels that may be copied as a whole. `run`: number
    of adjacent channels; 1 if columns are adjacent instead.
    """

    size: int  # columns of the image
    start: int
    step: int
    channels: int
    run: int
    flat: bool

    def inside(self, columns: int) -> tuple[int, int]:
        """Return [first, end) of the band's columns that are inside the image."""
        first = max(0, -(self.start // self.step))
        end = (self.size - 1 - self.start) // self.step + 1
        return min(first, columns), max(min(first, columns), min(columns, end))


def copy_row(
    band: tirx.Var, base: Index, layout: BandLayout, source: RowSource, element: RowElement, lanes: int, zero: Expr
) -> None:
    """Fill one row of a band starting at `base`."""
    first, end = source.inside(layout.columns)
    clear(band, base, first * layout.pitch, lanes, zero)
    at = base + first * layout.pitch
    column = first * source.step + source.start
    if source.flat and source.step == 1 and layout.pitch == source.channels:
        # The image's row is contiguous, so a channel index past the last is the next position.
        runs(
            (end - first) * source.channels,
            lanes,
            lambda f, k: _copy(band, at + f, lambda i: element(column, f + i), k),
        )
    elif source.run >= min(lanes, source.channels):
        with T.serial(0, end - first) as x:
            to, here = at + x * layout.pitch, column + x * source.step
            runs(source.channels, lanes, lambda c, k: _copy(band, to + c, lambda i: element(here, c + i), k))
    else:
        _turned(band, at, layout, source, column, end - first, element, lanes)
    clear(band, base + end * layout.pitch, (layout.columns - end) * layout.pitch, lanes, zero)


def clear(band: tirx.Var, at: Index, count: int, lanes: int, zero: Expr) -> None:
    """Set `count` elements starting at `at` to `zero`."""
    runs(count, lanes, lambda f, k: _copy(band, at + f, lambda _: zero, k))


def runs(count: int, lanes: int, emit: Callable[[Index, int], None]) -> None:
    """Call emit(first element, elements) to cover range(count) with whole vectors and one narrower vector."""
    whole, rest = divmod(count, lanes)
    if whole == 1:
        emit(0, lanes)
    elif whole:
        with T.serial(0, whole) as v:
            emit(v * lanes, lanes)
    if rest:
        emit(whole * lanes, rest)


def _copy(band: tirx.Var, at: Index, value: Callable[[Expr], Expr], count: int) -> None:
    with T.vectorized(0, count) as lane:
        T.buffer_store(band, value(lane), [at + lane])


def _turned(
    band: tirx.Var,
    at: Index,
    layout: BandLayout,
    source: RowSource,
    column: int,
    count: int,
    element: RowElement,
    lanes: int,
) -> None:
    """Copy a row whose columns are adjacent in memory: lanes x lanes squares are transposed in registers, the last one
    of fewer columns."""
    squares, rest = divmod(count, lanes) if source.step == 1 else (0, 0)
    if rest < lanes // FEWEST_TURNED:
        rest = 0
    blocks, kind = source.channels // lanes, str(band.dtype)
    whole = T.ramp(0, 1, lanes)

    def turn(block: Index, first: Index, columns: int) -> None:
        rows = registers(lanes, lanes, kind)
        for i, row in enumerate(rows):
            with T.vectorized(0, columns) as lane:
                T.buffer_store(row, element(column + first + lane, block * lanes + i), [lane])
        for i, turned in enumerate(transpose([row[whole] for row in rows], kind)[:columns]):
            to = at + (first + i) * layout.pitch + block * lanes
            T.buffer_store(band, turned, [T.ramp(to, 1, lanes)])

    if squares and blocks:
        with T.serial(0, blocks) as block, T.serial(0, squares) as square:
            turn(block, square * lanes, lanes)
    if rest and blocks:
        with T.serial(0, blocks) as block:
            turn(block, squares * lanes, rest)
    done = squares * lanes + rest if blocks else 0

    def single(x: Index, c: Index) -> None:
        T.buffer_store(band, element(column + x * source.step, c), [at + x * layout.pitch + c])

    if count > done:
        with T.serial(0, source.channels) as c, T.serial(0, count - done) as x:
            single(done + x, c)
    if done and source.channels > blocks * lanes:
        with T.serial(0, source.channels - blocks * lanes) as c, T.serial(0, done) as x:
            single(x, blocks * lanes + c)
