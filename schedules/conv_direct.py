"""Direct convolution on the CPU: a matrix multiplication whose rows are output pixels, read through the geometry of the
input.

There is no im2col: a register tile of tile_rows x tile_columns pixels reads its inputs at constant distances.

    parallel task = (share of rows of tiles, share of output channels)
      plane: output plane of one image and group
        band of rows                       the input is copied here if it is copied (lowering/band.py)
          jc: columns of output channels   weights stay in L2
            blocks of taps                 partial sums are kept in the output in between
              rows of tiles, tiles, panels of z vectors     inner_order gives the loop order
                the microkernel: taps, each a run of adjacent elements

A tap is one position of the kernel. If positions of a row are adjacent and channels few, a whole kernel row is one tap
with a longer run (`merge_taps`). Edges are kernels of their own size, as in schedules/gemm.py. Kernel rows above or
below the image are skipped if a tile is one row high, and taps of a wide dilation if no pixel of a tile has them in the
image; otherwise zeros are read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.conv_cost import turns_output
from ..decide.conv.conv_tiling import ConvTiling
from ..decide.conv.shape import ConvShape
from ..hardware.dot_instructions import DotInstruction
from ..lowering.band import BandLayout, RowSource, clear, copy_row
from ..lowering.dot import first_of, packed_a
from ..lowering.kernel_panels import KernelPanels
from ..lowering.loops import by_edge, origin, share, when
from ..lowering.named_blocks import named
from ..lowering.prefetch import ask
from ..lowering.prefetch_results import prefetch_results
from ..lowering.register_tile import (
    Accumulators,
    TileShape,
    accumulators,
    clear_accumulators,
    groups_of_rows,
    resume,
    step_packed,
    transpose_sums,
    write_back,
    write_back_turned,
)
from ..match import ConvProgram
from ..operand_types import is_integer

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
# (pixel, channel) of a register tile -> coordinates of the output
ResultAt: TypeAlias = Callable[["Index | tuple[Index, Index]", Index], list[Index]]
# (row, column of a register tile, group of channels) -> the element, or group of elements, of the input
PixelAt: TypeAlias = Callable[[int, int, Index], Expr]


@dataclass(frozen=True)
class _Plane:
    """An output plane: its group, image and depth, and the first row of tiles of the current band."""

    group: Index
    image: Index
    depth: Index
    unit0: Index  # first row of tiles of the band
    band: tirx.Var | None


@dataclass(frozen=True)
class _Block:
    """State of the reduction: the block's index, taps [tap0, tap0 + taps), groups of each run and the first of them."""

    index: Index
    tap0: Index
    taps: Index
    group0: Index
    groups: Index
    first: Expr | bool
    last: Expr | bool
    panels: tirx.Var
    panel0: Index  # first of the column block


