"""Matrix products on the accelerator: the cut of page 01 by TVM's own primitives, blocks given to engines.

    batch
      the two outer loops over partitions, in the decision's order
        steps of k, where K is split or the partition that stays comes in such steps
          loads of A and of B into their buffers, each where its operand stays no longer than it must
          loops over tiles, in the decision's inner order; what stays outside, where one operand does
            GEMM of a tile: three loops, one instruction
      what is fused behind the product on the vector engine, tile by tile, and the store

Ragged edges are predicates that TVM's splits leave; an instruction there has shorter loops and costs no more than they.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from ..decide.near_tile import with_chunks
from ..decide.tiling import GemmTiling, ProductChunks
from ..hardware.description import Hardware
from ..lowering.accel.backward import backward
from ..lowering.accel.moves import Block, LoopRV, below, last_loops, on_engine, tiled
from ..lowering.accel.operands import place_loads
from ..lowering.prim_func import DECISION, ScheduledOperator
from ..match import GemmProgram
from ..match.access import loads
from .accel_product import ProductOnChip, sum_types


def apply(program: GemmProgram, hardware: Hardware, tiling: GemmTiling) -> ScheduledOperator:
    """The product cut as `tiling` says, as TIR with blocks given to engines; where it has no chunks, with those that
    its partitions have on `hardware.near_tile`.

    UnsupportedOperator for operands that are computed or of types that the matrix engine has not.
    """
    tiling = with_chunks(tiling, program.workload, hardware)
    chunks = tiling.chunks
    assert chunks is not None
    schedule = ProductSchedule(program, tiling, chunks, sum_types(hardware))
    main = schedule.write().mod[program.name]
    if chunks.backward:
        main = backward(main, schedule.partitions)
    return ScheduledOperator(tiling, main.with_attr(DECISION, tiling.to_json()))


class ProductSchedule(ProductOnChip):
    """Writes the schedule of one product."""

    def __init__(self, program: GemmProgram, tiling: GemmTiling, chunks: ProductChunks, sums: dict[str, str]) -> None:
        super().__init__(program, sums, memory_sums=chunks.sums)
        self.tiling, self.chunks = tiling, chunks
        self.walks_k = chunks.depth < program.workload.k

    def write(self) -> s_tir.Schedule:
        sch, tiling, chunks = self.sch, self.tiling, self.chunks
        batch, m, n, k = self.bring_on_chip()
        mo, mi = sch.split(m, [None, chunks.step_m])
        no, ni = sch.split(n, [None, chunks.step_n])
        mt, mi = sch.split(mi, [None, chunks.tile_m])
        nt, ni = sch.split(ni, [None, chunks.tile_n])
        steps: list[LoopRV] = []
        if self.walks_k:
            step, k = sch.split(k, [None, chunks.depth])
            steps = [step]
        outer = [mo, no] if tiling.outer_order == "mn" else [no, mo]
        inner = [nt, mt] if tiling.inner_order == "nm" else [mt, nt]
        if chunks.stays:  # a tile of what stays meets all that is there of the other operand
            inner = [mt, nt] if chunks.stays == "a" else [nt, mt]
        sch.reorder(*batch, *outer, *steps, *inner, mi, ni, k)
        on_engine(sch, self.product, "matrix", 3, chunks.versions_sums)
        self._place_loads(batch, {"a": mo, "b": no}, steps)
        self._place_behind(outer[1] if self.walks_k else inner[1])
        self.partitions: tirx.Var = sch.get(outer[0]).loop_var  # of the loop outside
        return sch

    # ---- where blocks stand ---------------------------------------------------------------------------------------

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
                if self.walks_k:
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
        """An operand that stays, loaded in the order and the pieces that a split K uses it in."""
        sch = self.sch
        rows, depth = last_loops(sch, block, 2)
        over, rows = sch.split(rows, [None, partition])
        step, depth = sch.split(depth, [None, self.chunks.depth])
        sch.reorder(over, step, rows, depth)

    def _place_behind(self, loop: LoopRV) -> None:
        """What follows the sums, at `loop`; where k is walked in tiles of its own."""
        sch = self.sch
        first, *rest = self.behind
        sch.reverse_compute_at(first, loop, preserve_unit_loops=True)
        if self.walks_k:
            loop = self._tiles_behind(first) or loop
        for block in rest:
            sch.reverse_compute_at(block, loop, preserve_unit_loops=True)
        if not rest:
            on_engine(sch, first, "store", below(sch, first, loop))
            return
        place_loads(sch, first, loop, self.further_operands(first))
        on_engine(sch, first, "vector", below(sch, first, loop), 2)
        on_engine(sch, rest[0], "store", below(sch, rest[0], loop))

    def _tiles_behind(self, block: Block) -> LoopRV | None:
        """Split the loops of the block behind the sums by tiles of m and n; the innermost loop over tiles, None where
        there is a single sum."""
        sch = self.sch
        product = sch.get(self.product)
        m, n = self.rows_and_columns
        read = next(load for load in loads(sch.get(block).body.value) if load.source.same_as(product.body.buffer))
        axes = [axis.var for axis in sch.get(block).iter_vars]
        tiles: list[int | None] = [None] * len(axes)
        place = {}
        for name, variable, tile in (("m", m, self.chunks.tile_m), ("n", n, self.chunks.tile_n)):
            indices = zip(product.body.indices, read.indices, strict=True)
            for own, there in indices:
                if isinstance(own, tirx.Var) and own.name == variable:
                    place[name] = next(d for d, axis in enumerate(axes) if axis.same_as(there))
                    tiles[place[name]] = tile
        order = [place[name] for name in self.tiling.inner_order[::-1] if name in place]
        return tiled(sch, block, tiles, order)[-1] if order else None
