"""Weights in W-fold layout: for each tap and block of channels, one row per output channel, with pci weights repeated
ws times.

    packed[panel][kh][kw][block][channel of the panel][ws * pci]

An instruction that offsets its input has one more row per channel at the end of a panel: the initial values of the sums
in its lanes.
"""

from __future__ import annotations

from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.fold.folded_rows import FoldedRows
from ..hardware.dot_instructions import DotInstruction
from ..match import ConvProgram
from .dot import dot, packed_b
from .named_blocks import named
from .registers import register

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


class FoldPanels:
    """Sizes, order and packing; a panel has `channels` output channels."""

    def __init__(self, program: ConvProgram, rows: FoldedRows, channels: int, engine: DotInstruction) -> None:
        self.program, self.rows, self.channels, self.engine = program, rows, channels, engine
        self.row = rows.ws * rows.pci
        self.full, self.tail = divmod(rows.co, channels)
        self.count = self.full + (self.tail > 0)

    @property
    def packed_shape(self) -> tuple[int, ...]:
        r = self.rows
        if self.engine.offset:
            return (self.count, r.steps + 1, self.channels, self.row)
        return (self.count, r.h.taps, r.w.taps, r.bci, self.channels, self.row)

    @property
    def panel(self) -> int:
        return (self.rows.steps + (1 if self.engine.offset else 0)) * self.channels * self.row

    @property
    def size(self) -> int:
        return self.count * self.panel

    def offset(self, panel: Index) -> Index:
        return panel * self.panel

    def step(self, kh: Index, kw: Index, block: Index) -> Index:
        """Return the offset within a panel of the rows of a tap's block."""
        return ((kh * self.rows.w.taps + kw) * self.rows.bci + block) * self.channels * self.row

    def start(self, packed: tirx.Var, base: Index, channel: int) -> Expr:
        """Return the initial values of the lanes of a channel as 32-bit words."""
        at = base + (self.rows.steps * self.channels + channel) * self.row
        lanes = self.row // self.engine.group
        return T.reinterpret(f"{self.engine.word}x{lanes}", packed[T.ramp(at, 1, self.row)])

    def pack(self, packed: tirx.Var) -> None:
        """Write all weights in memory order: tasks of panels, or, if output channels are adjacent in memory, tasks of
        blocks of taps and channels, each of which reads one contiguous piece."""
        rows, strides = self.rows, self.program.kernel.strides
        taps, blocks = (rows.h.taps, rows.w.taps, rows.bci), rows.w.taps * rows.bci
        if strides is not None and strides[0] < strides[-1]:
            with T.parallel(0, rows.steps) as step:
                kh, kw = tirx.floordiv(step, blocks), tirx.floordiv(tirx.floormod(step, blocks), rows.bci)
                with T.grid(rows.pci, self.count, self.channels) as (c, panel, q), named("pack_w"):
                    self._spread(packed, panel, q, kh, kw, tirx.floormod(step, rows.bci), c)
        else:
            with T.parallel(0, self.count) as panel, T.grid(self.channels, *taps, rows.pci) as at, named("pack_w"):
                q, kh, kw, block, c = at
                self._spread(packed, panel, q, kh, kw, block, c)
        if self.engine.offset:
            with T.parallel(0, self.count) as panel, T.serial(0, self.channels) as q, named("pack_w"):
                self._starts(packed, self.offset(panel) + q * self.row)

    def _spread(self, packed: tirx.Var, panel: Expr, q: Expr, kh: Expr, kw: Expr, block: Expr, c: Expr) -> None:
        """Write the weight of a panel's channel q once for each of the adjacent columns."""
        value = self.weight(panel * self.channels + q, kh, kw, block * self.rows.pci + c)
        at = self.offset(panel) + q * self.row + self.step(kh, kw, block) + c
        with T.serial(0, self.rows.ws) as s:
            T.buffer_store(packed, value, [at + s * self.rows.pci])

    def weight(self, co: Expr, kh: Expr, kw: Expr, c: Expr) -> Expr:
        """Return the weight of folded channel c at folded tap kw; zero where the kernel has none."""
        rows, h = self.rows, self.rows.h
        tap, inside = kw, [co < rows.co, c < rows.channels]
        if rows.fold > 1:
            column = kw * rows.fold + tirx.floordiv(c, rows.ci)
            tap = tirx.floordiv(column, rows.dilation)
            inside += [column < rows.span, tirx.EQ(tirx.floormod(column, rows.dilation), 0)]
        channel, row = tirx.floormod(c, rows.ci), h.tap_first + h.tap_step * kh
        element = packed_b(self.engine, lambda dtype: self.program.weight_at(co, 0, row, tap, channel, dtype=dtype))
        return tirx.if_then_else(tirx.all(*inside), element, tirx.const(0, self.engine.operand))

    def _starts(self, packed: tirx.Var, base: Index) -> None:
        """Write -offset times the sum of each lane's weights, which cancels the offset of the input."""
        lanes = self.row // self.engine.group
        whole, sums = T.ramp(0, 1, lanes), register(lanes, "int32")
        T.buffer_store(sums, T.broadcast(tirx.const(0, "int32"), lanes), [whole])
        ones = T.broadcast(tirx.const(0x01010101, "int32"), lanes)
        step = self.channels * self.row
        with T.serial(0, self.rows.steps) as k:
            right = packed[T.ramp(base + k * step, 1, self.row)]
            T.buffer_store(sums, dot(self.engine, sums[whole], ones, right, lanes), [whole])
        words = sums[whole] * T.broadcast(tirx.const(-self.engine.offset, "int32"), lanes)
        value = T.reinterpret(f"{self.engine.operand}x{self.row}", words)
        T.buffer_store(packed, value, [T.ramp(base + self.rows.steps * step, 1, self.row)])