class DirectEmitter:
    """Emits one plain convolution; a transposed one consists of several, see decide/conv/shape.py."""

    def __init__(self, program: ConvProgram, shape: ConvShape, tiling: ConvTiling, engine: DotInstruction) -> None:
        self.program, self.shape, self.tiling, self.engine = program, shape, tiling, engine
        t = tiling
        assert t.tile_rows and t.tile_columns and t.vectors and t.lanes and t.block_taps and t.block_run
        assert t.columns and t.pitch
        self.lanes, self.nr = t.lanes, t.vectors * t.lanes
        d, h, w = shape.d, shape.h, shape.w
        self.ty, self.tx = min(t.tile_rows, h.points), min(t.tile_columns, w.points)
        self.panels = KernelPanels(program, shape, tiling, engine)
        self.units, self.y_tail = -(-h.points // self.ty), h.points % self.ty
        self.full_x, self.x_tail = divmod(w.points, self.tx)
        self.from_memory = self.spreads = False
        self.copies = bool(t.copy_input) and self.panels.taps > 0
        # Positions that no tap reads are not copied: with one tap along an axis, the copy applies the stride.
        self.step_y = h.stride if self.copies and h.taps == 1 else 1
        self.step_x = w.stride if self.copies and w.taps == 1 else 1
        self.sy, self.sx = h.stride // self.step_y, w.stride // self.step_x
        self.band_units = max(1, -(-(t.keep_rows or h.points) // self.ty))
        # Tap rows outside the image are skipped if a tile is one row high and their weights are not part of an offset's
        # sum.
        self.skips = h.padded and self.ty == 1 and not engine.offset and d.taps == 1 and not d.padded
        # The band then holds rows of the image only.
        self.clips = self.skips and self.step_y == 1
        rows = (min(self.band_units, self.units) * self.ty - 1) * self.sy + h.span
        self.layout = BandLayout(
            depth=d.taps,
            rows=min(rows, h.size) if self.clips else rows,
            columns=(w.points - 1) * self.sx + w.span,
            channels=shape.ci,
            pitch=t.pitch,
            slack=engine.group if engine.group > 1 else 0,
        )
        strides = program.out_strides
        adjacent = strides is not None and strides[3] == 1 != strides[4] and w.step == 1
        self.turns = adjacent and turns_output(self.tx, self.lanes)
        # Columns of taps are skipped too, if all pixels of a tile may be in the padding for one of them.
        self.skips_columns = not self.panels.merged and not engine.offset and shape.fold == 1 and w.hides(self.tx)

    @property
    def column_block(self) -> int:
        """Panels of a column block."""
        most = -(-self.panels.count // (self.tiling.threads_columns or 1))
        return min(max(1, (self.tiling.columns or self.nr) // self.nr), most)

    @property
    def several_blocks(self) -> bool:
        """Whether all tiles use a column block before the next one is needed."""
        one = self.panels.blocks == 1 and self.tiling.inner_order == "mn"
        return one and self.column_block * (self.tiling.threads_columns or 1) < self.panels.count

    # ---- loop nest --------------------------------------------------------------------------------------------------

    def emit(self, packed: tirx.Var, base: int = 0, *, prepacked: bool = False) -> None:
        """Emit the whole convolution; `packed` holds the weights starting at element `base`, `prepacked` tells whether
        they are reused across calls."""
        t, s = self.tiling, self.shape
        self.from_memory = prepacked and bool(t.prefetch_w)
        self.spreads = self.from_memory and self.several_blocks
        tr, tn = t.threads_rows or 1, t.threads_columns or 1
        rows = s.planes * self.units
        with T.parallel(0, tr * tn) if tr * tn > 1 else T.serial(0, 1) as task:
            row0, row1 = share(rows, tirx.floordiv(task, tn), tr)
            panel0, panel1 = share(self.panels.count, tirx.floormod(task, tn), tn)
            band = T.alloc_buffer((self.layout.size,), self.engine.operand) if self.copies else None
            plane0 = tirx.floordiv(row0, self.units)
            with T.serial(0, tirx.ceildiv(row1, self.units) - plane0) as p:
                plane = plane0 + p
                start = tirx.max(row0 - plane * self.units, 0)
                end = tirx.min(row1 - plane * self.units, self.units)
                with T.serial(0, tirx.ceildiv(end - start, self.band_units)) as b:
                    unit0 = start + b * self.band_units
                    units = tirx.min(self.band_units, end - unit0)
                    self.band(self.plane(plane, unit0, band), units, panel0, panel1, packed, base)

    def plane(self, plane: Index, unit0: Index, band: tirx.Var | None) -> _Plane:
        images, depths = self.shape.n, self.shape.d.points
        group, image = tirx.floordiv(plane, images * depths), tirx.floormod(tirx.floordiv(plane, depths), images)
        return _Plane(group, image, tirx.floormod(plane, depths), unit0, band)

    def band(self, plane: _Plane, units: Index, panel0: Index, panel1: Index, packed: tirx.Var, base: int) -> None:
        if self.copies:
            with named("copy_input", fills=True):
                self.copy(plane, units)
        k, step = self.panels, self.column_block
        with T.serial(0, tirx.ceildiv(panel1 - panel0, step)) as jc:
            panel = panel0 + jc * step
            count = tirx.min(step, panel1 - panel)
            with T.serial(0, k.blocks) as index:
                tap0, taps, group0, groups = k.block(index)
                block = _Block(
                    index=index,
                    tap0=tap0,
                    taps=taps,
                    group0=group0,
                    groups=groups,
                    first=True if k.blocks == 1 else tirx.EQ(index, 0),
                    last=True if k.blocks == 1 else tirx.EQ(index, k.blocks - 1),
                    panels=packed,
                    panel0=panel,
                )
                self.tiles(plane, block, units, panel, count, base)

    def copy(self, plane: _Plane, units: Index) -> None:
        """Copy the input rows under the band's output rows."""
        h, d, w = self.shape.h, self.shape.d, self.shape.w
        band, zero = plane.band, tirx.const(-self.engine.offset, self.engine.operand)
        assert band is not None
        strides, ci = self.program.x_strides, self.shape.ci // self.shape.fold
        source = RowSource(
            size=w.size if self.shape.fold == 1 else self.program.workload.w,
            start=w.start,
            step=self.step_x,
            channels=ci,
            run=self.program.channel_run if self.shape.groups == 1 else min(self.program.channel_run, ci),
            flat=strides is not None and strides[4] == 1 and strides[3] == ci,
        )
        layout = self.layout
        if self.shape.fold > 1:
            fold = self.shape.fold
            layout = BandLayout(layout.depth, layout.rows, layout.columns * fold, ci, layout.pitch // fold)
        rows = (units * self.ty - 1) * self.sy + h.span
        above = self.above(plane)
        if self.clips:
            top = plane.unit0 * h.stride + h.start
            rows = tirx.max(0, tirx.min(rows, h.size - top) - above)
        with T.serial(0, d.taps) as tap, T.serial(0, rows) as row:
            z = plane.depth * d.stride + d.start + tap * d.dilation
            y = (plane.unit0 * self.ty * self.sy + above + row) * self.step_y + h.start
            at = self.layout.at(tap, row, 0)

            def element(x: Index, c: Index) -> Expr:
                return self.input(plane, z, y, x, c)

            def fill() -> None:
                copy_row(band, at, layout, source, element, self.lanes, zero)

            tests = [test for axis, point in ((h, y), (d, z)) if axis.padded for test in self.inside(axis.size, point)]
            if self.clips:
                tests = []
            elif not tests and (self.units * self.ty - 1) * h.stride + h.start + h.span > h.size:
                tests = [y < h.size]  # the last row of tiles is lower than its band
            if not tests:
                fill()
                return
            with T.If(tirx.all(*tests)):
                with T.Then():
                    fill()
                with T.Else():
                    clear(band, at, self.layout.row, self.lanes, zero)

    def above(self, plane: _Plane) -> Index:
        """Return how many rows at the top of the band are above the image and therefore not in the band."""
        if not self.clips:
            return 0
        return tirx.max(0, -(plane.unit0 * self.shape.h.stride + self.shape.h.start))

    @staticmethod
    def inside(size: int, point: Index) -> list[Expr]:
        return [point >= 0, point < size]

    def input(self, plane: _Plane, z: Index, y: Index, x: Index, c: Index) -> Expr:
        """Return the input's element in the instruction's type."""
        channel = plane.group * (self.shape.ci // self.shape.fold) + c if self.shape.groups > 1 else c
        return packed_a(self.engine, lambda dtype: self.program.input_at(plane.image, z, y, x, channel, dtype=dtype))

    # ---- tiles ----------------------------------------------------------------------------------------------------

    def tiles(self, plane: _Plane, block: _Block, units: Index, panel: Index, count: Index, base: int) -> None:
        """Emit all register tiles of the band's rows and `count` panels."""
        k = self.panels

        def every_tile(emit: Callable[[Index, int, Index, int], None]) -> None:
            def row_of_tiles(unit: Index, ty: int) -> None:
                if self.full_x:
                    with T.serial(0, self.full_x) as x:
                        emit(unit, ty, x * self.tx, self.tx)
                if self.x_tail:
                    emit(unit, ty, self.full_x * self.tx, self.x_tail)

            with T.serial(0, units) as unit:
                full = self.units - (self.y_tail > 0)
                by_edge(plane.unit0 + unit, full, self.y_tail, self.ty, lambda ty: row_of_tiles(unit, ty))

        def every_panel(emit: Callable[[Index, int], None]) -> None:
            full = count if not k.tail else tirx.max(0, tirx.min(count, k.full - panel))
            if k.full:
                with T.serial(0, full) as p:
                    emit(p, self.nr)
            if k.tail:
                with when(count > full):
                    emit(full, k.tail)

        def tile(unit: Index, ty: int, x0: Index, tx: int, p: Index, columns: int) -> None:
            with named("tile"):
                self.tile(plane, block, unit, ty, x0, tx, panel + p, columns, base)

        if self.tiling.inner_order == "mn":
            every_tile(lambda u, ty, x, tx: every_panel(lambda p, columns: tile(u, ty, x, tx, p, columns)))
        else:
            every_panel(lambda p, columns: every_tile(lambda u, ty, x, tx: tile(u, ty, x, tx, p, columns)))

    def tile(
        self,
        plane: _Plane,
        block: _Block,
        unit: Index,
        ty: int,
        x0: Index,
        tx: int,
        panel: Index,
        columns: int,
        base: int,
    ) -> None:
        """Emit one register tile: initialise or resume the sums, iterate over the taps, store partial or final
        results."""
        shape = TileShape(ty * tx, columns, self.lanes)
        acc = accumulators(shape, self.engine)
        y0 = (plane.unit0 + unit) * self.ty
        d, h, w = self.shape.d, self.shape.h, self.shape.w

        def at(pixel: Index | tuple[Index, Index], j: Index) -> list[Index]:
            """Return the output coordinates of a pixel, by its number or by row and column, and a channel of the
            tile."""
            row, column = pixel if isinstance(pixel, tuple) else (pixel // tx, pixel % tx)
            y, x = y0 + row, x0 + column
            channel = plane.group * self.shape.co + panel * self.nr + j
            points = ((d, plane.depth), (h, y), (w, x))
            return [plane.image, *(axis.first + point * axis.step for axis, point in points), channel]

        start = base + self.panels.offset(plane.group, panel, block.index)
        if self.panels.blocks == 1:
            prefetch_results(self.program, shape, self.engine.acc, at)
        self.start(acc, shape, block, at, start)
        transpose_sums(acc, shape, self.engine)

        def step(tap: Index, g: Index, pixel_at: PixelAt) -> None:
            a = groups_of_rows(self.engine, ty * tx, lambda pixel: pixel_at(pixel // tx, pixel % tx, block.group0 + g))
            row = start + ((tap - block.tap0) * self.panels.run_groups + g) * self.panels.layout.row
            if self.spreads:
                self.prefetch_next(plane, block, unit, x0, panel, row - start)
            step_packed(
                acc,
                shape,
                g,
                a,
                block.panels,
                row,
                self.engine,
                from_memory=self.from_memory and not self.spreads,
            )

        if self.panels.taps:  # a transposed convolution has output points that no tap reaches
            tap0, tap1 = self.taps_inside(block, y0)
            with T.serial(0, tap1 - tap0) as i, self.when_columns_inside(tap0 + i, x0, tx):
                pixel_at = self.pixels(plane, unit, x0, tap0 + i)
                whole, rest = divmod(self.panels.run, self.engine.group)
                if not rest or is_integer(self.engine.a):
                    with T.serial(0, block.groups) as g, named("microkernel"):
                        step(tap0 + i, g, pixel_at)
                else:
                    full = tirx.min(block.groups, whole - block.group0)
                    with T.serial(0, full) as g, named("microkernel"):
                        step(tap0 + i, g, pixel_at)
                    with T.serial(0, block.groups - full), named("microkernel"):
                        step(tap0 + i, full, lambda y, x, g: first_of(self.engine, pixel_at(y, x, g), rest))
        transpose_sums(acc, shape, self.engine)
        self.finish(acc, shape, block, at, tx)

    def prefetch_next(self, plane: _Plane, block: _Block, unit: Index, x0: Index, panel: Index, done: Index) -> None:
        """Prefetch a line of the next column block; the steps of all tiles of this block share its lines evenly.
        `done`: elements of the panel that the tile has used."""
        k, wide = self.panels, self.full_x + (self.x_tail > 0)
        high = min(self.band_units, -(-self.units * self.shape.planes // (self.tiling.threads_rows or 1)))
        tile = unit * wide + tirx.floordiv(x0, self.tx)
        used = (tile * self.column_block + panel - block.panel0) * k.layout.size + done
        start = k.offset(plane.group, block.panel0 + self.column_block, block.index)
        ask(block.panels, [start + tirx.floordiv(used, high * wide)], cache=2)

    def taps_inside(self, block: _Block, y0: Index) -> tuple[Index, Index]:
        """Return [first, end) of the block's taps whose rows are inside the image; all of them if none is skipped."""
        end = block.tap0 + block.taps
        if not self.skips:
            return block.tap0, end
        h, wide = self.shape.h, self.panels.taps_w
        y = y0 * h.stride + h.start
        first = tirx.max(0, tirx.ceildiv(-y, h.dilation))
        behind = tirx.min(h.taps, tirx.ceildiv(h.size - y, h.dilation))
        tap0 = tirx.max(block.tap0, first * wide)
        return tap0, tirx.max(tap0, tirx.min(end, behind * wide))

    def when_columns_inside(self, tap: Index, x0: Index, tx: int) -> contextlib.AbstractContextManager[object]:
        """Return a guard that some pixel of the tile has this tap inside the image, if that is not certain."""
        if not self.skips_columns:
            return contextlib.nullcontext()
        w = self.shape.w
        first = x0 * w.stride + w.start + self.panels.tap(tap)[2] * w.dilation
        return when(tirx.all(first + (tx - 1) * w.stride >= 0, first < w.size))

    def pixels(self, plane: _Plane, unit: Index, x0: Index, tap: Index) -> PixelAt:
        """Return a function for the input that the pixels of a tile read at this tap."""
        kd, kh, kw = self.panels.tap(tap)
        h, w, d, width = self.shape.h, self.shape.w, self.shape.d, self.engine.group
        band = plane.band
        if band is None:
            z = plane.depth * d.stride + d.start + kd * d.dilation
            row = (plane.unit0 + unit) * self.ty * h.stride + h.start + kh * h.dilation
            column = x0 * w.stride + w.start + kw * w.dilation
            # With one channel, a run over the taps of a row moves along the columns, in any layout.
            one = self.panels.merged and self.shape.ci == 1

            def in_place(y: int, x: int, group: Index) -> Expr:
                along, channel = (group, 0) if one else (0, group)
                return self.input(plane, z, row + y * h.stride, column + x * w.stride + along, channel)

            return in_place
        row = unit * self.ty * self.sy + kh * h.dilation - self.above(plane)
        first = origin(self.layout.at(kd, row, x0 * self.sx + kw * w.dilation))

        def of_band(y: int, x: int, group: Index) -> Expr:
            at = first + group * width + self.layout.at(0, y * self.sy, x * self.sx)
            return band[at] if width == 1 else band[T.ramp(at, 1, width)]

        return of_band

    def start(self, acc: Accumulators, shape: TileShape, block: _Block, at: ResultAt, row: Index) -> None:
        """Initialise the sums with zeros or the instruction's initial values; after the first block also add what the
        output holds."""
        if self.engine.offset and self.panels.taps:
            for pixel, vector in shape.slots():
                words = self.panels.layout.starts(block.panels, row, vector)
                T.buffer_store(acc[pixel, vector], words, [T.ramp(0, 1, self.lanes)])
        else:
            clear_accumulators(acc, shape, self.engine)

        def raw(pixel: int, j: Expr) -> Expr:
            return self.program.out[tuple(self.program.out_at(*at(pixel, j)))]

        resume(acc, shape, block.first, raw)

    def finish(self, acc: Accumulators, shape: TileShape, block: _Block, at: ResultAt, wide: int) -> None:
        program = self.program

        def raw(value: Expr, pixel: int, j: Expr) -> None:
            T.buffer_store(program.out, value, program.out_at(*at(pixel, j)))

        def finished(value: Expr, pixel: Index, j: Index) -> None:
            point = at(pixel, j)
            T.buffer_store(program.out, program.result(value, *point), program.out_at(*point))

        def write() -> None:
            if not self.turns:
                write_back(acc, shape, finished, program.stored_together)
                return
            # Pixels of a row by number and lane, so that their addresses are seen to be adjacent.
            write_back_turned(acc, shape, wide, lambda value, y, first, j, lane: finished(value, (y, first + lane), j))

        if block.last is True or not program.has_epilogue:
            with named("epilogue"):
                write()
            return
        with T.If(block.last):
            with T.Then(), named("epilogue"):
                write()
            with T.Else(), named("partial_sums"):
                write_back(acc, shape, raw)
