"""Matrix multiplications with a dynamic number of rows or matrices: the loop nest of gemm.py with tile heights chosen
at run time.

A tile has at most mr rows, and there is a microkernel for every height up to mr. Rows are divided evenly into the
fewest possible tiles, with heights that differ by at most one, so 7 rows in tiles of at most 6 are 4 and 3, not 6 and
1. Sums go from the registers to a small buffer, from which one loop over rows finishes them for any height: the
epilogue is emitted only once. With few rows a microkernel takes several panels at once, to have enough independent sums
to overlap multiply-adds.

Rows are read in place, or copied for each tile if a dot-product instruction takes groups of elements or if elements are
computed, which every microkernel would repeat.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.gemm.open_rows import OpenGemmTiling
from ..hardware.dot_instructions import DotInstruction
from ..lowering.dot import packed_a
from ..lowering.joined_axes import joined_indices
from ..lowering.loops import share, when
from ..lowering.named_blocks import named
from ..lowering.panels import copy_row
from ..lowering.register_tile import TileShape, accumulators, groups_of_rows, step_packed, transpose_sums, write_back
from ..lowering.registers import counted, in_register, small_buffer
from ..lowering.samples import Extent, is_open
from ..match import GemmProgram
from ..match.access import address, bind, variables
from ..match.tap_run import TapRun, tap_run
from .gemm import GemmEmitter, _Block
from .gemm_panels import Expr, Index

LEAST_SUMS = 8  # fewest vectors of sums of a microkernel, if there are panels for them


def held(value: Expr) -> Expr:
    """Return a count in a register."""
    return counted(tirx.Cast("int64", value), 0)


def _number(value: int) -> Expr:
    return tirx.const(value, "int64")


def summed_run(program: GemmProgram) -> int:
    """Return how many elements of K are contiguous: the extent of the innermost of several reduction axes, or of the
    inner two if those are the taps of a window's row and a few channels; 0 if there is only one axis or its extent is
    dynamic."""
    taps = tap_run(program.name, program.a)
    if taps is not None:
        return taps.taps * taps.channels
    sizes = program.a.extents[2]
    return int(sizes[-1]) if len(sizes) > 1 and not is_open(sizes[-1]) else 0


def _ends_with_summed(program: GemmProgram) -> bool:
    """Return whether A is read along its last dimension by a single reduction axis, so that the elements of a row are
    adjacent."""
    load = program.a.expr
    if not isinstance(load, TensorLoad) or len(load.source.strides) or load.source not in program.func.params:
        return False
    summed = [v for v, size in zip(program.a.axes[2], program.a.extents[2], strict=True) if is_open(size) or size > 1]
    *outer, last = load.indices
    return len(summed) == 1 and last.same_as(summed[0]) and not any(variables(i, summed) for i in outer)


class OpenGemmEmitter(GemmEmitter):
    """Emits one matrix multiplication with dynamic rows or batch; columns and reduction axis are static."""

    def __init__(self, program: GemmProgram, tiling: OpenGemmTiling, engine: DotInstruction) -> None:
        super().__init__(program, tiling, engine)
        self.vectors, self.ranges, self.prefetches = self.nr // self.lanes, tiling.ranges, bool(tiling.prefetch_b)
        self.columns_first = False
        # Elements that are copied at once: blocks of K are whole runs of the innermost of several reduction axes.
        self.depth = summed_run(program)
        self.taps = tap_run(program.name, program.a)
        length = self.k if self.k_blocks == 1 else self.block_groups * self.group
        self.run = 0
        if self.depth and (length % self.depth == 0 or (self.depth % length == 0 and self.taps is None)):
            self.run = min(length, self.depth)
        if self.run % self.group:
            self.run = 0
        self.rows_in_place = not self.copies_a and _ends_with_summed(program)

    def emit(self, packed: tirx.Var | None) -> None:
        batch, m, _, _ = self.program.extents
        self.batch, self.m = in_register(batch), in_register(m)
        self.tasks = (*(in_register(self.by_rows(part)) for part in range(3)), 1)
        tb, tm, tn, _ = self.tasks
        with T.parallel(0, tb * tm * tn) as task:
            nt = in_register(tirx.floormod(task, tn))
            mt = in_register(tirx.floormod(tirx.floordiv(task, tn), tm))
            first, end = share(self.batch, tirx.floordiv(task, tn * tm), tb)
            self.divide_rows()
            with T.serial(0, end - first) as turn:
                self.task(in_register(first + turn), mt, nt, 0, packed)

    def by_rows(self, part: int) -> Extent:
        """Return the shares of the batch, the rows or the columns for the number of rows at run time."""
        found: Extent = self.ranges[-1].threads[part]
        for below in self.ranges[-2::-1]:
            if is_open(found) or found != below.threads[part]:
                here = _number(below.threads[part])
                found = tirx.Select(self.m <= below.rows, here, found if is_open(found) else _number(found))
        return found

    def divide_rows(self) -> None:
        """Compute the tiles of all rows in registers of the task: values of the enclosing function would be reloaded
        after every store."""
        m = held(self.m) if is_open(self.m) else _number(self.m)
        self.tiles = held(tirx.ceildiv(m, self.mr))
        # Height of the taller tiles, and how many there are; the others have one row less.
        self.height = held(tirx.ceildiv(m, tirx.max(self.tiles, 1)))
        self.taller = held(m - self.tiles * (self.height - 1))

    @property
    def most_panels(self) -> int:
        least = min(found.threads_n for found in self.ranges)
        return min(self.panels_per_block, -(-self.panels // least))

    def tiles_of_block(
        self, where: _Block, tile0: Index, tile1: Index, panel: Index, full: Index, count: Index, kt: Index
    ) -> None:
        sums = T.alloc_buffer((self.mr * self.at_once(1) * self.nr,), self.engine.acc)
        tile0, tile1, panel, count = map(in_register, (tile0, tile1, panel, count))
        with T.serial(0, tile1 - tile0) as turn:
            tile = tile0 + turn
            rows = held(self.height - tirx.Cast("int64", tile >= self.taller))
            i0 = held(tile * self.height - tirx.max(tile - self.taller, 0))
            kept = self.starts_of_rows if self.rows_in_place else self.copy_open_tile
            copy = kept(where, i0, rows)
            wide: Expr = _number(1)
            for height in range(self.mr, 0, -1):
                if self.at_once(height) > 1:
                    wide = tirx.Select(rows <= height, _number(self.at_once(height)), wide)
            wide = held(wide)
            with T.serial(0, tirx.ceildiv(count, wide)) as group:
                p = held(group * wide)
                panels = held(tirx.min(wide, count - p))
                for height in range(1, self.mr + 1):
                    with when(tirx.EQ(rows, _number(height))):
                        self.sum_panels(where, i0, copy, height, p, panels, sums)
                j0 = (panel + p) * self.nr
                columns = held(tirx.min(panels * self.nr, self.n - j0))
                self.finish_rows(where, i0, rows, j0, columns, wide * self.nr, sums)

    def at_once(self, height: int) -> int:
        """Return the panels that the microkernel of this height takes at once: fewer for taller ones."""
        wanted = -(-LEAST_SUMS // (height * self.vectors))
        return max(1, min(wanted, self.panels, self.panels_per_block))

    def copy_open_tile(self, where: _Block, i0: Expr, rows: Expr) -> tirx.Var | None:
        """Copy the rows of a tile."""
        if not self.copies_a:
            return None
        buffer = T.alloc_buffer((self.mr * self.copy_stride,), self.engine.operand)
        padded = where.elements if self.group == 1 else where.groups * self.group
        with T.serial(0, rows) as row, named("copy_a", fills=True):
            at = row * self.copy_stride
            if self.run:
                self.copy_runs(buffer, at, where, i0 + row)
            else:

                def a(i: Index, k: Index) -> Expr:
                    return self.element_a(where.batch, i, where.k0 + k)

                copy_row(buffer, at, i0 + row, a, where.elements, padded, self.lanes * self.group)
        return buffer

    def starts_of_rows(self, where: _Block, i0: Expr, rows: Expr) -> tirx.Var:
        """Compute the start addresses of a tile's rows in A, which is read in place, once for all microkernels."""
        starts = small_buffer((self.mr,), "int64")
        with T.serial(0, rows) as row:
            load = self.program.a.at(where.batch, i0 + row, where.k0)
            indices = joined_indices(load.source.shape, load.indices) or load.indices
            T.buffer_store(starts, tirx.Cast("int64", address(tirx.BufferLoad(load.source, indices))), [row])
        return starts

    def rows_of(self, copy: tirx.Var | None, height: int) -> list[Expr]:
        """Return the start addresses of a tile's rows, each in a register; empty if rows are copied."""
        return [held(copy[row]) for row in range(height)] if copy is not None and self.rows_in_place else []

    def read_in_place(self, start: Expr, k: Expr) -> Expr:
        """Return an element of A at an offset from the start of its row, by the flat address."""
        source = self.program.a.expr.source

        def element(dtype: str) -> Expr:
            value = tirx.BufferLoad(source, [*[_number(0)] * (len(source.shape) - 1), start + k])
            return value if str(value.ty) == dtype else tirx.Cast(dtype, value)

        return packed_a(self.engine, element)

    def copy_runs(self, buffer: tirx.Var, at: Expr, where: _Block, i: Expr) -> None:
        """Copy a row in runs of its innermost reduction axis, such as the channels of one tap of a convolution's
        window: the address of a run, and whether it is inside the image, is computed once."""
        a = self.program.a
        place = {v: held(value) for v, value in bind(a.axes[1:2], a.extents[1:2], [held(i)]).items()}
        place |= bind(a.axes[:1], a.extents[:1], [where.batch])
        *outer, inner = a.axes[2][: -1 if self.taps is not None else None]
        with T.serial(0, tirx.floordiv(where.elements, self.run)) as number:
            first = where.k0 + number * self.run
            sizes = a.extents[2][: len(outer)]
            tap = bind([outer], [sizes], [tirx.floordiv(first, self.depth)])
            to = at + number * self.run
            start = tirx.floormod(first, self.depth)

            def element(_: Index, k: Index) -> Expr:
                here = {**place, **tap, inner: start + k}
                return packed_a(self.engine, lambda dtype: a.at_variables(here, dtype))

            if self.taps is not None:
                self.copy_taps(buffer, to, {**place, **tap}, self.taps)
            else:
                copy_row(buffer, to, 0, element, self.run, self.run, self.lanes * self.group)

    def copy_taps(self, buffer: tirx.Var, to: Expr, place: dict[tirx.Var, Expr], taps: TapRun) -> None:
        """Copy the taps of a window's row, at once if all of them are inside the image."""
        a, chunk = self.program.a, self.lanes * self.group
        whole, rest = divmod(self.run, chunk)

        def vector(start: Index, width: int) -> None:
            with T.vectorized(0, width) as lane:
                value = packed_a(self.engine, lambda dtype: taps.at(place, start + lane, dtype))
                T.buffer_store(buffer, value, [to + start + lane])

        with T.If(taps.is_inside(place)):
            with T.Then():
                with T.serial(0, whole) as number:
                    vector(number * chunk, chunk)
                if rest:
                    vector(whole * chunk, rest)
            with T.Else(), T.serial(0, taps.taps) as tap, T.serial(0, taps.channels) as channel:
                here = {**place, taps.tap: tap, taps.channel: channel}
                value = packed_a(self.engine, lambda dtype: a.at_variables(here, dtype))
                T.buffer_store(buffer, value, [to + tap * taps.channels + channel])

    def sum_panels(
        self, where: _Block, i0: Expr, copy: tirx.Var | None, height: int, p: Expr, panels: Expr, sums: tirx.Var
    ) -> None:
        """Emit the sums of a tile of `height` rows for `panels` panels starting at p."""
        wide = self.at_once(height)
        if wide == 1:
            self.sum_tile(where, i0, copy, height, p, 0, 1, sums)
            return
        with when(tirx.EQ(panels, _number(wide))):
            self.sum_tile(where, i0, copy, height, p, 0, wide, sums)
        with T.serial(0, tirx.Select(panels < wide, panels, _number(0))) as one:
            self.sum_tile(where, i0, copy, height, p, one, 1, sums)

    def sum_tile(
        self,
        where: _Block,
        i0: Expr,
        copy: tirx.Var | None,
        height: int,
        p: Expr,
        skipped: Index,
        panels: int,
        sums: tirx.Var,
    ) -> None:
        """Emit the sums of `panels` panels, starting `skipped` panels after p, into the small buffer. Columns outside
        the matrix are zero in the panels, and are summed too."""
        assert where.panels is not None
        shape = TileShape(height, self.nr, self.lanes)
        tiles = [accumulators(shape, self.engine) for _ in range(panels)]
        at = [p + skipped + number for number in range(panels)]
        bases = [held(where.panel_base(place)) for place in at]
        for acc, place in zip(tiles, at, strict=True):
            self.start(acc, shape, where, place)
        starts = self.rows_of(copy, height)
        with T.serial(0, where.groups) as k, named("microkernel"):

            def read(row: int) -> Expr:
                return self.read_in_place(starts[row], k) if starts else self.read_a(where, i0, row, k, copy)

            a = groups_of_rows(self.engine, height, read)
            for acc, base in zip(tiles, bases, strict=True):
                row_of_k = base + k * self.layout.row
                step_packed(acc, shape, k, a, where.panels, row_of_k, self.engine, from_memory=self.prefetches)
        pitch = self.at_once(height) * self.nr
        for number, acc in enumerate(tiles):
            transpose_sums(acc, shape, self.engine)
            first = (skipped + number) * self.nr

            def keep(value: Expr, i: int, j: Expr, first: Index = first) -> None:
                T.buffer_store(sums, value, [i * pitch + first + j])

            write_back(acc, shape, keep)

    def finish_rows(
        self, where: _Block, i0: Expr, rows: Expr, j0: Index, columns: Expr, pitch: Expr, sums: tirx.Var
    ) -> None:
        """Process rows of the small buffer: finish and store them, or keep them as partial sums for later K blocks."""
        program = self.program

        def every(what: str, one: Callable[[Expr, Expr, Expr], None]) -> None:
            """Call one(offset in the buffer, row, column) in vectors for all elements."""
            with T.serial(0, rows) as row, named(what):
                whole = tirx.floordiv(columns, self.lanes)
                with T.serial(0, whole) as number, T.vectorized(0, self.lanes) as lane:
                    at = number * self.lanes + lane
                    one(row * pitch + at, i0 + row, j0 + at)
                if rest := self.n % self.lanes:
                    with when(columns > whole * self.lanes), T.vectorized(0, rest) as lane:
                        at = whole * self.lanes + lane
                        one(row * pitch + at, i0 + row, j0 + at)

        def add(at: Expr, i: Expr, j: Expr) -> None:
            T.buffer_store(sums, sums[at] + self.raw(where.batch, i, j, 0), [at])

        def keep(at: Expr, i: Expr, j: Expr) -> None:
            self.store_raw(sums[at], where.batch, i, j, 0)

        def finish(at: Expr, i: Expr, j: Expr) -> None:
            value = program.result(sums[at], where.batch, i, j)
            T.buffer_store(program.out, value, program.out_at(where.batch, i, j))

        if self.k_blocks == 1:
            every("epilogue", finish)
            return
        with when(tirx.Not(where.first)):
            every("partial_sums", add)
        with when(tirx.Not(where.last)):
            every("partial_sums", keep)
        with when(where.last):
            every("epilogue", finish)
