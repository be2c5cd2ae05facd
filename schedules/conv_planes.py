"""Convolution with channels first on the CPU, lanes along columns: nothing is copied or transposed (conv/planes.py).

parallel task = a share of the tiles of rows of all planes
  plane: a block of output channels of one group and image
    tile of rows, tiles of columns
      input channels             a loop
        the register tile        rows of the input under it, taps and output channels are unrolled

packed[block of output channels][input channel][tap][output channel]
"""

from __future__ import annotations

from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.conv_tiling import ConvTiling
from ..decide.conv.shape import ConvShape, shapes_of
from ..hardware.dot_instructions import DotInstruction
from ..lowering.loops import share
from ..lowering.named_blocks import named
from ..lowering.registers import register, registers
from ..lowering.row_vectors import RowVectors
from ..lowering.taps import Tile, Tiles, visit
from ..match import ConvProgram

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


class PlanesEmitter:
    """Emits one plain convolution over images."""

    def __init__(self, program: ConvProgram, tiling: ConvTiling, engine: DotInstruction) -> None:
        t = tiling
        assert t.tile_rows and t.tile_columns and t.lanes and t.columns
        self.program, self.engine, self.lanes, self.outputs = program, engine, t.lanes, t.columns
        self.threads = t.threads_rows or 1
        self.shape: ConvShape = shapes_of(program.workload)[0]
        s = self.shape
        self.blocks = s.co // self.outputs
        self.taps = s.h.taps * s.w.taps
        self.rows = Tiles(s.h, min(t.tile_rows, s.h.points))
        self.columns = Tiles(s.w, min(t.tile_columns, s.w.points))

    # ---- weights ----------------------------------------------------------------------------------------------------

    @property
    def packed_shape(self) -> tuple[int, ...]:
        s = self.shape
        return (s.groups * self.blocks, s.ci, self.taps, self.outputs)

    @property
    def packed_dtype(self) -> str:
        return self.engine.acc

    def place(self, block: Index, c: Index, tap: Index) -> Index:
        """Return the offset of the weights of an input channel's tap, for a block of output channels of all groups."""
        return ((block * self.shape.ci + c) * self.taps + tap) * self.outputs

    def pack_whole(self, packed: tirx.Var) -> None:
        """Pack all weights."""
        s, wide = self.shape, self.shape.w.taps
        with (
            T.serial(0, s.groups * self.blocks) as block,
            T.serial(0, s.ci) as c,
            T.serial(0, self.taps) as tap,
            T.serial(0, self.outputs) as q,
            named("pack_w"),
        ):
            kh, kw = tirx.floordiv(tap, wide), tirx.floormod(tap, wide)
            value = self.program.weight_at(block * self.outputs + q, 0, kh, kw, c, dtype=self.engine.acc)
            T.buffer_store(packed, value, [self.place(block, c, tap) + q])

    # ---- the loop nest ----------------------------------------------------------------------------------------------

    def emit(self, packed: tirx.Var | None) -> None:
        """Emit the whole convolution; `packed` holds prepacked weights, None packs them first."""
        s = self.shape
        if packed is None:
            packed = T.alloc_buffer((s.co * s.groups * s.ci * self.taps,), self.packed_dtype)
            self.pack_whole(packed)
        weights, each, blocks = packed, self.rows.count, s.groups * self.blocks
        with T.parallel(0, self.threads) if self.threads > 1 else T.serial(0, 1) as task:
            unit0, unit1 = share(s.n * blocks * each, task, self.threads)
            plane0 = tirx.floordiv(unit0, each)
            with T.serial(0, tirx.ceildiv(unit1, each) - plane0) as p:
                plane = plane0 + p
                start, end = tirx.max(unit0 - plane * each, 0), tirx.min(unit1 - plane * each, each)
                image, block = tirx.floordiv(plane, blocks), tirx.floormod(plane, blocks)

                def tile(y: Tile, x: Tile) -> None:
                    with named("tile"):
                        self.tile(weights, image, block, y, x)

                self.rows.emit(start, end, lambda y: self.columns.emit(0, self.columns.count, lambda x: tile(y, x)))

    def tile(self, packed: tirx.Var, image: Index, block: Index, y: Tile, x: Tile) -> None:
        """Emit one register tile: the sums over all input channels of the group, then the epilogue."""
        s, kind = self.shape, self.engine.acc
        group = tirx.floordiv(block, self.blocks) if s.groups > 1 else 0
        widths = [min(self.lanes, x.count - first) for first in range(0, x.count, self.lanes)]
        slots = [(q, i, v) for q in range(self.outputs) for i in range(y.count) for v in range(len(widths))]
        acc = dict(zip(slots, registers(len(slots), self.lanes, kind), strict=True))
        for slot in acc.values():
            T.buffer_store(slot, T.broadcast(tirx.const(0, kind), self.lanes), [T.ramp(0, 1, self.lanes)])
        with T.serial(0, s.ci) as c, named("microkernel"):
            channel = group * s.ci + c if s.groups > 1 else c

            lines: list[tuple[RowVectors, list[tuple[int, Index]]]] = []

            def line(row: Index, uses: list[tuple[int, Index]]) -> None:
                def element(column: Index) -> Expr:
                    return self.program.input_at(image, 0, row, column, channel, dtype=kind)

                lines.append((RowVectors(s.w, x, self.lanes, kind, element), uses))

            visit(s.h, y, line)
            for kw in range(s.w.taps):
                self.column_of_taps(packed, self.place(block, c, kw), lines, kw, widths, acc)
        with named("epilogue"):
            for q, i, v in slots:
                with T.vectorized(0, widths[v]) as lane:
                    self.store(acc[q, i, v][lane], image, y.first + i, x.first + v * self.lanes + lane, block, q)

    def column_of_taps(
        self,
        packed: tirx.Var,
        at: Index,
        lines: list[tuple[RowVectors, list[tuple[int, Index]]]],
        kw: int,
        widths: list[int],
        acc: dict[tuple[int, int, int], tirx.Var],
    ) -> None:
        """Add the taps of a kernel column, whose weights start at `at`. The input rows under the tile are kept in
        registers, so that each weight is broadcast once; LLVM would spill weights that are used again later.
        """
        kind, read = self.engine.acc, {}
        for number, (vectors, _) in enumerate(lines):
            for v, width in enumerate(widths):
                value = vectors.under(kw, v * self.lanes, width)
                if value is not None:
                    read[number, v] = register(self.lanes, kind)
                    T.buffer_store(read[number, v], value, [_first(width)])
        for kh in range(self.shape.h.taps):
            uses = [(number, i) for number, (_, rows) in enumerate(lines) for i, tap in rows if tap == kh]
            for q in range(self.outputs if uses else 0):
                weight = packed[at + kh * self.shape.w.taps * self.outputs + q]
                for number, i in uses:
                    for v, width in enumerate(widths):
                        if (number, v) in read:
                            slot, lanes = acc[q, i, v], _first(width)
                            many = T.broadcast(weight, width) if width > 1 else weight
                            T.buffer_store(slot, slot[lanes] + read[number, v][lanes] * many, [lanes])

    def store(self, value: Expr, image: Index, row: Index, column: Index, block: Index, output: int) -> None:
        """Finish a sum and store it."""
        point = (image, 0, row, column, block * self.outputs + output)
        T.buffer_store(self.program.out, self.program.result(value, *point), self.program.out_at(*point))


def _first(width: int) -> Expr | int:
    """Return the first `width` lanes of a register."""
    return T.ramp(0, 1, width) if width > 1 else 0
