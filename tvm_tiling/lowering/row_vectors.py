"""Vectors of adjacent output columns as a tap reads them: every stride-th input of a row, with zeros outside.

Inputs are read once, in whole vectors that end within the row, and each tap's elements are selected in registers.
Without stride and padding, a tap reads its own vector: a load costs less than a permutation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.shape import Axis
from .registers import register
from .taps import Tile

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


class RowVectors:
    """One input row under a tile of output columns; `element`: the input at a column, in type `kind`."""

    def __init__(self, axis: Axis, tile: Tile, lanes: int, kind: str, element: Callable[[Index], Expr]) -> None:
        self.axis, self.tile, self.lanes, self.kind, self.element = axis, tile, lanes, kind, element
        inside = [o for o in range(axis.reach(tile.count)) if tile.covers(axis, o)]
        # Range of offsets that are read, from the input of tap 0 at the first column.
        self.first, self.end = (inside[0], inside[-1] + 1) if inside else (0, 0)

    def under(self, tap: int, column: int, width: int) -> Expr | None:
        """Return what `tap` reads for the `width` columns of the tile starting at `column`; None if all of it is
        outside."""
        axis = self.axis
        offsets = [(column + lane) * axis.stride + tap * axis.dilation for lane in range(width)]
        covered = [self.first <= o < self.end for o in offsets]
        if not any(covered):
            return None
        if all(covered) and (axis.stride == 1 or width == 1):
            return self._load(offsets[0], width)
        return self._picked(offsets, covered)

    def _picked(self, offsets: list[int], covered: list[bool]) -> Expr:
        """Return the inputs at `offsets`, zeros where they are not covered, from loads on a grid of whole vectors."""
        size = min(self.lanes, self.end - self.first)
        places: list[tuple[int, int]] = []
        for offset in (o for o, inside in zip(offsets, covered, strict=True) if inside):
            start = min(self.first + (offset - self.first) // size * size, self.end - size)
            places.append((start, offset - start))
        starts = sorted({start for start, _ in places})
        vectors = [self._load(start, size) for start in starts]
        zero = tirx.const(0, self.kind)
        zeros = T.broadcast(zero, size) if size > 1 else zero
        if not all(covered):
            vectors.append(zeros)
        # The result of TVM's Shuffle has at most as many lanes as its operands.
        vectors += [zeros] * (-(-len(offsets) // size) - len(vectors))
        taken = iter(places)
        picks = []
        for inside in covered:
            if inside:
                start, lane = next(taken)
                picks.append(starts.index(start) * size + lane)
            else:
                picks.append(len(starts) * size)
        return T.Shuffle(vectors, picks)

    def _load(self, offset: int, width: int) -> Expr:
        """Return `width` adjacent inputs."""
        at = self.tile.input(self.axis) + offset
        loaded = register(self.lanes, self.kind)
        with T.vectorized(0, width) as lane:
            T.buffer_store(loaded, self.element(at + lane), [lane])
        return loaded[T.ramp(0, 1, width) if width > 1 else 0]
