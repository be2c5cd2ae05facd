"""A convolution's weights in panels of nr output channels, in the order in which the microkernel reads them.

    packed[group][panel][block][tap within the block][group of the run][column][element of the group]

A run is the contiguous input under one tap: the channels, or with `merge_taps` the channels of a whole kernel row. A
block is several whole taps, or a part of one.
"""

from __future__ import annotations

from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.conv_tiling import ConvTiling
from ..decide.conv.shape import ConvShape
from ..hardware.dot_instructions import DotInstruction
from ..match import ConvProgram
from .dot import packed_b
from .loops import by_edge
from .named_blocks import named
from .panels import PanelLayout, pack_panel_group, pack_starts

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


class KernelPanels:
    """Sizes and order of one convolution's packed weights, and their packing."""

    def __init__(self, program: ConvProgram, shape: ConvShape, tiling: ConvTiling, engine: DotInstruction) -> None:
        assert tiling.vectors and tiling.lanes and tiling.block_taps and tiling.block_run
        self.program, self.shape, self.engine = program, shape, engine
        # Points of a transposed convolution that no tap reaches have nothing to merge.
        self.merged = bool(tiling.merge_taps) and shape.w.taps > 0
        self.taps_w = 1 if self.merged else shape.w.taps
        self.taps = shape.d.taps * shape.h.taps * self.taps_w
        self.run = shape.ci * (shape.w.taps if self.merged else 1)
        groups = -(-self.run // engine.group)
        pieces = -(-self.run // tiling.block_run)
        self.run_groups = -(-groups // pieces)
        self.groups, self.pieces = groups, -(-groups // self.run_groups)
        self.block_taps = 1 if self.pieces > 1 else max(1, min(tiling.block_taps, self.taps))
        self.blocks = max(1, -(-self.taps // self.block_taps)) * self.pieces
        self.nr = tiling.vectors * tiling.lanes
        self.layout = PanelLayout(self.nr, tiling.lanes, self.block_taps * self.run_groups, engine)
        self.full, self.tail = divmod(shape.co, self.nr)
        self.count = self.full + (self.tail > 0)

    @property
    def packed_shape(self) -> tuple[int, ...]:
        return (self.shape.groups, self.count, self.blocks, self.layout.rows, self.layout.row)

    @property
    def size(self) -> int:
        return self.shape.groups * self.count * self.blocks * self.layout.size

    def offset(self, group: Index, panel: Index, block: Index) -> Index:
        """Return the offset of a block of a panel."""
        return ((group * self.count + panel) * self.blocks + block) * self.layout.size

    def block(self, index: Index) -> tuple[Index, Index, Index, Index]:
        """Return (first tap, taps, first group of each run, groups) of a block."""
        if self.blocks == 1:
            return 0, self.taps, 0, self.groups
        tap0 = tirx.floordiv(index, self.pieces) * self.block_taps
        group0 = tirx.floormod(index, self.pieces) * self.run_groups if self.pieces > 1 else 0
        taps = self.block_taps if self.taps % self.block_taps == 0 else tirx.min(self.block_taps, self.taps - tap0)
        even = self.groups % self.run_groups == 0
        return tap0, taps, group0, self.run_groups if even else tirx.min(self.run_groups, self.groups - group0)

    def tap(self, tap: Index) -> tuple[Index, Index, Index]:
        """Return a tap's depth, row and column; the column is 0 if the taps of a row are merged."""
        # If a stride is longer than the kernel, some points of a transposed convolution have no tap at all.
        wide, high = self.taps_w, max(1, self.shape.h.taps)
        kw = tirx.floormod(tap, wide) if wide > 1 else 0
        row = tirx.floordiv(tap, wide) if wide > 1 else tap
        if self.shape.d.taps == 1:
            return 0, row, kw
        return tirx.floordiv(row, high), tirx.floormod(row, high), kw

    def element(self, group: Index, tap: Index, t: Index, j: Index) -> Expr:
        """Return the weight of element t of a tap's run and output channel j of the group."""
        s = self.shape
        kd, kh, kw = self.tap(tap)
        c = t
        if self.taps_w == 1 and s.w.taps > 1:
            kw, c = tirx.floordiv(t, s.ci), tirx.floormod(t, s.ci)
        kd, kh = s.d.tap_first + s.d.tap_step * kd, s.h.tap_first + s.h.tap_step * kh
        channel = group * s.co + j
        if s.fold == 1:
            return self.weight(channel, kd, kh, s.w.tap_first + s.w.tap_step * kw, c)
        # Folded channels are `fold` adjacent columns; a column outside the kernel has weight zero.
        own = s.ci // s.fold
        column = kw * s.fold + tirx.floordiv(c, own)
        zero = tirx.const(0, self.engine.operand)
        weight = self.weight(channel, kd, kh, tirx.min(column, s.fold_taps - 1), tirx.floormod(c, own))
        return tirx.Select(column < s.fold_taps, weight, zero)

    def weight(self, channel: Index, kd: Index, kh: Index, kw: Index, c: Index) -> Expr:
        return packed_b(self.engine, lambda dtype: self.program.weight_at(channel, kd, kh, kw, c, dtype=dtype))

    def pack(self, packed: tirx.Var, base: int = 0) -> None:
        """Write all weights to `packed` starting at element `base`, one parallel task per panel."""
        with T.parallel(0, self.shape.groups * self.count) as task:
            group, panel = tirx.floordiv(task, self.count), tirx.floormod(task, self.count)
            with T.serial(0, self.blocks) as index:
                at = base + self.offset(group, panel, index)

                def block(columns: int) -> None:
                    with named("pack_w"):
                        self._block(packed, at, group, panel, index, columns)

                by_edge(panel, self.full, self.tail, self.nr, block)

    def _block(self, packed: tirx.Var, at: Index, group: Index, panel: Index, index: Index, columns: int) -> None:
        tap0, taps, group0, groups = self.block(index)
        width = self.engine.group
        whole = self.run // width

        def one(i: Index, g: Index, rows: int) -> None:
            def element(k: Index, j: Index) -> Expr:
                return self.element(group, tap0 + i, k, panel * self.nr + j)

            row = at + (i * self.run_groups + g) * self.layout.row
            pack_panel_group(packed, row, element, (group0 + g) * width, self.layout, columns, rows)

        with T.serial(0, taps) as i:
            complete = tirx.max(0, tirx.min(groups, whole - group0)) if self.run % width else groups
            with T.serial(0, complete) as g:
                one(i, g, width)
            if self.run % width:
                with T.serial(0, groups - complete):
                    one(i, complete, self.run % width)
        if self.engine.offset:
            pack_starts(packed, at, taps * groups, self.layout)
