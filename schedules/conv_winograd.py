"""Winograd convolution on the CPU: transforms, and matrix multiplications between them (decide/conv/winograd.py).

    parallel task = (share of the image tiles, share of the output channels)
      block of image tiles           their transforms V stay in L2
        transform of the inputs      V[tile][point][ci], vectors along ci
        block of output channels     the sums M stay in L2
          point of the a x a
            panels of nr, tiles of mr
              block of input channels     M[point] += V[point] x U[point] in registers
          transform of the outputs   vectors along co, the epilogue, the store

An image tile is m x m outputs of one image and reads (m + r - 1) squared inputs, which overlap; with dilation, both are
as far apart as the taps. At the border, the
input tile is first copied into a small square of zeros; all others are read in place.

U is the transformed weights in panels, [point][panel][ci][nr], computed at compile time or when the convolution starts.
Points and image tiles of U, V and M are an odd number of cache lines apart, so simultaneous accesses never collide in a
cache. (With points a power of two apart, transforming 256 x 256 weights took twice as long.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.cook_toom import cook_toom
from ..decide.conv.winograd import WinogradTiling, image_tiles, summed_blocks
from ..hardware.description import Cpu
from ..hardware.dot_instructions import FMA_FLOAT32
from ..lowering.loops import by_edge, share, when
from ..lowering.named_blocks import named
from ..lowering.prefetch import ask
from ..lowering.register_tile import (
    TileShape,
    accumulators,
    clear_accumulators,
    resume,
    step_packed,
    write_back,
)
from ..lowering.winograd_transform import DTYPE, transform_square
from ..match import ConvProgram

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
Place: TypeAlias = tuple[tirx.Var, Index]  # a buffer, and an offset in it


class WinogradEmitter:
    """Emits one convolution."""

    def __init__(self, program: ConvProgram, tiling: WinogradTiling, cpu: Cpu) -> None:
        self.program, self.tiling = program, tiling
        w = program.workload
        self.w = w
        self.transforms = cook_toom(tiling.m, w.kh)
        self.m, self.a = tiling.m, self.transforms.a
        self.points = self.a**2
        self.mr, self.lanes = tiling.rows, tiling.lanes
        self.vectors = tiling.vectors
        self.nr = self.vectors * self.lanes
        self.height: Index = w.h
        self.width: Index = w.w
        self.ho: Index = w.ho
        self.wo: Index = w.wo
        self.down, self.across = w.dilation
        self.tile_rows: Index
        self.tile_columns: Index
        self.tile_rows, self.tile_columns = image_tiles(w, self.m)
        self.tiles = w.n * self.tile_rows * self.tile_columns
        self.full_groups, self.row_tail = divmod(self.tiles, self.mr)
        self.groups = self.full_groups + (self.row_tail > 0)
        self.full_panels, self.column_tail = divmod(w.co, self.nr)
        self.panels = self.full_panels + (self.column_tail > 0)
        self.block_groups = min(tiling.block_tiles // self.mr, -(-self.groups // tiling.threads_tiles))
        self.prefetching_tiles = self.block_groups  # register tiles that prefetch equal parts of the next panel
        self.block_panels = min(tiling.block_channels // self.nr, -(-self.panels // tiling.threads_channels))
        line = cpu.caches[0].line // 4
        self.v_point, self.v_tile = self.strides(w.ci, line)
        self.u_point, _ = self.strides(self.panels * w.ci * self.nr, line)
        self.m_point, self.m_tile = self.strides(self.block_panels * self.nr, line)
        self.from_memory = False

    def strides(self, length: int, line: int) -> tuple[int, int]:
        """Return the elements between points and between image tiles: odd numbers of cache lines."""
        point = (-(-length // line) | 1) * line
        return point, (self.points * point // line | 1) * line

    # ---- weights --------------------------------------------------------------------------------------------------

    @property
    def packed_shape(self) -> tuple[int, ...]:
        return (self.points, self.u_point)

    @property
    def packed_dtype(self) -> str:
        return DTYPE

    def packed_offset(self, point: Index, panel: Index) -> Index:
        return point * self.u_point + panel * (self.w.ci * self.nr)

    def pack_whole(self, packed: tirx.Var) -> None:
        """Transform all weights, one parallel task per panel."""
        with T.parallel(0, self.panels) as panel:

            def pack(columns: int) -> None:
                with T.serial(0, self.w.ci) as c, named("pack_w"):
                    for start in range(0, self.nr, self.lanes):
                        self.pack_vector(packed, panel, c, start, max(0, min(self.lanes, columns - start)))

            by_edge(panel, self.full_panels, self.column_tail, self.nr, pack)

    def pack_vector(self, packed: tirx.Var, panel: Index, c: Index, start: int, used: int) -> None:
        """Transform one input channel's weights of `used` output channels starting at column `start` of a panel,
        followed by zeros."""
        a, co = self.a, panel * self.nr + start

        def at(point: Index, lane: Index) -> list[Index]:
            return [self.packed_offset(point, panel) + c * self.nr + start + lane]

        def write(i: Expr, j: int, lane: Expr, value: Expr) -> None:
            T.buffer_store(packed, value, at(i * a + j, lane))

        if used:
            transform_square(
                self.transforms.weights,
                used,
                lambda i, j, lane: self.program.weight_at(co + lane, 0, i, j, c, dtype=DTYPE),
                write,
            )
        if used < self.lanes:
            with T.serial(0, self.points) as point, T.vectorized(0, self.lanes - used) as lane:
                T.buffer_store(packed, tirx.const(0, DTYPE), at(point, used + lane))

    # ---- loop nest --------------------------------------------------------------------------------------------------

    def emit(self, packed: tirx.Var | None) -> None:
        """Emit the whole convolution; `packed` holds the transformed weights, None transforms them first."""
        self.from_memory = packed is not None
        if packed is None:
            packed = T.alloc_buffer((self.points * self.u_point,), self.packed_dtype)
            self.pack_whole(packed)
        tt, tc = self.tiling.threads_tiles, self.tiling.threads_channels
        with T.parallel(0, tt * tc) if tt * tc > 1 else T.serial(0, 1) as task:
            group0, group1 = share(self.groups, tirx.floordiv(task, tc), tt)
            panel0, panel1 = share(self.panels, tirx.floormod(task, tc), tc)
            v = T.alloc_buffer((self.block_groups * self.mr * self.v_tile,), DTYPE)
            sums = T.alloc_buffer((self.block_groups * self.mr * self.m_tile,), DTYPE)
            with T.serial(0, tirx.ceildiv(group1 - group0, self.block_groups)) as block:
                group = group0 + block * self.block_groups
                groups = tirx.min(self.block_groups, group1 - group)
                first = group * self.mr
                count = tirx.min(groups * self.mr, self.tiles - first)
                self.transform_inputs(v, first, count)
                with T.serial(0, tirx.ceildiv(panel1 - panel0, self.block_panels)) as channels:
                    panel = panel0 + channels * self.block_panels
                    panels = tirx.min(self.block_panels, panel1 - panel)
                    self.products(v, sums, packed, partial(self.every_group, group, groups), panel, panels)
                    self.transform_outputs(sums, first, count, panel * self.nr, panels * self.nr)

    def tile(self, number: Index) -> tuple[Index, Index, Index]:
        """Return (image, first output row, first output column) of an image tile."""
        per_image = self.tile_rows * self.tile_columns
        rest = tirx.floormod(number, per_image)
        row, column = tirx.floordiv(rest, self.tile_columns), tirx.floormod(rest, self.tile_columns)
        y, x = self.first_output(row, self.down), self.first_output(column, self.across)
        return tirx.floordiv(number, per_image), y, x

    def first_output(self, tile: Index, dilation: int) -> Index:
        """Return the first output of the `tile`-th image tile along an axis."""
        if dilation == 1:
            return tile * self.m
        return tirx.floormod(tile, dilation) + tirx.floordiv(tile, dilation) * (self.m * dilation)

    # ---- inputs ---------------------------------------------------------------------------------------------------

    @property
    def has_border(self) -> bool:
        """Whether an image tile may extend past the image."""
        top, left, _, _ = self.w.padding
        w, beyond = self.w, self.a - self.m
        tiles = zip(image_tiles(w, self.m), w.dilation, (w.h, w.w), strict=True)
        # The last tile of the last residue reads the last inputs.
        return bool(top or left or any(count * self.m + beyond * d > size for count, d, size in tiles))

    def transform_inputs(self, v: tirx.Var, first: Index, count: Index) -> None:
        """Compute V of `count` image tiles starting at `first`."""
        a = self.a
        top, left, _, _ = self.w.padding
        with T.serial(0, count) as t:
            n, y, x = self.tile(first + t)
            corner = (t, n, y - top, x - left)
            if not self.has_border:
                with named("transform_input"):
                    self.transform_in_place(v, *corner)
            else:
                down, across = (a - 1) * self.down, (a - 1) * self.across
                inside = (y >= top, x >= left, y - top + down < self.height, x - left + across < self.width)
                with T.If(tirx.all(*inside)):
                    with T.Then(), named("transform_input"):
                        self.transform_in_place(v, *corner)
                    with T.Else(), named("transform_input"):
                        self.transform_bordered(v, *corner)

    def transform_in_place(self, v: tirx.Var, t: Index, n: Index, y: Index, x: Index) -> None:
        def vector(c: Index, width: int) -> None:
            self.transform_vector(
                v,
                t,
                c,
                width,
                lambda i, j, lane: self.input_at(n, y, x, i, j, c + lane),
            )

        self.every_vector(self.w.ci, vector)

    def transform_bordered(self, v: tirx.Var, t: Index, n: Index, y: Index, x: Index) -> None:
        """Transform an input tile across the border, via a square whose outside stays zero."""
        a, lanes = self.a, self.lanes
        square = T.alloc_buffer((self.points * lanes,), DTYPE)
        with T.serial(0, self.points) as point, T.vectorized(0, lanes) as lane:
            T.buffer_store(square, tirx.const(0, DTYPE), [point * lanes + lane])
        (i0, rows), (j0, columns) = self.inside(y, self.height, self.down), self.inside(x, self.width, self.across)

        def vector(c: Index, width: int) -> None:
            with T.serial(0, rows) as i, T.serial(0, columns) as j, T.vectorized(0, width) as lane:
                value = self.input_at(n, y, x, i0 + i, j0 + j, c + lane)
                T.buffer_store(square, value, [((i0 + i) * a + j0 + j) * lanes + lane])
            self.transform_vector(v, t, c, width, lambda i, j, lane: square[(i * a + j) * lanes + lane])

        self.every_vector(self.w.ci, vector)

    def input_at(self, n: Index, y: Index, x: Index, i: Index, j: Index, channel: Index) -> Expr:
        """Return the element (i, j) of the input tile that starts at (y, x)."""
        return self.program.input_at(n, 0, y + i * self.down, x + j * self.across, channel, dtype=DTYPE)

    def inside(self, start: Index, size: Index, dilation: int) -> tuple[Index, Index]:
        """Return the first element of an input tile along an axis that lies within the image, and their number."""
        if dilation == 1:
            first = tirx.max(0, -start)
            return first, tirx.min(self.a, size - start) - first
        first = tirx.floordiv(tirx.max(0, -start) + (dilation - 1), dilation)
        count = tirx.min(self.a, tirx.floordiv(size - start + (dilation - 1), dilation))
        return first, tirx.max(0, count - first)  # some residues have a tile less

    def transform_vector(
        self,
        v: tirx.Var,
        t: Index,
        c: Index,
        width: int,
        read: Callable[[int, Expr, Expr], Expr],
    ) -> None:
        def write(i: Expr, j: int, lane: Expr, value: Expr) -> None:
            T.buffer_store(v, value, [t * self.v_tile + (i * self.a + j) * self.v_point + c + lane])

        transform_square(self.transforms.input, width, read, write)

    def every_vector(self, channels: int, emit: Callable[[Index, int], None]) -> None:
        """Call emit(first channel, width) for whole vectors, then for the remainder."""
        whole, rest = divmod(channels, self.lanes)
        if whole:
            with T.serial(0, whole) as vector:
                emit(vector * self.lanes, self.lanes)
        if rest:
            emit(whole * self.lanes, rest)

    # ---- multiplications --------------------------------------------------------------------------------------------

    def every_group(self, group: Index, groups: Index, emit: Callable[[Index, int], None]) -> None:
        """Call emit(first image tile, rows) for the register tiles of `groups` groups starting at `group`; image tiles
        are counted from the start of the block."""
        full = groups if not self.row_tail else tirx.max(0, tirx.min(groups, self.full_groups - group))
        if self.full_groups:
            with T.serial(0, full) as g:
                emit(g * self.mr, self.mr)
        if self.row_tail:
            with when(groups > full):
                emit(full * self.mr, self.row_tail)

    def products(
        self,
        v: tirx.Var,
        sums: tirx.Var,
        packed: tirx.Var,
        every_group: Callable[[Callable[[Index, int], None]], None],
        panel: Index,
        panels: Index,
    ) -> None:
        """Compute M = V x U at every point, for all register tiles of image tiles and `panels` panels of channels."""

        def every_panel(emit: Callable[[Index, int], None]) -> None:
            full = panels if not self.column_tail else tirx.max(0, tirx.min(panels, self.full_panels - panel))
            if self.full_panels:
                with T.serial(0, full) as p:
                    emit(p, self.vectors)
            if self.column_tail:
                with when(panels > full):
                    emit(full, -(-self.column_tail // self.lanes))

        with T.serial(0, self.points) as point:
            # The panel after the last one of a block of channels is the first one of the next block.
            onwards = tirx.Select(
                point + 1 < self.points,
                self.packed_offset(point + 1, panel),
                self.packed_offset(0, panel + panels),
            )
            every_panel(
                lambda p, vectors: every_group(
                    lambda t, rows: self.product(
                        TileShape(rows, vectors * self.lanes, self.lanes),
                        (v, t * self.v_tile + point * self.v_point),
                        (packed, self.packed_offset(point, panel + p)),
                        (sums, t * self.m_tile + point * self.m_point + p * self.nr),
                        tirx.Select(p + 1 < panels, self.packed_offset(point, panel + p + 1), onwards),
                        t,
                    )
                )
            )

    def product(
        self, shape: TileShape, left: Place, weights: Place, result: Place, following: Index, tile: Index
    ) -> None:
        """Emit one register tile, whose first image tile in the block is `tile`. While it reads its panel of weights,
        it prefetches its part of the next one, at `following`.

        Blocks of input channels are summed separately for accuracy.
        """
        (v, left_at), (packed, weights_at), (sums, result_at) = left, weights, result
        ci = self.w.ci
        count = summed_blocks(self.w, self.m)
        length = -(-ci // count)

        def so_far(i: int, j: Expr) -> Expr:
            return sums[result_at + i * self.m_tile + j]

        def block(first: Index, channels: Index, is_first: Expr | bool) -> None:
            acc = accumulators(shape, FMA_FLOAT32)
            clear_accumulators(acc, shape, FMA_FLOAT32)
            with T.serial(0, channels) as step, named("microkernel"):
                k = first + step
                read = [v[left_at + row * self.v_tile + k] for row in range(shape.rows)]
                if self.from_memory:
                    self.prefetch(packed, following, tile, k)
                step_packed(acc, shape, k, lambda i, _: read[i], packed, weights_at + k * self.nr, FMA_FLOAT32)
            resume(acc, shape, is_first, so_far)
            write_back(acc, shape, lambda value, i, j: T.buffer_store(sums, value, [result_at + i * self.m_tile + j]))

        if count == 1:
            with named("tile"):
                block(0, ci, True)
            return
        with T.serial(0, count) as number, named("tile"):
            first = number * length
            block(first, length if ci % length == 0 else tirx.min(length, ci - first), number == 0)

    def prefetch(self, packed: tirx.Var, following: Index, tile: Index, k: Expr) -> None:
        """Prefetch in step k of a register tile: those of a block prefetch equal parts of the next panel, in order."""
        done = tirx.floordiv(tile, self.mr) * (self.w.ci * self.nr) + k * self.nr
        at = following + tirx.floordiv(done, self.prefetching_tiles)
        for line in range(-(-self.vectors // self.prefetching_tiles)):
            ask(packed, [at + line * self.lanes], cache=2)

    # ---- outputs --------------------------------------------------------------------------------------------------

    def transform_outputs(self, sums: tirx.Var, first: Index, count: Index, co: Index, channels: Index) -> None:
        """Transform the outputs of `count` image tiles starting at `first`, up to `channels` channels starting at
        `co`."""
        w, lanes = self.w, self.lanes
        tail = w.co % lanes
        vectors = tirx.floordiv(tirx.min(channels, w.co - co), lanes)
        with T.serial(0, count) as t:
            n, y, x = self.tile(first + t)

            def vector(c: Index, width: int) -> None:
                with named("transform_output"):
                    self.transform_output(sums, t, n, y, x, co, c, width)

            if w.co >= lanes:
                with T.serial(0, vectors) as number:
                    vector(number * lanes, lanes)
            if tail:
                with when(co + channels > w.co - tail):
                    vector(vectors * lanes, tail)

    @property
    def divides(self) -> bool:
        """Whether image tiles end exactly at the end of the output."""
        return self.w.ho % (self.m * self.down) == 0 and self.w.wo % (self.m * self.across) == 0

    def transform_output(
        self, sums: tirx.Var, t: Index, n: Index, y: Index, x: Index, co: Index, c: Index, width: int
    ) -> None:
        """Transform one vector of channels of an image tile; at the bottom and right edges only what is inside is
        stored."""
        program = self.program

        def element(i: int, j: Expr, lane: Expr) -> Expr:
            return sums[t * self.m_tile + (i * self.a + j) * self.m_point + c + lane]

        def store(i: Expr, j: int, lane: Expr, value: Expr) -> None:
            at = (n, 0, y + i * self.down, x + j * self.across, co + c + lane)
            T.buffer_store(program.out, program.result(value, *at), program.out_at(*at))

        def store_inside(i: Expr, j: int, lane: Expr, value: Expr) -> None:
            with when(tirx.all(y + i * self.down < self.ho, x + j * self.across < self.wo)):
                store(i, j, lane, value)

        if self.divides:
            transform_square(self.transforms.output, width, element, store)
            return
        last = (self.m - 1) * self.down, (self.m - 1) * self.across
        with T.If(tirx.all(y + last[0] < self.ho, x + last[1] < self.wo)):
            with T.Then():
                transform_square(self.transforms.output, width, element, store)
            with T.Else():
                transform_square(self.transforms.output, width, element, store_inside)
