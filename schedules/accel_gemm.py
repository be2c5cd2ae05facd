"""Matrix multiplications on the accelerator: the analytical partition by TVM's primitives, with blocks assigned to
engines.

    batch
      the two outer loops over partitions, in the decided order
        steps of K, if K is split or the resident partition arrives in such steps
          loads of A and of B into their buffers, each at the innermost possible loop
          loops over tiles, in the decided inner order; the resident operand, if any, is outside
            GEMM of a tile: three loops, one instruction
      the epilogue on the vector engine, tile by tile, and the store

Partial tiles are predicates that TVM's splits leave; an instruction there has shorter loops and costs correspondingly
less.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from ..decide.near_tile import with_chunks
from ..decide.tiling import GemmTiling, ProductChunks
from ..hardware.description import Hardware
from ..hardware.machine import Machine
from ..lowering.accel.moves import Block, LoopRV, backward, below, last_loops, on_engine, tiled
from ..lowering.accel.place_epilogue import EpilogueCapacity, serve_results
from ..lowering.prim_func import DECISION, ScheduledOperator
from ..match import GemmProgram
from ..match.access import loads
from .accel_product import ProductOnChip, sum_types


def apply(program: GemmProgram, hardware: Hardware, tiling: GemmTiling, vector: bool = False) -> ScheduledOperator:
    """Return the matrix multiplication tiled by `tiling` as TIR with its blocks assigned to engines. If `tiling` has no
    chunks, those of its partitions on `hardware.near_tile` are used; `vector` is described in Surroundings.

    Raises UnsupportedOperator for operands that are computed or of unsupported types.
    """
    tiling = with_chunks(tiling, program.workload, hardware, vector)
    chunks = tiling.chunks
    assert chunks is not None
    schedule = ProductSchedule(program, tiling, chunks, sum_types(hardware), Machine(hardware).capacity("out"))
    main = schedule.write().mod[program.name]
    if chunks.backward:
        main = backward(main, schedule.partitions)
    return ScheduledOperator(tiling, main.with_attr(DECISION, tiling.to_json()))


class ProductSchedule(ProductOnChip):
    """Builds the schedule of one matrix multiplication."""

    def __init__(
        self,
        program: GemmProgram,
        tiling: GemmTiling,
        chunks: ProductChunks,
        sums: dict[str, str],
        capacity: int | None,
    ) -> None:
        super().__init__(program, sums, memory_sums=chunks.sums)
        self.tiling, self.chunks = tiling, chunks
        self.capacity = EpilogueCapacity(capacity, chunks.tile_m * chunks.tile_n, chunks.sync_m * chunks.sync_n)
        self.loops_over_k = chunks.depth < program.workload.k

    def write(self) -> s_tir.Schedule:
        sch, tiling, chunks = self.sch, self.tiling, self.chunks
        batch, m, n, k = self.bring_on_chip()
        mo, mi = sch.split(m, [None, chunks.step_m])
        no, ni = sch.split(n, [None, chunks.step_n])
        mt, mi = sch.split(mi, [None, chunks.tile_m])
        nt, ni = sch.split(ni, [None, chunks.tile_n])
        steps: list[LoopRV] = []
        if self.loops_over_k:
            step, k = sch.split(k, [None, chunks.depth])
            steps = [step]
        outer = [mo, no] if tiling.outer_order == "mn" else [no, mo]
        inner = [nt, mt] if tiling.inner_order == "nm" else [mt, nt]
        if chunks.stays:  # a tile of the resident operand meets all of the other operand in the buffer
            inner = [mt, nt] if chunks.stays == "a" else [nt, mt]
        mi, ni, parts = self._in_synchronisations(mi, ni)
        sch.reorder(*batch, *outer, *steps, *inner, *parts, mi, ni, k)
        on_engine(sch, self.product, "matrix", 3, chunks.versions_sums)
        self._place_loads(batch, {"a": mo, "b": no}, steps)
        if self.loops_over_k:
            self._place_epilogue(outer[1], outer[1])
        else:
            self._place_epilogue(inner[1], [*inner, *parts][-1])
        self.partitions: tirx.Var = sch.get(outer[0]).loop_var  # of the outermost loop
        return sch

    def _in_synchronisations(self, mi: LoopRV, ni: LoopRV) -> tuple[LoopRV, LoopRV, list[LoopRV]]:
        """Return the loops of one instruction, and those over the instructions of a tile, outermost first."""
        chunks, parts = self.chunks, {}
        if chunks.sync_m < chunks.tile_m:
            parts["m"], mi = self.sch.split(mi, [None, chunks.sync_m])
        if chunks.sync_n < chunks.tile_n:
            parts["n"], ni = self.sch.split(ni, [None, chunks.sync_n])
        return mi, ni, [parts[axis] for axis in self.tiling.inner_order if axis in parts]

    # ---- places of blocks ---------------------------------------------------------------------------------------

    def _place_loads(self, batch: list[LoopRV], loops: dict[str, LoopRV], steps: list[LoopRV]) -> None:
        chunks = self.chunks
        partition = {"a": chunks.step_m, "b": chunks.step_n}
        tile = {"a": chunks.tile_m, "b": chunks.tile_n}
        for name, block, whole, versions in (
            ("a", self.load_a, chunks.whole_a, chunks.versions_a),
            ("b", self.load_b, chunks.whole_b, chunks.versions_b),
        ):
            if whole:
                if batch:
                    self.sch.compute_at(block, batch[-1], preserve_unit_loops=True)
                if self.loops_over_k:
                    self._whole_in_steps(block, partition[name])
                else:
                    tiled(self.sch, block, (tile[name], None), (0,))
                on_engine(self.sch, block, "load", 2, 2 if batch and versions > 1 else 1)
            elif name == chunks.stays and steps:
                self.sch.compute_at(block, loops[name], preserve_unit_loops=True)
                tiled(self.sch, block, (None, chunks.depth), (1,))
                on_engine(self.sch, block, "load", 2, versions)
            elif steps:
                self.sch.compute_at(block, steps[-1], preserve_unit_loops=True)
                on_engine(self.sch, block, "load", 2, versions)
            else:
                self.sch.compute_at(block, loops[name], preserve_unit_loops=True)
                tiled(self.sch, block, (tile[name], None), (0,))
                on_engine(self.sch, block, "load", 2, versions)

    def _whole_in_steps(self, block: Block, partition: int) -> None:
        """Load a resident operand in the order and the pieces in which split-K uses it."""
        sch = self.sch
        rows, depth = last_loops(sch, block, 2)
        over, rows = sch.split(rows, [None, partition])
        step, depth = sch.split(depth, [None, self.chunks.depth])
        sch.reorder(over, step, rows, depth)

    def _place_epilogue(self, tile: LoopRV, part: LoopRV) -> None:
        """Place the epilogue on the vector engine at the loop over the parts of a tile that one instruction computes,
        and the store at the loop over tiles. If there is a loop over K, both get loops over tiles and parts of their
        own."""
        sch = self.sch
        first, *rest = self.behind
        sch.reverse_compute_at(first, part, preserve_unit_loops=True)
        if self.loops_over_k:
            tile, part = self._tiles_behind(first, part)
        if not rest:
            on_engine(sch, first, "store", below(sch, first, part))
            return
        serve_results(sch, first, rest[0], tile, part, self.capacity, self.further_operands(first))

    def _tiles_behind(self, block: Block, around: LoopRV) -> tuple[LoopRV, LoopRV]:
        """Split the loops of the block after the sums by tiles of m and n, and by the parts that an instruction
        computes; return the innermost loops over tiles and over parts. Both are `around` if there is a single sum."""
        sch, chunks = self.sch, self.chunks
        product = sch.get(self.product)
        m, n = self.rows_and_columns
        read = next(load for load in loads(sch.get(block).body.value) if load.source.same_as(product.body.buffer))
        axes = [axis.var for axis in sch.get(block).iter_vars]
        tiles: list[int | None] = [None] * len(axes)
        parts: list[int | None] = [None] * len(axes)
        place = {}
        for name, variable, tile, part in (
            ("m", m, chunks.tile_m, chunks.sync_m),
            ("n", n, chunks.tile_n, chunks.sync_n),
        ):
            indices = zip(product.body.indices, read.indices, strict=True)
            for own, there in indices:
                if isinstance(own, tirx.Var) and own.name == variable:
                    place[name] = next(d for d, axis in enumerate(axes) if axis.same_as(there))
                    tiles[place[name]], parts[place[name]] = tile, part
        order = [place[name] for name in self.tiling.inner_order[::-1] if name in place]
        if not order:
            return around, around
        over_tiles = tiled(sch, block, tiles, order)[-1]
        return over_tiles, (over_tiles if parts == tiles else tiled(sch, block, parts, order)[-1])
