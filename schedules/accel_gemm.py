"""Matrix products on the accelerator: the cut of page 01 by TVM's own primitives, blocks given to engines.

    batch
      the two outer loops over partitions, in the decision's order
        steps of k, where K is split, and pieces of them
          loads of A and of B into their buffers, each where its operand stays no longer than it must
          loops over tiles, in the decision's inner order
            GEMM of a tile: three loops, one instruction
      what is fused behind the product on the vector engine, tile by tile, and the store

Ragged edges are predicates that TVM's splits leave; an instruction there has shorter loops and costs no more than they.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx

from ..decide.gemm_partition import decide_partition
from ..decide.product_chunks import ProductChunks, product_chunks
from ..decide.tiling import GemmTiling
from ..decide.traffic import product_on
from ..errors import HardwareError, UnsupportedOperator
from ..hardware.description import Hardware
from ..lowering.accel_flatten import flatten_axes
from ..lowering.accel_moves import Block, LoopRV, below, last_loops, on_engine, tiled
from ..lowering.prim_func import DECISION, ScheduledOperator
from ..match import GemmProgram
from ..match.access import Access, loads, variables

# The type of sums by the type of operands and the bytes that the machine keeps for a sum.
SUMS = {
    4: {"int8": "int32", "uint8": "int32", "float32": "float32", "float16": "float32", "bfloat16": "float32"},
    2: {"int8": "int16", "uint8": "int16", "float32": "float16", "float16": "float16", "bfloat16": "bfloat16"},
}


def apply(program: GemmProgram, hardware: Hardware, tiling: GemmTiling | None = None) -> ScheduledOperator:
    """The product cut as decided for `hardware.near_tile`, or as `tiling` says: TIR whose blocks are given to engines.

    UnsupportedOperator for operands that are computed or of types that the matrix engine has not.
    """
    tiling = tiling or decide_partition(program.workload, hardware)
    unit = hardware.near_tile
    assert unit is not None  # decide_partition has refused such a machine
    chunks = product_chunks(product_on(program.workload, hardware), tiling, unit)
    kept = unit.acc_bytes_per_element or 4
    if kept not in SUMS and kept < 4:
        raise HardwareError(
            f"hardware {hardware.name!r}: near_tile.acc_bytes_per_element = {kept}, accepted for programs: 2, or 4 and "
            "more"
        )
    sch = ProductSchedule(program, tiling, chunks, SUMS[2 if kept == 2 else 4]).write()
    main = sch.mod[program.name].with_attr(DECISION, tiling.to_json())
    return ScheduledOperator(tiling, main)


class ProductSchedule:
    """Writes the schedule of one product."""

    def __init__(self, program: GemmProgram, tiling: GemmTiling, chunks: ProductChunks, sums: dict[str, str]) -> None:
        self.program, self.tiling, self.chunks = program, tiling, chunks
        size = program.workload
        if size.dtype not in sums or program.a.dtype != program.b.dtype:
            raise UnsupportedOperator(
                f"{program.name}: a product of {program.a.dtype} by {program.b.dtype}; the accelerator has products of "
                f"{', '.join(sums)}, both operands of one type"
            )
        self.sum_type = sums[size.dtype]
        for operand in (program.a, program.b):
            if operand.buffer is None:
                raise UnsupportedOperator(
                    f"{program.name}: the operand {operand.expr} is computed; accepted: operands that are read as they "
                    "lie"
                )
        self.split = tiling.partition_k < size.k
        self.sch = s_tir.Schedule(tvm.IRModule({program.name: program.func}), debug_mask="none")
        self.sch.work_on(program.name)
        self.product = self._product_block()

    def _product_block(self) -> Block:
        sch = self.sch
        for block in sch.get_child_blocks(sch.get_sblock("root")):
            if sch.get(block).init is not None:
                return block
        raise UnsupportedOperator(f"{self.program.name}: holds no sum")

    def write(self) -> s_tir.Schedule:
        sch, tiling, chunks = self.sch, self.tiling, self.chunks
        consumers = sch.get_consumers(self.product)
        self.behind = self._sums_on_chip(consumers[0] if consumers else None)
        self.load_a, self.load_b = self._operands_on_chip()
        batch, m, n, k = self._axes()
        mo, mi = sch.split(m, [None, chunks.step_m])
        no, ni = sch.split(n, [None, chunks.step_n])
        mt, mi = sch.split(mi, [None, chunks.tile_m])
        nt, ni = sch.split(ni, [None, chunks.tile_n])
        steps: list[LoopRV] = []
        if self.split:
            step, k = sch.split(k, [None, chunks.depth])
            steps = [step]
        outer = [mo, no] if tiling.outer_order == "mn" else [no, mo]
        inner = [nt, mt] if tiling.inner_order == "nm" else [mt, nt]
        sch.reorder(*batch, *outer, *steps, *inner, mi, ni, k)
        on_engine(sch, self.product, "matrix", 3, None if self.split else 2)
        self._place_loads(batch, {"a": mo, "b": no}, steps)
        self._place_behind(outer[1] if self.split else inner[1])
        return sch

    # ---- buffers --------------------------------------------------------------------------------------------------

    def _sums_on_chip(self, epilogue: Block | None) -> list[Block]:
        """Sums in the machine's memory and type; gives the blocks behind the product, in order."""
        sch, scope = self.sch, f"global.{self.chunks.sums}"
        if epilogue is None:
            sum_type = str(sch.get(self.product).body.buffer.dtype)
            behind = [sch.cache_write(self.product, 0, scope)]
            if sum_type != self.sum_type:
                behind.append(sch.cache_write(behind[0], 0, "global.out"))
        else:
            sum_type = str(sch.get(self.product).body.buffer.dtype)
            sch.set_scope(self.product, 0, scope)
            behind = [epilogue, sch.cache_write(epilogue, 0, "global.out")]
        if sum_type != self.sum_type:
            sch.unsafe_set_dtype(self.product, 0, self.sum_type)
        return behind

    def _operands_on_chip(self) -> tuple[Block, Block]:
        """A and B in their buffers, the summed axis innermost in both, so that pieces of rows are contiguous."""
        sch, program = self.sch, self.program
        block = sch.get(self.product)
        own = [axis.var for axis in block.iter_vars]
        places = []
        for operand in (program.a, program.b):
            number = next(i for i, r in enumerate(block.reads) if r.source.same_as(operand.buffer))
            places.append(number)
        names = {variable.name: i for i, variable in enumerate(own)}

        def cached(operand: Access, number: int, scope: str, order: tuple[int, ...]) -> Block:
            used = {variable.name for variable in variables(operand.expr)}
            fresh = [tirx.Var(variable.name, str(variable.ty)) for variable in own]
            indices = [fresh[names[v.name]] for group in order for v in operand.axes[group] if v.name in used]
            return sch.reindex_cache_read(self.product, number, scope, tirx.IndexMap(fresh, indices, None))

        return cached(program.a, places[0], "global.a", (0, 1, 2)), cached(program.b, places[1], "global.b", (0, 2, 1))

    def _axes(self) -> tuple[list[LoopRV], LoopRV, LoopRV, LoopRV]:
        """The loops of the product as batch, m, n and k, one of each but the batch."""
        sch, program = self.sch, self.program
        groups = [program.out_axes[0], program.out_axes[1], program.out_axes[2], program.a.axes[2]]
        if any(len(group) != 1 for group in groups[1:]):
            flatten_axes(sch, self.product, (self.load_a, self.load_b), self.behind, groups)
            *batch, m, n, k = sch.get_loops(self.product)
            self.rows_and_columns = tuple(axis.var.name for axis in sch.get(self.product).iter_vars[-3:-1])
            return batch, m, n, k
        self.rows_and_columns = tuple(group[0].name for group in groups[1:3])
        block = sch.get(self.product)
        loops = {axis.var.name: loop for axis, loop in zip(block.iter_vars, sch.get_loops(self.product), strict=True)}
        batch, (m,), (n,), (k,) = ([loops[v.name] for v in group] for group in groups)
        sch.reorder(*batch, m, n, k)
        return batch, m, n, k

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
                if self.split:
                    self._whole_in_steps(block, partition[name])
                else:
                    tiled(self.sch, block, (tile[name], None), (0,))
                on_engine(self.sch, block, "load", 2, 2 if batch and versions > 1 else 1)
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
        """What follows the sums, at `loop`; where K is split in tiles of its own."""
        sch = self.sch
        first, *rest = self.behind
        sch.reverse_compute_at(first, loop, preserve_unit_loops=True)
        if self.split:
            loop = self._tiles_behind(first)
        for block in rest:
            sch.reverse_compute_at(block, loop, preserve_unit_loops=True)
        if not rest:
            on_engine(sch, first, "store", below(sch, first, loop))
            return
        for load in self._further_operands(first):
            sch.compute_at(load, loop, preserve_unit_loops=True)
            on_engine(sch, load, "load", below(sch, load, loop), 2)
        on_engine(sch, first, "vector", below(sch, first, loop), 2)
        on_engine(sch, rest[0], "store", below(sch, rest[0], loop))

    def _tiles_behind(self, block: Block) -> LoopRV:
        """Split the loops of the block behind the sums by tiles of m and n; the innermost loop over tiles."""
        sch = self.sch
        product = sch.get(self.product)
        m, n = self.rows_and_columns
        read = next(load for load in loads(sch.get(block).body.value) if load.source.same_as(product.body.buffer))
        axes = [axis.var for axis in sch.get(block).iter_vars]
        tiles: list[int | None] = [None] * len(axes)
        place = {}
        for name, variable, tile in (("m", m, self.chunks.tile_m), ("n", n, self.chunks.tile_n)):
            indices = zip(product.body.indices, read.indices, strict=True)
            at = next(there for own, there in indices if own.name == variable)
            place[name] = next(d for d, axis in enumerate(axes) if axis.same_as(at))
            tiles[place[name]] = tile
        return tiled(sch, block, tiles, [place[name] for name in self.tiling.inner_order[::-1]])[-1]

    def _further_operands(self, block: Block) -> list[Block]:
        """What the fused expression reads besides the sums, on the chip."""
        sch = self.sch
        seen: list[Any] = [sch.get(self.product).body.buffer]
        cached = []
        for load in loads(sch.get(block).body.value):
            if not any(load.source.same_as(other) for other in seen):
                seen.append(load.source)
                cached.append(sch.cache_read(block, load.source.name, "global.out"))
        return cached
