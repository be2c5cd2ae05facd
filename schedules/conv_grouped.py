"""Convolution in groups of few channels on the CPU, lanes along the output channels of several groups
(conv/grouped.py).

parallel task = (share of the output rows of all images, share of the vectors of output channels)
  output row
    vector of output channels
      tiles of columns         the register tile: one sum per column
        tap rows               a loop over those inside the image
          channels of a group, taps of a row, columns are unrolled

A vector of the input holds the channels of the same groups. For each channel of a group, a permutation broadcasts its
element to the lanes of that group's outputs, for all taps that read it.

packed[vector of output channels][tap][channel of the group][lane]
"""

from __future__ import annotations

from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.conv_tiling import ConvTiling
from ..decide.conv.shape import ConvShape, shapes_of
from ..hardware.dot_instructions import DotInstruction
from ..lowering.loops import by_edge, share
from ..lowering.named_blocks import named
from ..lowering.registers import register, registers
from ..lowering.taps import Tile, Tiles, visit
from ..match import ConvProgram

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


class GroupedEmitter:
    """Emits one plain convolution over images."""

    def __init__(self, program: ConvProgram, tiling: ConvTiling, engine: DotInstruction) -> None:
        t = tiling
        assert t.tile_columns and t.lanes
        self.program, self.engine, self.lanes = program, engine, t.lanes
        self.threads = (t.threads_rows or 1, t.threads_columns or 1)
        self.shape: ConvShape = shapes_of(program.workload)[0]
        s = self.shape
        self.taps = s.h.taps * s.w.taps
        self.full, self.tail = divmod(s.co * s.groups, self.lanes)
        self.vectors = self.full + (self.tail > 0)
        self.columns = Tiles(s.w, min(t.tile_columns, s.w.points))

    # ---- weights ----------------------------------------------------------------------------------------------------

    @property
    def packed_shape(self) -> tuple[int, ...]:
        return (self.vectors, self.taps, self.shape.ci, self.lanes)

    @property
    def packed_dtype(self) -> str:
        return self.engine.acc

    def place(self, vector: Index, kh: Index, kw: Index, c: Index) -> Index:
        """Return the offset of the weights of a vector of output channels for one tap and one channel of the groups."""
        s = self.shape
        return (((vector * s.h.taps + kh) * s.w.taps + kw) * s.ci + c) * self.lanes

    def pack_whole(self, packed: tirx.Var) -> None:
        """Pack all weights; lanes after the last channel are neither written nor read."""
        s = self.shape
        with T.serial(0, self.vectors) as vector:

            def lanes(width: int) -> None:
                with (
                    T.serial(0, s.h.taps) as kh,
                    T.serial(0, s.w.taps) as kw,
                    T.serial(0, s.ci) as c,
                    named("pack_w"),
                    T.vectorized(0, width) as lane,
                ):
                    value = self.program.weight_at(vector * self.lanes + lane, 0, kh, kw, c, dtype=self.engine.acc)
                    T.buffer_store(packed, value, [self.place(vector, kh, kw, c) + lane])

            by_edge(vector, self.full, self.tail, self.lanes, lanes)

    # ---- the loop nest ----------------------------------------------------------------------------------------------

    def emit(self, packed: tirx.Var | None) -> None:
        """Emit the whole convolution; `packed` holds prepacked weights, None packs them first."""
        s, (tr, tn) = self.shape, self.threads
        if packed is None:
            packed = T.alloc_buffer((self.vectors * self.taps * s.ci * self.lanes,), self.packed_dtype)
            self.pack_whole(packed)
        weights, high = packed, s.h.points
        with T.parallel(0, tr * tn) if tr * tn > 1 else T.serial(0, 1) as task:
            row0, row1 = share(s.n * high, tirx.floordiv(task, tn), tr)
            vector0, vector1 = share(self.vectors, tirx.floormod(task, tn), tn)
            with T.serial(0, row1 - row0) as r:
                image = tirx.floordiv(row0 + r, high)
                y = Tile(tirx.floormod(row0 + r, high), 1, walked=True)

                def tiles(x: Tile) -> None:
                    with T.serial(0, vector1 - vector0) as v:
                        vector = vector0 + v

                        def tile(width: int) -> None:
                            with named("tile"):
                                self.tile(weights, image, vector, y, x, width)

                        by_edge(vector, self.full, self.tail, self.lanes, tile)

                self.columns.emit(0, self.columns.count, tiles)

    def tile(self, packed: tirx.Var, image: Index, vector: Index, y: Tile, x: Tile, width: int) -> None:
        """Emit one register tile: the sums of `width` output channels in each column, then the epilogue."""
        s, kind = self.shape, self.engine.acc
        acc = registers(x.count, self.lanes, kind)
        for slot in acc:
            T.buffer_store(slot, T.broadcast(tirx.const(0, kind), self.lanes), [T.ramp(0, 1, self.lanes)])

        def line(row: Index, uses: list[tuple[int, Index]]) -> None:
            for c in range(s.ci):
                self.channel(packed, image, row, uses[0][1], vector, c, x, acc, width)

        with named("microkernel"):
            visit(s.h, y, line)
        with named("epilogue"):
            for k, slot in enumerate(acc):
                with T.vectorized(0, width) as lane:
                    point = (image, 0, y.first, x.first + k, vector * self.lanes + lane)
                    value = self.program.result(slot[lane], *point)
                    T.buffer_store(self.program.out, value, self.program.out_at(*point))

    def channel(
        self,
        packed: tirx.Var,
        image: Index,
        row: Index,
        kh: Index,
        vector: Index,
        c: int,
        x: Tile,
        acc: list[tirx.Var],
        width: int,
    ) -> None:
        """Add the taps of one kernel row for channel `c` of the groups."""
        s, kind = self.shape, self.engine.acc
        run = width // s.co * s.ci  # input channels that these output channels read
        first = _again(vector * (self.lanes // s.co * s.ci), c)
        spread = [lane // s.co * s.ci + c for lane in range(width)]

        def point(column: Index, supported: list[tuple[int, Index]]) -> None:
            loaded = register(run, kind)
            with T.vectorized(0, run) as lane:
                element = self.program.input_at(image, 0, row, column, first + lane, dtype=kind)
                T.buffer_store(loaded, element, [lane])
            # The result of TVM's Shuffle has at most as many lanes as its operands.
            value = T.Shuffle([loaded[T.ramp(0, 1, run)]] * -(-width // run), spread)
            for k, kw in supported:
                weight = packed[T.ramp(self.place(vector, kh, kw, c), 1, width)]
                at = T.ramp(0, 1, width)
                T.buffer_store(acc[k], acc[k][at] + value * weight, [at])

        visit(s.w, x, point)


def _again(index: Expr, time: int) -> Expr:
    """Return `index`, at least 0, in a form that LLVM does not recognise as the same value each time.

    Otherwise LLVM loads the vectors of a tile once for all channels of a group and spills them, since they do not fit
    the registers. A permutation with a memory operand costs nothing extra.
    """
    least = tirx.const(-time, "int32")
    return T.bind(T.call_llvm_pure_intrin("int32", "llvm.smax.i32", tirx.Cast("int32", index), least))
