"""Blocked matrix multiplication on the CPU: the loop nest that a GemmTiling describes, as TIR.

    parallel task = (batch share, row share, column share, K share)
      jc: partition_n columns          B's block of this and the next loop is packed here, if it is packed at all
        pc: partition_k elements of K
          rows of mr, panels of nr     inner_order gives the order of these two loops
            the microkernel            accumulators in registers, the epilogue at the last pc

Every edge is a kernel of its own size. Shares differ by at most one tile. With threads_k > 1, tasks write partial sums,
which a second parallel loop adds before the epilogue.

The loop nest is emitted directly instead of by split and reorder: a non-dividing split leaves its predicate in the
innermost loop, where TVM's vectoriser falls back to scalars. The same configuration of 127 x 257 x 509 by primitives
reached 17 GFLOP/s on a core, and this loop nest reaches 115. by_primitives.py pads instead, and takes 1.14 times as
long there (docs/schedules.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.gemm.one_order import FEW_BLOCKS
from ..decide.tiling import GemmTiling
from ..hardware.dot_instructions import DotInstruction
from ..lowering.dot import packed_a
from ..lowering.loops import nested_twice, share, when
from ..lowering.named_blocks import named
from ..lowering.panels import copy_blocks, copy_columns, copy_rows
from ..lowering.prefetch import ask
from ..lowering.prefetch_results import prefetch_results
from ..lowering.register_tile import (
    Accumulators,
    ElementOfA,
    TileShape,
    accumulators,
    clear_accumulators,
    groups_of_rows,
    resume,
    step_in_place,
    step_packed,
    transpose_sums,
    write_back,
)
from ..match import GemmProgram
from .gemm_panels import Expr, GemmPanels, Index


@dataclass(frozen=True)
class _Block:
    """Current position of the loop nest: batch, block of K, and the packed panels of B, if any."""

    batch: Index
    k0: Index  # first element of K
    groups: Index  # groups of the reduction axis in this K block
    elements: Index  # elements of K in this K block
    first: Expr | bool  # whether it is the first K block of the task
    last: Expr | bool
    panels: tirx.Var | None
    panel_base: Callable[[Index], Index]  # panel index within the jc block -> offset in `panels`
    next_base: Callable[[Index], Index] | None  # the same of the next block, if the tiles prefetch it
    tile0: Index  # the task's first tile of rows


class GemmEmitter:
    """Emits one matrix multiplication."""

    def __init__(self, program: GemmProgram, tiling: GemmTiling, engine: DotInstruction) -> None:
        self.program, self.tiling, self.engine = program, tiling, engine
        w = program.workload
        self.m, self.n, self.k, self.batch = w.m, w.n, w.k, w.batch
        assert tiling.mr and tiling.nr and tiling.lanes
        self.mr, self.nr, self.lanes = tiling.mr, tiling.nr, tiling.lanes
        self.group = engine.group
        self.packing = GemmPanels(program, tiling, engine)
        self.k_blocks, self.block_groups = self.packing.k_blocks, self.packing.block_groups
        self.layout, self.panels = self.packing.layout, self.packing.count
        self.full_panels, self.n_tail = self.packing.full, self.packing.tail
        self.full_tiles, self.m_tail = divmod(self.m, self.mr)
        self.tiles = self.full_tiles + (self.m_tail > 0)
        self.panels_per_block = max(1, tiling.partition_n // self.nr)
        self.tasks = (
            tiling.threads_batch or 1,
            tiling.threads_m or 1,
            tiling.threads_n or 1,
            min(tiling.threads_k or 1, self.k_blocks),
        )
        self.keep = self.mr if tiling.keep is None else tiling.keep
        self.copies_a = self.keep < self.mr
        self.columns_first = w.trans_a  # the copy of A is stored by columns, as A is
        self.partial: tirx.Var | None = None

    # ---- operands -------------------------------------------------------------------------------------------------

    def element_a(self, batch: Index, i: Index, k: Index) -> Expr:
        return packed_a(self.engine, lambda dtype: self.program.a.at(batch, i, k, dtype=dtype))

    @property
    def packed_shape(self) -> tuple[int, ...]:
        return self.packing.packed_shape

    @property
    def packed_dtype(self) -> str:
        return self.engine.panel

    def pack_whole(self, packed: tirx.Var) -> None:
        """Pack all of B."""
        self.packing.pack_whole(packed)

    # ---- loop nest --------------------------------------------------------------------------------------------------

    def emit(self, packed: tirx.Var | None) -> None:
        """Emit the whole matrix multiplication; `packed` is the prepacked B, None reads or packs B at run time."""
        if packed is None and self.tiling.pack_b == "pack" and self.tasks[1] > 1:
            size = 1
            for extent in self.packed_shape:
                size *= extent
            packed = T.alloc_buffer((size,), self.packed_dtype)
            self.pack_whole(packed)
        tb, tm, tn, tk = self.tasks
        if tk > 1:
            self.partial = T.alloc_buffer((tk * self.batch * self.m * self.n,), self.engine.acc)
        total = tb * tm * tn * tk
        with T.parallel(0, total) if total > 1 else T.serial(0, 1) as task:
            kt = tirx.floormod(task, tk)
            nt = tirx.floormod(tirx.floordiv(task, tk), tn)
            mt = tirx.floormod(tirx.floordiv(task, tk * tn), tm)
            bt = tirx.floordiv(task, tk * tn * tm)
            b0, b1 = share(self.batch, bt, tb)
            with T.serial(b0, b1) as batch:
                self.task(batch, mt, nt, kt, packed)
        if tk > 1:
            self.add_partial_sums(tk)

    @property
    def most_panels(self) -> int:
        """Panels in a block of columns."""
        return min(self.panels_per_block, -(-self.panels // self.tasks[2]))

    def task(self, batch: Index, mt: Index, nt: Index, kt: Index, packed: tirx.Var | None) -> None:
        _, tm, tn, tk = self.tasks
        tile0, tile1 = share(self.tiles, mt, tm)
        panel0, panel1 = share(self.panels, nt, tn)
        block0, block1 = share(self.k_blocks, kt, tk)
        step = self.most_panels
        own = None
        if self.tiling.pack_b == "pack" and packed is None:
            own = T.alloc_buffer((step * self.packing.own_pitch,), self.engine.operand)
        with T.serial(0, tirx.ceildiv(panel1 - panel0, step)) as jc:
            panel = panel0 + jc * step
            count = tirx.min(step, panel1 - panel)
            full = count if not self.n_tail else tirx.max(0, tirx.min(count, self.full_panels - panel))
            with T.serial(block0, block1) as block:
                groups, elements = self.packing.block_length(block)
                if own is not None:
                    panels, base = own, self.packing.pack_block(own, batch, panel, full, count, block)
                else:
                    panels, base = packed, lambda p: self.packing.offset(batch, panel + p, block)

                def next_base(p: Index, panel: Index = panel, block: Index = block) -> Index:
                    behind = self.packing.offset(batch, panel + step + p, block0)
                    if self.k_blocks == 1:
                        return behind
                    return tirx.Select(block + 1 < block1, self.packing.offset(batch, panel + p, block + 1), behind)

                where = _Block(
                    batch=batch,
                    k0=block * (self.block_groups * self.group),
                    groups=groups,
                    elements=elements,
                    first=True if self.k_blocks == 1 else tirx.EQ(block, block0),
                    last=True if self.k_blocks == 1 else tirx.EQ(block, block1 - 1),
                    panels=panels,
                    panel_base=base,
                    next_base=next_base if self.tiling.prefetch_next and packed is not None else None,
                    tile0=tile0,
                )
                self.tiles_of_block(where, tile0, tile1, panel, full, count, kt)

    def tiles_of_block(
        self, where: _Block, tile0: Index, tile1: Index, panel: Index, full: Index, count: Index, kt: Index
    ) -> None:
        """Emit all register tiles of rows [tile0, tile1) and panels [panel, panel + count)."""

        def row_of_tiles(i0: Index, rows: int, columns_of: Callable[[Callable[[Index, int], None]], None]) -> None:
            copy = self.copy_tile(where, i0, rows)

            def tile(p: Index, columns: int) -> None:
                with named("tile"):
                    self.tile(where, i0, rows, panel, p, columns, copy, kt)

            columns_of(tile)

        def every_row(columns_of: Callable[[Callable[[Index, int], None]], None]) -> None:
            if self.full_tiles:
                end = tirx.min(tile1, self.full_tiles) if self.m_tail else tile1
                with T.serial(tile0, end) as tile:
                    row_of_tiles(tile * self.mr, self.mr, columns_of)
            if self.m_tail:
                with when(tile1 > self.full_tiles):
                    row_of_tiles(self.full_tiles * self.mr, self.m_tail, columns_of)

        def every_column(emit: Callable[[Index, int], None]) -> None:
            if self.full_panels:
                with T.serial(0, full) as p:
                    emit(p, self.nr)
            if self.n_tail:
                with when(count > full):
                    emit(full, self.n_tail)

        if self.tiling.inner_order == "mn" or self.copies_a:
            every_row(every_column)
        else:
            every_column(lambda p, columns: every_row(lambda emit: emit(p, columns)))

    def copy_tile(self, where: _Block, i0: Index, rows: int) -> tirx.Var | None:
        """Copy the tile's rows of A that are not read in place to a buffer whose rows do not collide in the cache."""
        if not self.copies_a or rows <= self.keep:
            return None

        def a(i: Index, k: Index) -> Expr:
            return self.element_a(where.batch, i0 + i, where.k0 + k)

        if self.columns_first and self.group == 1:
            buffer = T.alloc_buffer((self.block_groups * rows,), self.engine.operand)
            with named("copy_a", fills=True):
                copy_columns(buffer, rows, rows, a, where.elements)
            return buffer
        padded = where.elements if self.group == 1 else where.groups * self.group
        if self.engine.rows > 1:
            held = -(-rows // self.engine.rows) * self.engine.rows
            buffer = T.alloc_buffer((held * self.copy_stride,), self.engine.operand)
            with named("copy_a", fills=True):
                copy_blocks(buffer, rows, self.copy_stride, a, where.elements, padded, self.engine)
            return buffer
        buffer = T.alloc_buffer(((rows - self.keep) * self.copy_stride,), self.engine.operand)
        chunk = self.lanes * self.group
        with named("copy_a", fills=True):
            copy_rows(buffer, range(self.keep, rows), self.copy_stride, a, where.elements, padded, chunk)
        return buffer

    @property
    def copy_stride(self) -> int:
        """Leading dimension of the copy of A: whole vectors plus one, so that rows start in different cache sets."""
        chunk = self.lanes * self.group
        return (-(-self.block_groups * self.group // chunk) + 1) * chunk

    def tile(
        self,
        where: _Block,
        i0: Index,
        rows: int,
        panel: Index,
        p: Index,
        columns: int,
        copy: tirx.Var | None,
        kt: Index,
    ) -> None:
        """Emit one register tile: sum the K block, add the previous sums, store partial or final results."""
        shape = TileShape(rows, columns, self.lanes)
        j0 = (panel + p) * self.nr
        acc = accumulators(shape, self.engine)
        if self.k_blocks == 1:
            prefetch_results(self.program, shape, self.engine.acc, lambda i, j: (where.batch, i0 + i, j0 + j))
        self.start(acc, shape, where, p)
        if not self.adds_last:
            self.add_so_far(acc, shape, where, i0, j0, kt)
        transpose_sums(acc, shape, self.engine)
        steps = T.serial(0, where.groups) if self.program.stored_together == 1 else nested_twice(where.groups)
        with steps as k, named("microkernel"):
            a = self.rows_of_a(where, i0, rows, k, copy)
            if where.panels is None:
                step_in_place(
                    acc,
                    shape,
                    k,
                    a,
                    lambda at, j: self.packing.element(where.batch, where.k0 + at, j0 + j),
                )
            else:
                base = where.panel_base(p) + k * self.layout.row
                if where.next_base is not None:
                    ask(where.panels, [self.next_line(where, where.next_base(p), i0, k)], cache=2)
                step_packed(
                    acc,
                    shape,
                    k,
                    a,
                    where.panels,
                    base,
                    self.engine,
                    from_memory=bool(self.tiling.prefetch_b),
                )
        transpose_sums(acc, shape, self.engine)
        self.finish(acc, shape, where, i0, j0, kt)

    @property
    def tiles_of_task(self) -> int:
        """The most tiles of rows of a task."""
        return -(-self.tiles // self.tasks[1])

    def next_line(self, where: _Block, start: Index, i0: Index, k: Expr) -> Expr:
        """Return the element to prefetch in a step of a panel of the next block, which starts at `start`: each tile of
        rows prefetches an equal part of it, in order."""
        done = (tirx.floordiv(i0, self.mr) - where.tile0) * self.layout.size + k * self.layout.row
        return start + tirx.floordiv(done, self.tiles_of_task)

    def rows_of_a(self, where: _Block, i0: Index, rows: int, k: Expr, copy: tirx.Var | None) -> ElementOfA:
        """Return the function that reads the elements of A for a step; A' has the rows of a matrix instruction side
        by side."""
        width = self.engine.rows * self.group
        if self.engine.rows > 1 and copy is not None:
            return lambda row, _: copy[T.ramp(row * self.copy_stride + k * width, 1, width)]
        return groups_of_rows(self.engine, rows, lambda row: self.read_a(where, i0, row, k, copy))

    def read_a(self, where: _Block, i0: Index, row: int, k: Expr, copy: tirx.Var | None) -> Expr:
        if copy is None or row < self.keep:
            return self.element_a(where.batch, i0 + row, where.k0 + k)
        if self.columns_first and self.group == 1:
            return copy[k * (copy.shape[0] // self.block_groups) + row]
        at = (row - self.keep) * self.copy_stride + k * self.group
        return copy[at] if self.group == 1 else copy[T.ramp(at, 1, self.group)]

    def start(self, acc: Accumulators, shape: TileShape, where: _Block, p: Index) -> None:
        if self.engine.offset:
            assert where.panels is not None
            for row, vector in shape.slots():
                words = self.layout.starts(where.panels, where.panel_base(p), vector)
                T.buffer_store(acc[row, vector], words, [T.ramp(0, 1, self.lanes)])
        else:
            clear_accumulators(acc, shape, self.engine)

    def finish(self, acc: Accumulators, shape: TileShape, where: _Block, i0: Index, j0: Index, kt: Index) -> None:
        def raw(value: Expr, i: int, j: Expr) -> None:
            self.store_raw(value, where.batch, i0 + i, j0 + j, kt)

        def finished(value: Expr, i: Index, j: Expr) -> None:
            program = self.program
            at = program.out_at(where.batch, i0 + i, j0 + j)
            T.buffer_store(program.out, program.result(value, where.batch, i0 + i, j0 + j), at)

        if self.adds_last:
            self.add_so_far(acc, shape, where, i0, j0, kt)
        if self.partial is not None:
            with named("partial_sums"):
                write_back(acc, shape, raw)
        elif where.last is True or not self.program.has_epilogue:
            with named("epilogue"):
                write_back(acc, shape, finished, self.program.stored_together)
        else:
            with T.If(where.last):
                with T.Then(), named("epilogue"):
                    write_back(acc, shape, finished, self.program.stored_together)
                with T.Else(), named("partial_sums"):
                    write_back(acc, shape, raw)

    @property
    def adds_last(self) -> bool:
        """Whether each block is summed separately and the previous sums are added last.

        The sequence of additions is then as long as a block, so rounding errors grow with the block length and the
        number of blocks instead of with all of K: at K = 16384 they are 1.3 times those of OpenBLAS instead of 5.7
        times. Up to FEW_BLOCKS blocks they are below 4 times in any case, and loading the sums first costs up to 3
        percent less.
        """
        return self.k_blocks > FEW_BLOCKS

    def add_so_far(self, acc: Accumulators, shape: TileShape, where: _Block, i0: Index, j0: Index, kt: Index) -> None:
        """Add the sums of previous blocks, if there are any."""
        resume(acc, shape, where.first, lambda i, j: self.raw(where.batch, i0 + i, j0 + j, kt))

    # ---- partial sums -----------------------------------------------------------------------------------------------

    def raw(self, batch: Index, i: Index, j: Index, kt: Index) -> Expr:
        if self.partial is not None:
            return self.partial[self.partial_at(batch, i, j, kt)]
        return self.program.out[tuple(self.program.out_at(batch, i, j))]

    def store_raw(self, value: Expr, batch: Index, i: Index, j: Index, kt: Index) -> None:
        if self.partial is not None:
            T.buffer_store(self.partial, value, [self.partial_at(batch, i, j, kt)])
        else:
            T.buffer_store(self.program.out, value, self.program.out_at(batch, i, j))

    def partial_at(self, batch: Index, i: Index, j: Index, kt: Index) -> Index:
        return ((kt * self.batch + batch) * self.m + i) * self.n + j

    def add_partial_sums(self, tk: int) -> None:
        """Emit the end of split-K: add the tasks' sums and apply the epilogue, with rows in parallel."""
        whole, rest = divmod(self.n, self.lanes)
        workers = self.tasks[0] * self.tasks[1] * self.tasks[2] * tk

        def vector(batch: Index, i: Index, j0: Index, width: int) -> None:
            with T.vectorized(0, width) as lane:
                value = self.raw(batch, i, j0 + lane, 0)
                for kt in range(1, tk):
                    value = value + self.raw(batch, i, j0 + lane, kt)
                at = self.program.out_at(batch, i, j0 + lane)
                T.buffer_store(self.program.out, self.program.result(value, batch, i, j0 + lane), at)

        with T.parallel(0, workers) as worker:
            first, end = share(self.batch * self.m, worker, workers)
            with T.serial(first, end) as row:
                batch, i = tirx.floordiv(row, self.m), tirx.floormod(row, self.m)
                if whole:
                    with T.serial(0, whole) as v, named("add_partial_sums"):
                        vector(batch, i, v * self.lanes, self.lanes)
                if rest:
                    with named("add_partial_sums"):
                        vector(batch, i, whole * self.lanes, rest)
