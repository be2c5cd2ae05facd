"""Winograd convolutions with dynamic image height and width: the loop nest of conv_winograd.py with image tiles counted
at run time.

Image tiles of all images are divided evenly among tasks, those of a task among blocks, and those of a block among
register tiles of at most mr rows, with heights that differ by at most one; there is a microkernel for every height.
Every block checks the position of its image tiles, since any of them may cross the border.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.open_winograd import OpenConvTiling
from ..hardware.description import Cpu
from ..lowering.extents import parts_of, product_of
from ..lowering.loops import share, when
from ..lowering.register_tile import TileShape
from ..lowering.registers import in_register
from ..lowering.samples import Extent
from ..lowering.winograd_transform import DTYPE
from ..match.open_conv import OpenConvProgram
from .conv_winograd import Expr, Index, Place, WinogradEmitter
from .open_gemm import held


def _number(value: int) -> Expr:
    return tirx.const(value, "int64")


class OpenWinogradEmitter(WinogradEmitter):
    """Emits one convolution of dynamic images."""

    has_border = True
    divides = False

    def __init__(self, program: OpenConvProgram, tiling: OpenConvTiling, cpu: Cpu) -> None:
        assert tiling.winograd is not None
        super().__init__(program, tiling.winograd, cpu)
        self.open, self.ranges = program, tiling.ranges
        self.block_tiles = tiling.winograd.block_tiles
        self.prefetching_tiles = 1  # how many a block has is known at run time

    def emit(self, packed: tirx.Var | None) -> None:
        self.from_memory = packed is not None
        if packed is None:
            packed = T.alloc_buffer((self.points * self.u_point,), self.packed_dtype)
            self.pack_whole(packed)
        counts = [self.tiles_along(*axis) for axis in zip(self.open.points, self.w.dilation, strict=True)]
        tiles = in_register(product_of((self.open.images, *counts)))
        tt, tc = (in_register(self.by_tiles(part, tiles)) for part in range(2))
        with T.parallel(0, tt * tc) as task:
            # In registers of the task: values of the enclosing function would be reloaded after every store.
            self.height, self.width = map(in_register, self.open.size)
            self.ho, self.wo = map(in_register, self.open.points)
            self.tile_rows, self.tile_columns = map(in_register, counts)
            first, end = share(in_register(tiles), tirx.floordiv(task, tc), tt)
            panel0, panel1 = share(self.panels, tirx.floormod(task, tc), tc)
            self.task(packed, held(first), held(end), held(panel0), held(panel1))

    def tiles_along(self, points: Extent, dilation: int) -> Extent:
        """Return the image tiles along an axis with that many outputs."""
        return product_of((dilation, parts_of(parts_of(points, dilation), self.m)))

    def by_tiles(self, part: int, tiles: Extent) -> Extent:
        """Return the shares of the image tiles or the channels for the number of image tiles at run time."""
        found: Extent = self.ranges[-1].threads[part]
        for below in self.ranges[-2::-1]:
            found = tirx.Select(tiles <= below.tiles, _number(below.threads[part]), _expr(found))
        return found

    def task(self, packed: tirx.Var, tile0: Expr, tile1: Expr, panel0: Expr, panel1: Expr) -> None:
        most = self.block_tiles
        v = T.alloc_buffer((most * self.v_tile,), DTYPE)
        sums = T.alloc_buffer((most * self.m_tile,), DTYPE)
        blocks = held(tirx.ceildiv(tile1 - tile0, _number(most)))
        with T.serial(0, blocks) as block:
            start, end = share(tile1 - tile0, block, blocks)
            first = held(tile0 + start)
            count = held(tile0 + end - first)
            self.transform_inputs(v, first, count)
            with T.serial(0, tirx.ceildiv(panel1 - panel0, self.block_panels)) as channels:
                panel = held(panel0 + channels * self.block_panels)
                panels = held(tirx.min(self.block_panels, panel1 - panel))
                self.products(v, sums, packed, partial(self.every_height, count), panel, panels)
                self.transform_outputs(sums, first, count, panel * self.nr, panels * self.nr)

    def every_height(self, count: Expr, emit: Callable[[Index, int], None]) -> None:
        """Call emit(first image tile, rows) for register tiles that divide `count` image tiles evenly."""
        groups = held(tirx.ceildiv(count, _number(self.mr)))
        height = held(tirx.ceildiv(count, tirx.max(groups, 1)))
        taller = held(count - groups * (height - 1))
        with T.serial(0, groups) as group:
            rows = held(height - tirx.Cast("int64", group >= taller))
            first = held(group * height - tirx.max(group - taller, 0))
            for size in range(1, self.mr + 1):
                with when(tirx.EQ(rows, _number(size))):
                    emit(first, size)

    def product(
        self, shape: TileShape, left: Place, weights: Place, result: Place, following: Index, tile: Index
    ) -> None:
        left, weights, result = ((buffer, held(at)) for buffer, at in (left, weights, result))
        super().product(shape, left, weights, result, held(following), 0)

    def tile(self, number: Index) -> tuple[Index, Index, Index]:
        image, row, column = super().tile(number)
        return held(image), held(row), held(column)


def _expr(extent: Extent) -> Expr:
    return extent if isinstance(extent, tirx.Expr) else _number(extent)
