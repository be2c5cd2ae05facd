"""Iteration over an axis of a convolution: tiles of its output points, and the input points under the taps of a tile.

Padding is neither copied nor computed. A tile whose position is known statically omits the taps outside the image; a
tile in the middle has none of these; a single point at an arbitrary position loops over its taps inside the image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.shape import Axis
from .loops import when

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
# (input coordinate, (point of the tile, tap) of all its uses)
Visit = Callable[[Index, list[tuple[int, Index]]], None]


@dataclass(frozen=True)
class Tile:
    """`count` output points of an axis starting at `first`. `walked`: one point, whose taps are a loop."""

    first: Index
    count: int
    walked: bool = False

    def input(self, axis: Axis) -> Index:
        """Return the input coordinate of tap 0 at the first point."""
        return self.first * axis.stride + axis.start

    def covers(self, axis: Axis, offset: int) -> bool:
        """Return whether the input has the point `offset` after that of tap 0, as far as is known statically."""
        return not isinstance(self.first, int) or 0 <= self.first * axis.stride + axis.start + offset < axis.size


@dataclass(frozen=True)
class Tiles:
    """An axis divided into tiles of `size` points. Those in [left, right) are full and have all their taps inside."""

    axis: Axis
    size: int
    walked: bool = False

    @property
    def count(self) -> int:
        return -(-self.axis.points // self.size)

    @property
    def middle(self) -> tuple[int, int]:
        """[left, right)."""
        left = -(-self.axis.inside[0] // self.size)
        return left, max(left, self.axis.inside[1] // self.size)

    def emit(self, start: Index, end: Index, tile: Callable[[Tile], None]) -> None:
        """Call tile(...) for the tiles numbered [start, end)."""
        if self.walked:
            with T.serial(0, end - start) as i:
                tile(Tile(start + i, 1, walked=True))
            return
        whole = isinstance(start, int) and isinstance(end, int) and (start, end) == (0, self.count)
        left, right = self.middle

        def alone(number: int) -> None:
            first = number * self.size
            known = Tile(first, min(self.size, self.axis.points - first))
            if whole:
                tile(known)
                return
            with when(tirx.all(start <= number, number < end)):
                tile(known)

        for number in range(min(left, self.count)):
            alone(number)
        if right > left:
            low, high = (left, right) if whole else (tirx.max(start, left), tirx.min(end, right))
            with T.serial(0, high - low if whole else tirx.max(0, high - low)) as i:
                tile(Tile((low + i) * self.size, self.size))
        for number in range(right, self.count):
            alone(number)


def visit(axis: Axis, tile: Tile, emit: Visit) -> None:
    """Call emit(...) once for every input point under the tile's taps."""
    at = tile.input(axis)
    if tile.walked:
        first, end = _taps_inside(axis, at)
        with T.serial(0, end - first) as t:
            tap = first + t
            emit(at + tap * axis.dilation, [(0, tap)])
        return
    for offset in range(axis.reach(tile.count)):
        uses = supported(axis, tile, offset)
        if uses and tile.covers(axis, offset):
            emit(at + offset, uses)


def supported(axis: Axis, tile: Tile, offset: int) -> list[tuple[int, Index]]:
    """Return the (point of the tile, tap) that read the input `offset` after that of tap 0 at the first point."""
    taps = [(p, offset - p * axis.stride) for p in range(tile.count)]
    reach = axis.taps * axis.dilation
    return [(p, t // axis.dilation) for p, t in taps if 0 <= t < reach and t % axis.dilation == 0]


def _taps_inside(axis: Axis, at: Index) -> tuple[Index, Index]:
    """Return [first, end) of the taps inside the image for the point whose tap 0 reads input `at`."""
    if not axis.padded:
        return 0, axis.taps
    first = tirx.max(0, tirx.ceildiv(-at, axis.dilation))
    return first, tirx.max(first, tirx.min(axis.taps, tirx.ceildiv(axis.size - at, axis.dilation)))
