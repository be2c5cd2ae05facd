"""Matrix multiplications with dynamic columns or a dynamic reduction axis, such as those of two activations; nothing is
prepacked.

parallel task = (share of the batch, share of the tiles of rows)
  matrix of the batch
    B packed into panels over all of K
    tile of rows
      its rows of A copied, the last group of a dot-product instruction padded with zeros
      panel: the sums of a microkernel into a small buffer, finished from there

Columns of the last panel outside the matrix repeat its last column; their sums are discarded. Rows are divided evenly
among tiles, as in open_gemm.py. Since they are copied, a microkernel may have more rows than its tile: there are a few
heights, and the sums of rows that the tile lacks are discarded.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.gemm.open_rows import OpenGemmTiling
from ..hardware.dot_instructions import DotInstruction
from ..lowering.extents import parts_of
from ..lowering.loops import share, when
from ..lowering.panels import Element, PanelLayout, copy_row, pack_panel_group, pack_starts, pack_transposed
from ..lowering.register_tile import (
    TileShape,
    accumulators,
    clear_accumulators,
    groups_of_rows,
    step_packed,
    transpose_sums,
    write_back,
)
from ..lowering.samples import Extent, is_open
from ..match import GemmProgram
from ..match.access import address, loads
from ..match.loop_axes import stride
from .gemm_panels import Expr, Index
from .open_gemm import OpenGemmEmitter, held

_HEIGHTS = (1, 2, 4, 6, 8)  # heights of microkernels, in addition to that of a whole tile


def _number(value: int) -> Expr:
    return tirx.const(value, "int64")


def _expr(extent: Extent) -> Expr:
    return extent if isinstance(extent, tirx.Expr) else _number(extent)


class OpenColumnsEmitter(OpenGemmEmitter):
    """Emits one matrix multiplication with dynamic columns or a dynamic reduction axis."""

    def __init__(self, program: GemmProgram, tiling: OpenGemmTiling, engine: DotInstruction) -> None:
        super().__init__(program, tiling, engine)
        *_, self.columns, self.summed = program.extents
        self.heights = sorted({*(height for height in _HEIGHTS if height < self.mr), self.mr})

    def emit(self, packed: tirx.Var | None) -> None:
        assert packed is None, "B is an activation"
        batch, m, n, k = self.program.extents
        chunk = self.lanes * self.group
        # Computed from sizes only: TVM moves allocations before other computations.
        groups, panels = _expr(parts_of(k, self.group)), _expr(parts_of(n, self.nr))
        size = (groups + _number(self.layout.rows - self.layout.groups)) * _number(self.nr * self.group)
        pitch = (_expr(parts_of(k, chunk)) + _number(1)) * _number(chunk)
        self.m = held(_expr(m))
        tb, tm = held(_expr(self.by_rows(0))), held(_expr(self.by_rows(1)))
        with T.parallel(_number(0), tb * tm) as task:
            own = T.alloc_buffer((tirx.max(panels * size, _number(1)),), self.engine.panel)
            copy = T.alloc_buffer((_number(self.mr) * pitch,), self.engine.operand)
            sums = T.alloc_buffer((self.mr * self.nr,), self.engine.acc)
            self.n, self.k, self.groups, self.panels = map(held, (_expr(n), _expr(k), groups, panels))
            self.size, self.pitch = held(size), held(pitch)
            self.panel = PanelLayout(self.nr, self.lanes, self.groups, self.engine)
            self.divide_rows()
            first, end = share(held(_expr(batch)), tirx.floordiv(task, tm), tb)
            tile0, tile1 = share(self.tiles, tirx.floormod(task, tm), tm)
            with T.serial(_number(0), end - first) as turn:
                place = held(first + turn)
                self.pack_matrix(own, place)
                with T.serial(_number(0), tile1 - tile0) as number:
                    self.tile_of_rows(place, held(tile0 + number), own, copy, sums)

    # ---- packing --------------------------------------------------------------------------------------------------

    def pack_matrix(self, own: tirx.Var, batch: Expr) -> None:
        """Pack B into panels."""
        whole = held(tirx.floordiv(self.n, _number(self.nr)))
        last = self.n - _number(1)

        def element(panel: Expr, clamped: bool) -> Element:
            def b(k: Index, j: Index) -> Expr:
                column = panel * _number(self.nr) + tirx.Cast("int64", j)
                return self.packing.element(batch, k, tirx.min(column, last) if clamped else column)

            return b

        with T.serial(_number(0), whole) as panel:
            self.pack_panel(own, panel * self.size, element(panel, False), self.nr)
        if is_open(self.columns):
            with T.serial(_number(0), self.panels - whole):
                self.pack_panel(own, whole * self.size, element(whole, True), self.nr)
        elif rest := int(self.columns) % self.nr:
            self.pack_panel(own, whole * self.size, element(whole, False), rest)

    def pack_panel(self, own: tirx.Var, base: Expr, b: Element, columns: int) -> None:
        layout, group = self.panel, self.group
        base = held(base)
        whole = held(tirx.floordiv(self.k, _number(group)))
        done: Expr = _number(0)
        if self.is_turned():
            squares = held(tirx.floordiv(whole, _number(self.lanes)))
            with T.serial(_number(0), squares) as square:
                pack_transposed(own, base, b, square * _number(self.lanes), layout, columns)
            done = squares * _number(self.lanes)
        with T.serial(_number(0), whole - done) as rest:
            at = done + rest
            pack_panel_group(own, base + at * _number(layout.row), b, at * _number(group), layout, columns, group)
        if group > 1:
            rest = held(self.k - whole * _number(group))
            with T.serial(_number(0), tirx.min(rest, _number(1))):
                self.pack_rest(own, base + whole * _number(layout.row), b, whole * _number(group), columns, rest)
        if self.engine.offset:
            pack_starts(own, base, self.groups, layout)

    def pack_rest(self, own: tirx.Var, at: Expr, b: Element, k: Expr, columns: int, rest: Expr) -> None:
        """Pack the last group of a panel: `rest` elements of K, and zeros."""
        with T.serial(0, self.nr * self.group // self.lanes) as number, T.vectorized(0, self.lanes) as lane:
            T.buffer_store(own, tirx.const(0, self.engine.panel), [at + number * self.lanes + lane])
        with T.serial(_number(0), rest) as element:
            for start in range(0, columns, self.lanes):
                with T.vectorized(0, min(self.lanes, columns - start)) as lane:
                    to = at + (start + lane) * self.group + element
                    T.buffer_store(own, b(k + element, start + lane), [to])

    def is_turned(self) -> bool:
        """Return whether B is stored by columns."""
        b = self.program.b

        def adjacent(axis: tuple[tirx.Var, ...]) -> bool:
            return all(stride(address(load), axis[-1]) in (0, 1) for load in loads(b.expr))

        return all(b.axes[1:]) and adjacent(b.axes[1]) and not adjacent(b.axes[2])

    # ---- tiles ----------------------------------------------------------------------------------------------------

    def tile_of_rows(self, batch: Expr, tile: Expr, own: tirx.Var, copy: tirx.Var, sums: tirx.Var) -> None:
        """Emit a tile of rows and every panel."""
        rows = held(self.height - tirx.Cast("int64", tile >= self.taller))
        i0 = held(tile * self.height - tirx.max(tile - self.taller, 0))

        def a(i: Index, k: Index) -> Expr:
            return self.element_a(batch, i, k)

        with T.serial(_number(0), rows) as row:
            padded = self.k if self.group == 1 else self.groups * _number(self.group)
            copy_row(copy, row * self.pitch, i0 + row, a, self.k, padded, self.lanes * self.group)
        with T.serial(_number(0), self.panels) as panel:
            base = held(panel * self.size)
            for lower, height in zip([0, *self.heights], self.heights, strict=False):
                inside = (
                    tirx.EQ(rows, _number(height))
                    if lower + 1 == height
                    else tirx.all(rows > _number(lower), rows <= _number(height))
                )
                with when(inside):
                    self.sum_rows(height, base, own, copy, sums)
            j0 = held(panel * _number(self.nr))
            self.finish_columns(batch, i0, rows, j0, held(tirx.min(_number(self.nr), self.n - j0)), sums)

    def sum_rows(self, height: int, base: Expr, own: tirx.Var, copy: tirx.Var, sums: tirx.Var) -> None:
        """Emit the sums of `height` copied rows and a panel."""
        shape = TileShape(height, self.nr, self.lanes)
        acc = accumulators(shape, self.engine)
        if self.engine.offset:
            for row, vector in shape.slots():
                words = self.panel.starts(own, base, vector)
                T.buffer_store(acc[row, vector], words, [T.ramp(0, 1, self.lanes)])
        else:
            clear_accumulators(acc, shape, self.engine)
        with T.serial(_number(0), self.groups) as k:

            def read(row: int) -> Expr:
                return self.taken(copy, _number(row) * self.pitch + k * _number(self.group))

            a = groups_of_rows(self.engine, height, read)
            at = base + k * _number(self.panel.row)
            step_packed(acc, shape, k, a, own, at, self.engine)
        transpose_sums(acc, shape, self.engine)
        write_back(acc, shape, lambda value, i, j: T.buffer_store(sums, value, [i * self.nr + j]))

    def taken(self, copy: tirx.Var, at: Expr) -> Expr:
        return copy[at] if self.group == 1 else copy[T.ramp(at, 1, self.group)]

    def finish_columns(self, batch: Expr, i0: Expr, rows: Expr, j0: Expr, columns: Expr, sums: tirx.Var) -> None:
        """Finish rows of the small buffer and store them, in full vectors and then in narrower ones."""
        program = self.program

        def finish(row: Expr, start: Expr, width: int) -> None:
            with T.vectorized(0, width) as lane:
                at, j = row * _number(self.nr) + start + lane, j0 + start + lane
                value = program.result(sums[at], batch, i0 + row, j)
                T.buffer_store(program.out, value, program.out_at(batch, i0 + row, j))

        with T.serial(_number(0), rows) as row:
            self.by_vectors(columns, lambda start, width: finish(row, start, width))

    def by_vectors(self, columns: Expr, emit: Callable[[Expr, int], None]) -> None:
        """Call emit(start, width) for all columns of a panel."""
        with T.serial(_number(0), tirx.floordiv(columns, _number(self.lanes))) as number:
            emit(number * _number(self.lanes), self.lanes)
        width = self.lanes
        while width > 1:
            done = tirx.floordiv(columns, _number(width)) * _number(width)
            width //= 2
            left = tirx.floordiv(columns - done, _number(width))
            if is_open(self.columns):
                with T.serial(_number(0), left):
                    emit(done, width)
            elif int(self.columns) % self.nr // width % 2:
                with when(left > _number(0)):
                    emit(done, width)


def is_of_open_columns(program: GemmProgram) -> bool:
    """Return whether the columns or the reduction axis of a matrix multiplication are dynamic."""
    return any(map(is_open, program.extents[2:]))
