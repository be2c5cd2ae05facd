"""Attention in one parallel region: a block of rows passes through q k^T, the stages of its rows, and the
multiplication by v.

parallel task = (share of the batch, share of the row blocks)
  matrix of the batch
    keys and values packed into panels
    block of rows
      queries copied, so that strides and scales cost nothing in the microkernel
      panels of keys, tiles of rows: scores into the block's buffer
      row by row: scale, mask, softmax, in place
      tiles of rows, panels of values: the result
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tvm import sym, tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.vector.attention import AttentionTiling, RegisterTile
from ..decide.vector.elementwise import ElementwiseTiling
from ..hardware.dot_instructions import DotInstruction
from ..lowering.dot import as_held, first_of
from ..lowering.extents import parted
from ..lowering.half_bits import BITS
from ..lowering.loops import by_edge, share
from ..lowering.panels import PanelLayout, pack_panel_group, pack_transposed
from ..lowering.register_tile import TileShape, accumulators, clear_accumulators, step_packed, write_back
from ..lowering.registers import small_buffer
from ..lowering.vector_statement import Resolve, resolved
from ..match.attention import AttentionProgram, Operand
from .row_emitter import RowEmitter, Strip

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
Store: TypeAlias = Callable[[Expr, Index, Index], None]


class AttentionEmitter:
    """Emits one attention operator."""

    def __init__(
        self, program: AttentionProgram, tiling: AttentionTiling, engine: DotInstruction, resolve: Resolve
    ) -> None:
        self.program, self.tiling, self.engine, self.resolve = program, tiling, engine, resolve
        s, lanes = program.shape, tiling.lanes
        self.shape = s
        self.keys = PanelLayout(tiling.scores.vectors * lanes, lanes, -(-s.depth // engine.group), engine)
        self.values = PanelLayout(tiling.values.vectors * lanes, lanes, -(-s.keys // engine.group), engine)
        self.blocks = -(-s.rows // tiling.block_rows)

    def emit(self) -> None:
        s, tiling = self.shape, self.tiling
        tb, tr = tiling.threads_batch, tiling.threads_rows
        with T.parallel(0, tb * tr) if tb * tr > 1 else T.serial(0, 1) as task:
            keys = T.alloc_buffer((-(-s.keys // self.keys.nr) * self.keys.size,), self.engine.panel)
            values = T.alloc_buffer((-(-s.width // self.values.nr) * self.values.size,), self.engine.panel)
            # The last group of a row may read elements past its end.
            queries = T.alloc_buffer((tiling.block_rows * s.depth + self.engine.group - 1,), self.engine.operand)
            scores = T.alloc_buffer((tiling.block_rows * s.keys,), "float32")
            weights = scores
            if not self.engine.in_place:
                weights = T.alloc_buffer((tiling.block_rows * s.keys + self.engine.group - 1,), BITS)
            first, end = share(s.batch, tirx.floordiv(task, tr), tb)
            with T.serial(0, end - first) as turn:
                batch = first + turn
                self.pack(keys, self.keys, self.program.keys, batch, s.keys, s.depth, by_row=True)
                self.pack(values, self.values, self.program.values, batch, s.width, s.keys, by_row=False)
                block0, block1 = share(self.blocks, tirx.floormod(task, tr), tr)
                full, tail = divmod(s.rows, tiling.block_rows)
                with T.serial(0, block1 - block0) as number:
                    block = block0 + number

                    def rows_of_block(rows: int, block: Expr = block, batch: Expr = batch) -> None:
                        self.block(batch, block * tiling.block_rows, rows, keys, values, queries, scores, weights)

                    by_edge(block, full, tail, tiling.block_rows, rows_of_block)

    # ---- operands -------------------------------------------------------------------------------------------------

    def place(self, operand: Operand, batch: Index) -> dict[tirx.Var, Expr]:
        """Return the batch axes of an operand for one of its matrices."""
        at: dict[tirx.Var, Expr] = {}
        rest: Expr = batch if isinstance(batch, tirx.Expr) else tirx.IntImm("int32", batch)
        for number in range(len(operand.batch) - 1, -1, -1):
            size = self.program.batch[number]
            at[operand.batch[number]] = tirx.floormod(rest, size) if number else rest
            rest = tirx.floordiv(rest, size)
        return at

    def element(self, operand: Operand, batch: Index, row: Index, column: Index) -> Expr:
        """Return an element in the type of the instruction."""
        at = {**self.place(operand, batch), operand.row: _index(row), operand.column: _index(column)}
        value = resolved(operand.expr, at, self.resolve)
        if self.engine.widens(str(value.ty)):
            return T.Cast(self.engine.a, value)
        return as_held(value)

    def pack(
        self,
        packed: tirx.Var,
        layout: PanelLayout,
        operand: Operand,
        batch: Index,
        columns: int,
        depth: int,
        *,
        by_row: bool,
    ) -> None:
        """Pack an operand into panels of columns; `by_row`: its rows are the columns of the panels."""

        def element(k: Index, j: Index) -> Expr:
            return self.element(operand, batch, j, k) if by_row else self.element(operand, batch, k, j)

        full, tail = divmod(columns, layout.nr)
        summed = operand.column if by_row else operand.row
        across = operand.row if by_row else operand.column
        group = self.engine.group
        turned = operand.adjacent(summed) and not operand.adjacent(across)
        squares = depth // group // layout.lanes if turned else 0

        def panel(number: Index, used: int) -> None:
            base, j0 = number * layout.size, number * layout.nr
            if squares:
                with T.serial(0, squares) as square:
                    pack_transposed(packed, base, lambda k, j: element(k, j0 + j), square * layout.lanes, layout, used)
            done = squares * layout.lanes

            def one(g: Index, rows: int) -> None:
                at = base + g * layout.row
                pack_panel_group(packed, at, lambda k, j: element(k, j0 + j), g * group, layout, used, rows)

            with T.serial(0, depth // group - done) as g:
                one(done + g, group)
            if depth % group:
                one(depth // group, depth % group)

        with T.serial(0, full) as number:
            panel(number, layout.nr)
        if tail:
            panel(full, tail)

    # ---- one block of rows ----------------------------------------------------------------------------------------

    def block(
        self,
        batch: Expr,
        i0: Expr,
        rows: int,
        keys: tirx.Var,
        values: tirx.Var,
        queries: tirx.Var,
        scores: tirx.Var,
        weights: tirx.Var,
    ) -> None:
        s, program = self.shape, self.program
        self.copy_queries(queries, batch, i0, rows)

        def to_scores(value: Expr, i: Index, j: Index) -> None:
            T.buffer_store(scores, value, [i * s.keys + j])

        def to_out(value: Expr, i: Index, e: Index) -> None:
            out = self.resolve(tirx.BufferLoad(program.out, [tirx.const(0, "int32")])).source
            at = self.out_base(batch) + (i0 + i) * program.out_strides[-2] + e * program.out_strides[-1]
            T.buffer_store(out, value, [at])

        self.product(
            queries, s.depth, rows, keys, self.keys, s.keys, self.tiling.scores, to_scores, panels_outside=True
        )
        self.rows(batch, i0, rows, scores, weights)
        self.product(
            weights, s.keys, rows, values, self.values, s.width, self.tiling.values, to_out, panels_outside=False
        )

    def out_base(self, batch: Expr) -> Expr:
        total: Expr = tirx.const(0, "int32")
        rest = batch
        for number in range(len(self.program.batch) - 1, -1, -1):
            size = self.program.batch[number]
            digit = tirx.floormod(rest, size) if number else rest
            total = total + digit * self.program.out_strides[number]
            rest = tirx.floordiv(rest, size)
        return total

    def copy_queries(self, queries: tirx.Var, batch: Expr, i0: Expr, rows: int) -> None:
        depth, lanes = self.shape.depth, self.tiling.lanes
        with T.serial(0, rows) as row:

            def copy(start: Index, width: int) -> None:
                with T.vectorized(0, width) as lane:
                    value = self.element(self.program.queries, batch, i0 + row, start + lane)
                    T.buffer_store(queries, value, [row * depth + start + lane])

            with T.serial(0, depth // lanes) as block:
                copy(block * lanes, lanes)
            if depth % lanes:
                copy(depth // lanes * lanes, depth % lanes)

    def rows(self, batch: Expr, i0: Expr, rows: int, scores: tirx.Var, weights: tirx.Var) -> None:
        """Emit the stages between the matrix multiplications, row by row, on the block's buffers."""
        s, program = self.shape, self.program
        first = tirx.Cast("int64", (batch * s.rows + i0) * s.keys)

        def resolve(load: TensorLoad) -> Expr:
            for whole, block in ((program.scores, scores), (program.weights, weights)):
                if load.source.same_as(whole):
                    return tirx.BufferLoad(block, [sym.Analyzer().simplify(load.indices[0] - first)])
            return self.resolve(load)

        tiling = ElementwiseTiling(lanes=self.tiling.lanes, tasks=1, predicted_seconds=0.0)
        emitter = RowEmitter(program.rows, tiling, resolve, program.kept)
        emitter.small = [(flat, small_buffer(tuple(flat.shape), str(flat.dtype))) for flat in emitter.kept_rows]
        with T.serial(tirx.const(0, "int64"), tirx.const(rows, "int64")) as row:
            at: dict[tirx.Var, Expr] = {}
            rest: Expr = tirx.Cast("int64", batch * s.rows + i0) + row
            for number in range(len(emitter.rows) - 1, -1, -1):
                variable, extent = emitter.rows[number]
                size = tirx.const(extent, "int64")
                at[variable] = tirx.floormod(rest, size) if number else rest
                rest = tirx.floordiv(rest, size)
            emitter.strip(at, Strip(None, ((0, 1),)))

    def product(
        self,
        left: tirx.Var,
        depth: int,
        rows: int,
        packed: tirx.Var,
        layout: PanelLayout,
        columns: int,
        tile: RegisterTile,
        store: Store,
        *,
        panels_outside: bool,
    ) -> None:
        """Multiply left, rows x depth, by packed panels, in register tiles."""
        full, tail = divmod(columns, layout.nr)
        tiles, rest = divmod(rows, tile.height)

        def one(i0: Index, height: int, panel: Index, used: int) -> None:
            self.tile(left, (depth, depth), i0, TileShape(height, used, layout.lanes), packed, layout, panel, store)

        def every_row(emit: Callable[[Index, int], None]) -> None:
            if tiles:
                with T.serial(0, tiles) as number:
                    emit(number * tile.height, tile.height)
            if rest:
                emit(tiles * tile.height, rest)

        def every_panel(emit: Callable[[Index, int], None]) -> None:
            if full:
                with T.serial(0, full) as panel:
                    emit(panel, layout.nr)
            if tail:
                emit(full, tail)

        if panels_outside:
            every_panel(lambda panel, used: every_row(lambda i0, height: one(i0, height, panel, used)))
        else:
            every_row(lambda i0, height: every_panel(lambda panel, used: one(i0, height, panel, used)))

    def tile(
        self,
        left: tirx.Var,
        row: tuple[Index, Index],
        i0: Index,
        shape: TileShape,
        packed: tirx.Var,
        layout: PanelLayout,
        panel: Index,
        store: Store,
    ) -> None:
        """Emit one register tile; `row` holds the number of elements in a row of `left` and the distance between
        rows."""
        group, (depth, pitch) = self.engine.group, row
        acc = accumulators(shape, self.engine)
        clear_accumulators(acc, shape, self.engine)

        def step(g: Index, count: int) -> None:
            read = [self.taken(left, (i0 + i) * pitch + g * group, count) for i in range(shape.rows)]
            base = panel * layout.size + g * layout.row
            step_packed(acc, shape, g, lambda i, _: read[i], packed, base, self.engine)

        whole, rest = parted(depth, group)
        with T.serial(0, whole) as g:
            step(g, group)
        if rest:
            step(_index(whole), rest)
        write_back(acc, shape, lambda value, i, j: store(value, i0 + i, panel * layout.nr + j))

    def taken(self, left: tirx.Var, at: Index, count: int) -> Expr:
        """Return a group of elements of the left operand, of which the first `count` belong to its row."""
        group = self.engine.group
        if group == 1:
            return left[at]
        elements = left[T.ramp(at, 1, group)]
        if str(left.dtype) != self.engine.operand:
            elements = T.reinterpret(f"{self.engine.operand}x{group}", elements)
        return elements if count == group else first_of(self.engine, elements, count)


def _index(value: Index) -> Expr:
    return value if isinstance(value, tirx.Expr) else tirx.IntImm("int32", value)
