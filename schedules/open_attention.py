"""Attention with a dynamic batch, rows or keys: the loop nest of attention.py with edges that depend on the sizes.

The register tile is decided for a sample. Rows after the last whole tile of a block form tiles of eight, four, two and
one rows. Keys are packed vector by vector; lanes of the last vector after the last key repeat that key, and their
results are not read: rows of scores start at multiples of a vector. Panels after the last whole one have as many
vectors as needed. The height of blocks is computed from the sizes as in the decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.vector.attention import MOST_ROWS, AttentionTiling, RegisterTile
from ..decide.vector.elementwise import ElementwiseTiling
from ..hardware.dot_instructions import DotInstruction
from ..lowering.extents import parted, parts_of, product_of, times
from ..lowering.loops import share
from ..lowering.panels import PanelLayout, pack_transposed
from ..lowering.register_tile import TileShape
from ..lowering.registers import counted, small_buffer
from ..lowering.samples import Extent, is_open
from ..lowering.vector_statement import Resolve
from ..match.attention import AttentionProgram
from ..match.row_buffer import StripRows, shrunk
from ..match.row_group import RowGroup
from .attention import AttentionEmitter, Expr, Index
from .row_emitter import RowEmitter, Strip

_KIND = "int64"


class OpenAttentionEmitter(AttentionEmitter):
    """Emits one attention operator of dynamic size, for an instruction that takes single elements. `space`: bytes
    available for the scores of a block."""

    def __init__(
        self, program: AttentionProgram, tiling: AttentionTiling, engine: DotInstruction, resolve: Resolve, space: int
    ) -> None:
        self.program, self.tiling, self.engine, self.resolve = program, tiling, engine, resolve
        self.shape, self.space = program.shape, space
        lanes = tiling.lanes
        self.batch = _index(product_of(program.batch))
        self.row_count, self.key_count = _index(program.row_count), _index(program.key_count)
        self.vectors = _index(parts_of(program.key_count, lanes))  # of keys
        self.keys = PanelLayout(tiling.scores.vectors * lanes, lanes, self.shape.depth, engine)
        self.values = PanelLayout(tiling.values.vectors * lanes, lanes, self.key_count, engine)
        self.base = tirx.Var("row", _KIND)
        self.stages, self.kept = self._by_row()

    def emit(self) -> None:
        s, tiling, lanes = self.shape, self.tiling, self.tiling.lanes
        tb, tr = tiling.threads_batch, tiling.threads_rows
        pitch = self.vectors * _number(lanes)
        # At most one block of the largest height, or the available space, or one row. Computed from the sizes directly:
        # variables would be defined after the allocations, which TVM moves to the front.
        room = tirx.min(pitch * _number(MOST_ROWS), tirx.max(pitch, _number(self.space // 4)))
        panels = tirx.floordiv(self.vectors + _number(tiling.scores.vectors - 1), _number(tiling.scores.vectors))
        with T.parallel(0, tb * tr) if tb * tr > 1 else T.serial(0, 1) as task:
            one = _number(1)  # at least one element, even without keys
            keys = T.alloc_buffer((tirx.max(panels * _number(self.keys.size), one),), self.engine.panel)
            width = _number(-(-s.width // self.values.nr)) * self.values.size
            values = T.alloc_buffer((tirx.max(width, one),), self.engine.panel)
            queries = T.alloc_buffer((MOST_ROWS * s.depth,), self.engine.operand)
            scores = T.alloc_buffer((tirx.max(room, one),), "float32")
            self.vectors = counted(self.vectors, 0)
            self.pitch = self.vectors * _number(lanes)
            height, blocks = self.blocks_of_rows()
            first, end = share(self.batch, tirx.floordiv(task, tr), tb)
            with T.serial(_number(0), end - first) as turn:
                batch = counted(first + turn, 0)
                self.pack_keys(keys, batch)
                self.pack_values(values, batch)
                block0, block1 = share(blocks, tirx.floormod(task, tr), tr)
                with T.serial(_number(0), block1 - block0) as number:
                    i0 = counted((block0 + number) * height, 0)
                    rows = counted(tirx.min(height, self.row_count - i0), 0)
                    self.open_block(batch, i0, rows, keys, values, queries, scores)

    def blocks_of_rows(self) -> tuple[Expr, Expr]:
        """Return (rows of a block, number of blocks), as in decide_attention()."""
        tall = _number(self.tiling.scores.height)
        bytes_of_a_row = counted(self.pitch * _number(4), 1)
        most = counted(tirx.min(_number(MOST_ROWS), tirx.floordiv(_number(self.space), bytes_of_a_row)), 1)
        count = counted(_parts(self.row_count, most), 1)
        even = counted(_parts(self.row_count, count), 1)
        whole = tirx.floordiv(even, tall) * tall
        height = counted(tirx.Select(tirx.all(count > _number(1), even > tall), whole, even), 1)
        return height, counted(_parts(self.row_count, height), 0)

    # ---- operands -------------------------------------------------------------------------------------------------

    def pack_keys(self, packed: tirx.Var, batch: Expr) -> None:
        """Pack the keys into panels, vector by vector."""
        layout, lanes, depth = self.keys, self.tiling.lanes, self.shape.depth
        operand, last = self.program.keys, self.key_count - _number(1)
        turned = operand.adjacent(operand.column) and not operand.adjacent(operand.row)
        single = _OneVector(lanes, lanes, depth, self.engine, layout.row)
        per = _number(layout.nr // lanes)

        def vector(number: Expr, key: Callable[[Expr], Expr]) -> None:
            base = tirx.floordiv(number, per) * _number(layout.size) + tirx.floormod(number, per) * _number(lanes)
            done = 0
            if turned:
                done = depth // lanes * lanes
                with T.serial(_number(0), _number(depth // lanes)) as square:
                    self.pack_square(packed, base, batch, square * _number(lanes), key, single)
            with T.serial(_number(0), _number(depth - done)) as rest:
                k = rest + _number(done)
                with T.vectorized(0, lanes) as lane:
                    value = self.element(operand, batch, key(tirx.Cast(_KIND, lane)), k)
                    T.buffer_store(packed, value, [base + k * _number(layout.row) + lane])

        whole, rest = parted(self.program.key_count, lanes)
        with T.serial(_number(0), _index(whole)) as number:
            vector(number, lambda lane: number * _number(lanes) + lane)
        if is_open(rest) or rest:
            start = _index(times(whole, lanes))
            with T.serial(_number(0), tirx.min(_index(rest), _number(1))):
                vector(_index(whole), lambda lane: tirx.min(start + lane, last))

    def pack_square(
        self, packed: tirx.Var, base: Expr, batch: Expr, k: Expr, key: Callable[[Expr], Expr], single: PanelLayout
    ) -> None:
        """Transpose as many elements of a vector's keys as it has lanes, in registers."""

        def element(step: Index, j: Index) -> Expr:
            return self.element(self.program.keys, batch, key(_index(j)), _index(step))

        pack_transposed(packed, base, element, k, single, single.lanes)

    def pack_values(self, packed: tirx.Var, batch: Expr) -> None:
        """Pack the values into panels; columns of the last panel after the last value are zero."""
        layout, lanes, width = self.values, self.tiling.lanes, self.shape.width
        for start in range(0, -(-width // lanes) * lanes, lanes):
            used = min(lanes, width - start)
            panel, column = divmod(start, layout.nr)
            base = _index(times(panel, layout.size)) + _number(column)
            with T.serial(_number(0), self.key_count) as k:
                at = base + k * _number(layout.row)
                with T.vectorized(0, used) as lane:
                    value = self.element(self.program.values, batch, k, _number(start) + lane)
                    T.buffer_store(packed, value, [at + lane])
                if used < lanes:
                    with T.vectorized(0, lanes - used) as lane:
                        T.buffer_store(packed, tirx.const(0, self.engine.panel), [at + lane + _number(used)])

    # ---- one block of rows ----------------------------------------------------------------------------------------

    def open_block(
        self, batch: Expr, i0: Expr, rows: Expr, keys: tirx.Var, values: tirx.Var, queries: tirx.Var, scores: tirx.Var
    ) -> None:
        s, program, tiling = self.shape, self.program, self.tiling
        self.copy_queries(queries, batch, i0, rows)

        def to_scores(value: Expr, i: Index, j: Index) -> None:
            T.buffer_store(scores, value, [i * self.pitch + j])

        def to_out(value: Expr, i: Index, e: Index) -> None:
            out = self.resolve(tirx.BufferLoad(program.out, [tirx.const(0, "int32")])).source
            at = self.out_base(batch) + (i0 + i) * program.out_strides[-2] + e * program.out_strides[-1]
            T.buffer_store(out, value, [at])

        def against_keys(panel: Expr, vectors: int) -> None:
            def one(i: Expr, height: int) -> None:
                shape = TileShape(height, vectors * tiling.lanes, tiling.lanes)
                depth = _number(s.depth)
                self.tile(queries, (depth, depth), i, shape, keys, self.keys, panel, to_scores)

            _tiles(rows, tiling.scores, one)

        most = tiling.scores.vectors
        full = counted(tirx.floordiv(self.vectors, _number(most)), 0)
        with T.serial(_number(0), full) as panel:
            against_keys(panel, most)
        for vectors in range(1, most):
            inside = tirx.Cast(_KIND, tirx.EQ(self.vectors - full * _number(most), _number(vectors)))
            with T.serial(_number(0), inside):
                against_keys(full, vectors)
        self.open_rows(batch, i0, rows, scores)
        whole, tail = divmod(s.width, self.values.nr)

        def against_values(i: Expr, height: int) -> None:
            def one(panel: Index, used: int) -> None:
                shape = TileShape(height, used, tiling.lanes)
                self.tile(scores, (self.key_count, self.pitch), i, shape, values, self.values, panel, to_out)

            if whole:
                with T.serial(_number(0), _number(whole)) as panel:
                    one(panel, self.values.nr)
            if tail:
                one(_number(whole), tail)

        _tiles(rows, tiling.values, against_values)

    def _by_row(self) -> tuple[RowGroup, list[tirx.Buffer]]:
        """Return the stages between the matrix multiplications, with scores and weights reduced to one row, and these
        two buffers."""
        program = self.program
        strip = StripRows(frozenset(v for v, _ in program.rows.rows), None, self.base, 1)
        stages, rows = list(program.rows.stages), []
        for buffer in (program.scores, program.weights):
            stages, small = shrunk(stages, buffer, ((1, program.key_count),), strip)
            rows.append(small)
        columns = tuple(c for c in program.rows.columns if not c[0].same_as(program.weights))
        return RowGroup(program.rows.rows, tuple(stages), columns), rows

    def open_rows(self, batch: Expr, i0: Expr, rows: Expr, scores: tirx.Var) -> None:
        """Emit these stages for every row of the block, in place."""
        place: list[Expr] = []

        def resolve(load: TensorLoad) -> Expr:
            if any(load.source.same_as(row) for row in self.kept):
                return tirx.BufferLoad(scores, [place[0] + load.indices[0]])
            return self.resolve(load)

        tiling = ElementwiseTiling(lanes=self.tiling.lanes, tasks=1, predicted_seconds=0.0)
        emitter = RowEmitter(self.stages, tiling, resolve, self.program.kept)
        emitter.small = [(flat, small_buffer(tuple(flat.shape), str(flat.dtype))) for flat in emitter.kept_rows]
        with T.serial(_number(0), rows) as row:
            place.append(row * self.pitch)
            at: dict[tirx.Var, Expr] = {}
            rest: Expr = batch * self.row_count + i0 + row
            for number in range(len(emitter.rows) - 1, -1, -1):
                variable, extent = emitter.rows[number]
                at[variable] = tirx.floormod(rest, _index(extent)) if number else rest
                rest = tirx.floordiv(rest, _index(extent))
            emitter.strip(at, Strip(None, ((0, 1),)))


@dataclass(frozen=True)
class _OneVector(PanelLayout):
    """One vector of a wider panel, with a distance of `apart` between steps."""

    apart: int

    @property
    def row(self) -> int:
        return self.apart


def _number(value: int) -> Expr:
    return tirx.const(value, _KIND)


def _index(value: Extent) -> Expr:
    return value if isinstance(value, tirx.Expr) else _number(value)


def _parts(extent: Expr, size: Expr) -> Expr:
    """Return the number of parts of at most `size`."""
    return tirx.floordiv(extent + size - _number(1), size)


def _tiles(rows: Expr, tile: RegisterTile, emit: Callable[[Expr, int], None]) -> None:
    """Call emit(first row, height) for whole tiles, then for lower ones that cover the remainder."""
    height = tile.height
    whole = counted(tirx.floordiv(rows, _number(height)), 0)
    with T.serial(_number(0), whole) as number:
        emit(number * _number(height), height)
    done, rest = counted(whole * _number(height), 0), counted(rows - whole * _number(height), 0)
    lower = 1 << (height - 1).bit_length()
    while lower > 1:
        before = tirx.floordiv(rest, _number(lower)) * _number(lower)
        lower //= 2
        # A loop with one or zero iterations.
        with T.serial(_number(0), tirx.floordiv(rest - before, _number(lower))):
            emit(counted(done + before, 0), lower)
