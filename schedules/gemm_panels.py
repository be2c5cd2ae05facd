"""B of a matrix multiplication in packed panels: where the panel of a block of K starts, and packing.

[batch][panel of nr columns][block of K][group of K][column][element of the group]; lowering/panels.py describes a
panel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.tiling import GemmTiling
from ..hardware.cpu import CACHE_LINE
from ..hardware.dot_instructions import DotInstruction
from ..lowering.dot import packed_b
from ..lowering.loops import by_edge, when
from ..lowering.named_blocks import named
from ..lowering.panels import PanelLayout, pack_panel_group, pack_starts, pack_transposed
from ..match import GemmProgram
from ..operand_types import element_bytes

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
Base: TypeAlias = Callable[[Index], Index]  # panel index -> offset of the panel


class GemmPanels:
    """Panels of one B, packed completely or in blocks by each task."""

    def __init__(self, program: GemmProgram, tiling: GemmTiling, engine: DotInstruction) -> None:
        self.program, self.engine = program, engine
        w = program.workload
        self.batch, self.k, self.group = w.batch, w.k, engine.group
        assert tiling.nr and tiling.lanes
        self.nr, self.lanes = tiling.nr, tiling.lanes
        self.k_groups = -(-self.k // self.group)
        self.block_groups = -(-self.k_groups // -(-self.k // tiling.partition_k))
        self.k_blocks = -(-self.k_groups // self.block_groups)
        self.layout = PanelLayout(self.nr, self.lanes, self.block_groups, engine)
        self.full, self.tail = divmod(w.n, self.nr)
        self.count = self.full + (self.tail > 0)

    # ---- places ---------------------------------------------------------------------------------------------------

    @property
    def packed_shape(self) -> tuple[int, ...]:
        return (self.batch, self.count, self.k_blocks, self.layout.rows, self.layout.row)

    def offset(self, batch: Index, panel: Index, block: Index) -> Index:
        """Return the offset of a panel in a completely packed B."""
        return ((batch * self.count + panel) * self.k_blocks + block) * self.layout.size

    @cached_property
    def own_pitch(self) -> int:
        """Elements between two panels of a task's own block of B: an odd number of cache lines. A row of B is written
        to all panels at once, which would evict each other from L1 if they started in the same set.
        """
        line = CACHE_LINE // element_bytes(self.engine.operand)
        return (-(-self.layout.size // line) | 1) * line

    def block_length(self, block: Index) -> tuple[Index, Index]:
        """Return (groups, elements) of a K block."""
        if self.k_blocks == 1:
            return self.k_groups, self.k
        groups = tirx.min(self.block_groups, self.k_groups - block * self.block_groups)
        return groups, tirx.min(self.block_groups * self.group, self.k - block * self.block_groups * self.group)

    def element(self, batch: Index, k: Index, j: Index) -> Expr:
        return packed_b(self.engine, lambda dtype: self.program.b.at(batch, k, j, dtype=dtype))

    # ---- packing --------------------------------------------------------------------------------------------------

    def pack(
        self, packed: tirx.Var, batch: Index, j0: Index, count: Index, block: Index, base: Base, columns: int
    ) -> None:
        """Pack `count` panels of `columns` columns each, starting at column j0; the loop over rows of B is
        outermost."""
        groups, elements = self.block_length(block)
        k0 = block * (self.block_groups * self.group)
        whole = tirx.floordiv(elements, self.group) if self.group > 1 else groups

        def element(panel: Index) -> Callable[[Index, Index], Expr]:
            return lambda k, j: self.element(batch, k0 + k, j0 + panel * self.nr + j)

        def group(index: Index, rows: int) -> None:
            with T.serial(0, count) as panel:
                at = base(panel) + index * self.layout.row
                pack_panel_group(packed, at, element(panel), index * self.group, self.layout, columns, rows)

        done: Index = 0
        if self.program.workload.trans_b:
            with T.serial(0, count) as panel, T.serial(0, tirx.floordiv(whole, self.lanes)) as square:
                pack_transposed(packed, base(panel), element(panel), square * self.lanes, self.layout, columns)
            done = tirx.floordiv(whole, self.lanes) * self.lanes
        # Starts at 0: for nested loops with other starts, TVM loses the outer start in the bounds of the inner loop.
        with T.serial(0, whole - done) as rest:
            group(done + rest, self.group)
        if self.k % self.group:
            with T.serial(0, groups - whole):
                group(whole, self.k % self.group)
        if self.engine.offset:
            with T.serial(0, count) as panel:
                pack_starts(packed, base(panel), groups, self.layout)

    def pack_whole(self, packed: tirx.Var) -> None:
        """Pack all of B, one parallel task per panel."""
        with T.parallel(0, self.batch * self.count) as task:
            batch, panel = tirx.floordiv(task, self.count), tirx.floormod(task, self.count)
            with T.serial(0, self.k_blocks) as block:

                def base(_: Index) -> Index:
                    return self.offset(batch, panel, block)

                def pack(columns: int) -> None:
                    with named("pack_b"):
                        self.pack(packed, batch, panel * self.nr, 1, block, base, columns)

                by_edge(panel, self.full, self.tail, self.nr, pack)

    def pack_block(self, own: tirx.Var, batch: Index, panel: Index, full: Index, count: Index, block: Index) -> Base:
        """Pack a task's own block of B, `count` panels starting at `panel`, the first `full` of them whole; return
        where they start."""

        def base(p: Index) -> Index:
            return p * self.own_pitch

        if self.full:
            with named("pack_b", fills=True):
                self.pack(own, batch, panel * self.nr, full, block, base, self.nr)
        if self.tail:
            with when(count > full), named("pack_b", fills=True):
                self.pack(own, batch, (panel + full) * self.nr, 1, block, lambda _: base(full), self.tail)
        return base
