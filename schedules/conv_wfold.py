"""W-fold on the CPU: a vector holds adjacent columns along W in addition to few channels.

A row of the W-fold scheme is a vector: ws adjacent columns of pci channels each, which take R = pci / group lanes. The
band of input is stored folded, so rows can start at any position, and the input under tap kw is the same row kw
positions later. Weights are pci channels of a tap repeated ws times, so one multiply-add serves ws points of one output
channel. The sums in the lanes of a point are added once, after the last tap (lowering/lane_sums.py).

    parallel task = (share of output rows, share of output channels)
      image, band of rows                copied here: padding, fold and channel padding in one pass
        row, panels of channels, tiles   inner_order gives the order of tiles and panels
          the microkernel: kh, kw, blocks of channels; G rows of ws points x Q output channels

A stride along W is folded into channels first. Points past the end of the output are computed but not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.conv_tiling import ConvTiling
from ..decide.fold.folded_rows import FoldedRows
from ..hardware.dot_instructions import DotInstruction
from ..lowering.dot import dot
from ..lowering.fold_band import FoldBand
from ..lowering.fold_panels import FoldPanels
from ..lowering.lane_sums import Piece, lane_sums
from ..lowering.loops import by_edge, share
from ..lowering.named_blocks import named
from ..lowering.registers import registers
from ..match import ConvProgram

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
# Steps of a kernel row that are unrolled.
MOST_UNROLLED = 24


class WFoldEmitter:
    """Emits one plain convolution of one group by W-fold."""

    def __init__(self, program: ConvProgram, tiling: ConvTiling, engine: DotInstruction) -> None:
        t = tiling
        assert t.ws and t.lanes and t.columns and t.tile_columns
        self.program, self.tiling, self.engine = program, tiling, engine
        self.rows = FoldedRows.of(program.workload, engine.group, t.lanes, t.ws)
        self.panels = FoldPanels(program, self.rows, t.columns, engine)
        self.lanes, self.row, self.whole = t.lanes, t.lanes * engine.group, T.ramp(0, 1, t.lanes)
        self.tile_rows = t.tile_columns // t.ws
        self.keep = min(t.keep_rows or self.rows.h.points, self.rows.h.points)
        self.band = FoldBand(program, self.rows, (self.keep - 1) * self.rows.h.stride + self.rows.h.span, engine)

    @property
    def packed_shape(self) -> tuple[int, ...]:
        return self.panels.packed_shape

    @property
    def packed_dtype(self) -> str:
        return self.panels.engine.operand

    def pack_whole(self, packed: tirx.Var) -> None:
        """Pack all weights."""
        self.panels.pack(packed)

    def emit(self, packed: tirx.Var | None) -> None:
        """Emit the whole convolution; `packed` holds prepacked weights, None packs them first."""
        if packed is None:
            packed = T.alloc_buffer((self.panels.size,), self.engine.operand)
            self.pack_whole(packed)
        t, points = self.tiling, self.rows.h.points
        tr, tn = t.threads_rows or 1, t.threads_columns or 1
        with T.parallel(0, tr * tn) if tr * tn > 1 else T.serial(0, 1) as task:
            row0, row1 = share(self.program.workload.n * points, tirx.floordiv(task, tn), tr)
            panels = share(self.panels.count, tirx.floormod(task, tn), tn)
            folded = T.alloc_buffer(self.band.shape, self.engine.operand)
            band = folded.view(-1)
            with named("clear_input", fills=True):
                self.band.clear(band)
            image0 = tirx.floordiv(row0, points)
            with T.serial(0, tirx.ceildiv(row1, points) - image0) as i:
                image = image0 + i
                start, end = tirx.max(row0 - image * points, 0), tirx.min(row1 - image * points, points)
                with T.serial(0, tirx.ceildiv(end - start, self.keep)) as b:
                    first = start + b * self.keep
                    count = tirx.min(self.keep, end - first)
                    with named("copy_input"):
                        self.band.fill(band, image, first, (count - 1) * self.rows.h.stride + self.rows.h.span)
                    with T.serial(0, count) as y:
                        self.row_of_tiles(band, packed, panels, (image, first, y))

    def row_of_tiles(
        self, band: tirx.Var, packed: tirx.Var, panels: tuple[Index, Index], at: tuple[Index, Index, Index]
    ) -> None:
        """Emit one output row: its tiles by panels of channels."""
        size = self.tile_rows * self.rows.ws
        full, tail = divmod(self.rows.w.points, size)
        panel0, panel1 = panels

        def tiles(emit: Callable[[Index, int], None]) -> None:
            if full:
                with T.serial(0, full) as x:
                    emit(x * size, size)
            if tail:
                emit(full * size, tail)

        def every_panel(emit: Callable[[Index, int], None]) -> None:
            k = self.panels
            with T.serial(0, panel1 - panel0) as p:
                by_edge(panel0 + p, k.full, k.tail, k.channels, lambda channels: emit(panel0 + p, channels))

        def tile(x: Index, points: int, panel: Index, channels: int) -> None:
            with named("tile"):
                self.tile(band, packed, at, x, points, panel, channels)

        if self.tiling.inner_order == "mn":
            tiles(lambda x, points: every_panel(lambda panel, channels: tile(x, points, panel, channels)))
        else:
            every_panel(lambda panel, channels: tiles(lambda x, points: tile(x, points, panel, channels)))

    def tile(
        self,
        band: tirx.Var,
        packed: tirx.Var,
        at: tuple[Index, Index, Index],
        x: Index,
        points: int,
        panel: Index,
        channels: int,
    ) -> None:
        """Emit the microkernel and the sums of its lanes."""
        rows, engine, lanes = self.rows, self.engine, self.lanes
        image, first, y = at
        vectors = -(-points // rows.ws)
        held = 1 << (channels - 1).bit_length()
        sums = [registers(held, lanes, engine.acc) for _ in range(vectors)]
        base = self.panels.offset(panel)
        for per_row in sums:
            for q, register in enumerate(per_row):
                if engine.offset:
                    start = self.panels.start(packed, base, q)
                else:
                    start = T.broadcast(tirx.const(0, engine.acc), lanes)
                T.buffer_store(register, start, [self.whole])
        # Loops with few iterations cost as much as their bodies.
        inner = T.unroll if rows.w.taps * rows.bci <= MOST_UNROLLED else T.serial
        with (
            T.serial(0, rows.h.taps) as kh,
            inner(0, rows.w.taps) as kw,
            inner(0, rows.bci) as block,
            named("microkernel"),
        ):
            place = self.band.at(block, y * rows.h.stride + kh * rows.h.dilation, x + kw * rows.w.dilation)
            weights = base + self.panels.step(kh, kw, block)
            for g, per_row in enumerate(sums):
                left = band[T.ramp(place + g * self.row, 1, self.row)]
                for q, register in enumerate(per_row):
                    right = packed[T.ramp(weights + q * self.row, 1, self.row)]
                    T.buffer_store(register, self.product(register[self.whole], left, right), [self.whole])
        strides = self.program.out_strides
        along_channels = strides is None or strides[3] != 1
        with named("epilogue"):
            for g, per_row in enumerate(sums):
                behind = points - g * rows.ws
                for piece in lane_sums(per_row, lanes, rows.lanes, engine.acc, along_channels):
                    channel = panel * self.panels.channels
                    self.store(piece, (image, first + y), x + g * rows.ws, behind, channel, channels)

    def product(self, so_far: Expr, left: Expr, right: Expr) -> Expr:
        if self.engine.group == 1:
            return so_far + left * right
        return dot(self.engine, so_far, T.reinterpret(f"{self.engine.word}x{self.lanes}", left), right, self.lanes)

    def store(
        self, piece: Piece, at: tuple[Index, Index], x: Index, points: int, channel: Index, channels: int
    ) -> None:
        """Store lanes that are adjacent in the output: channels of a point, or points of a channel."""
        image, y = at
        along_points = piece.points > 1
        count = (
            min(piece.points, points - piece.point) if along_points else min(piece.channels, channels - piece.channel)
        )
        if count < 1 or piece.point >= points or piece.channel >= channels:
            return
        with T.vectorized(0, count) as lane:
            column = x + piece.point + (lane if along_points else 0)
            co = channel + piece.channel + (0 if along_points else lane)
            place = [image, 0, y, column, co]
            value = self.program.result(piece.register[piece.lane + lane], *place)
            T.buffer_store(self.program.out, value, self.program.out_at(*place))
