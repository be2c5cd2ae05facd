"""Register tile of a depthwise convolution: output points by lanes, which are channels or columns.

Each vector of the input is loaded once and added, multiplied by the tap's weight, to every sum of the tile that needs
it. Loops over points and taps are unrolled, so that LLVM keeps the sums, and weights if there is space, in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.shape import ConvShape
from ..match import ConvProgram
from .depthwise_weights import DepthwiseWeights
from .named_blocks import named
from .registers import register, registers
from .row_vectors import RowVectors
from .taps import Tile, visit

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


@dataclass(frozen=True)
class Place:
    """Position of a tile."""

    image: Index
    depth: Index
    rows: Tile
    columns: Tile


class Lanes:
    """Common base of both kinds of tile."""

    def __init__(self, program: ConvProgram, shape: ConvShape, lanes: int, kind: str) -> None:
        self.program, self.shape, self.lanes, self.kind = program, shape, lanes, kind

    def zeros(self, count: int) -> list[tirx.Var]:
        """Return `count` accumulators set to zero."""
        found = registers(count, self.lanes, self.kind)
        for slot in found:
            T.buffer_store(slot, T.broadcast(tirx.const(0, self.kind), self.lanes), [T.ramp(0, 1, self.lanes)])
        return found

    def add(self, slot: tirx.Var, value: Expr, width: int) -> None:
        """Emit slot += value."""
        at = [T.ramp(0, 1, width) if width > 1 else 0]
        T.buffer_store(slot, slot[at[0]] + value, at)

    def visit_rows(self, place: Place, emit: Callable[[Index, Index, Index, list[tuple[int, Index]]], None]) -> None:
        """Call emit(depth, its tap, row, (row of the tile, tap)) for every input row under the tile."""
        depth = Tile(place.depth, 1, walked=True)

        def plane(z: Index, uses: list[tuple[int, Index]]) -> None:
            visit(self.shape.h, place.rows, lambda y, supported: emit(z, uses[0][1], y, supported))

        visit(self.shape.d, depth, plane)

    def store(self, value: Expr, place: Place, row: Index, column: Index, channel: Expr) -> None:
        """Apply the epilogue to a sum of the tile and store it."""
        d, h, w = self.shape.d, self.shape.h, self.shape.w
        point = (
            place.image,
            d.first + place.depth * d.step,
            h.first + (place.rows.first + row) * h.step,
            w.first + (place.columns.first + column) * w.step,
            channel,
        )
        T.buffer_store(self.program.out, self.program.result(value, *point), self.program.out_at(*point))


class ChannelLanes(Lanes):
    """Lanes are adjacent input channels."""

    def __init__(self, program: ConvProgram, shape: ConvShape, lanes: int, weights: DepthwiseWeights) -> None:
        super().__init__(program, shape, lanes, weights.engine.acc)
        self.weights = weights

    def emit(self, place: Place, channel: Index, count: int, packed: tirx.Var | None, base: int) -> None:
        """Emit the tile of `count` channels starting at `channel`."""
        widths = [min(self.lanes, count - first) for first in range(0, count, self.lanes)]
        if self.shape.co == 1:
            self._sums(place, channel, widths, 0, packed, base)
        else:
            with T.serial(0, self.shape.co) as each:
                self._sums(place, channel, widths, each, packed, base)

    def _sums(
        self, place: Place, channel: Index, widths: list[int], each: Index, packed: tirx.Var | None, base: int
    ) -> None:
        columns, weights = place.columns, self.weights
        slots = [(i, k, v) for i in range(place.rows.count) for k in range(columns.count) for v in range(len(widths))]
        acc = dict(zip(slots, self.zeros(len(slots)), strict=True))

        def line(z: Index, kd: Index, y: Index, rows: list[tuple[int, Index]]) -> None:
            def point(x: Index, supported: list[tuple[int, Index]]) -> None:
                for v, width in enumerate(widths):
                    first = channel + v * self.lanes
                    loaded = register(self.lanes, self.kind)
                    with T.vectorized(0, width) as lane:
                        element = self.program.input_at(place.image, z, y, x, first + lane, dtype=self.kind)
                        T.buffer_store(loaded, element, [lane])
                    value = loaded[T.ramp(0, 1, width) if width > 1 else 0]
                    for i, kh in rows:
                        for k, kw in supported:
                            weight = weights.read(packed, base, first, each, (kd, kh, kw), width)
                            self.add(acc[i, k, v], value * weight, width)

            visit(self.shape.w, columns, point)

        with named("microkernel"):
            self.visit_rows(place, line)
        with named("epilogue"):
            for i, k, v in slots:
                with T.vectorized(0, widths[v]) as lane:
                    out = (channel + v * self.lanes + lane) * self.shape.co + each
                    self.store(acc[i, k, v][lane], place, i, k, out)


class ColumnLanes(Lanes):
    """Lanes are adjacent output columns of one channel."""

    def __init__(self, program: ConvProgram, shape: ConvShape, lanes: int, weights: DepthwiseWeights) -> None:
        super().__init__(program, shape, lanes, weights.engine.acc)
        self.weights = weights

    def emit(self, place: Place, out: Index, packed: tirx.Var | None, base: int) -> None:
        """Emit the tile of output channel `out`."""
        columns, times = place.columns, self.shape.co
        channel, each = (tirx.floordiv(out, times), tirx.floormod(out, times)) if times > 1 else (out, 0)
        widths = [min(self.lanes, columns.count - first) for first in range(0, columns.count, self.lanes)]
        slots = [(i, v) for i in range(place.rows.count) for v in range(len(widths))]
        acc = dict(zip(slots, self.zeros(len(slots)), strict=True))

        def line(z: Index, kd: Index, y: Index, rows: list[tuple[int, Index]]) -> None:
            def element(x: Index) -> Expr:
                return self.program.input_at(place.image, z, y, x, channel, dtype=self.kind)

            vectors = RowVectors(self.shape.w, columns, self.lanes, self.kind, element)
            for v, width in enumerate(widths):
                for kw in range(self.shape.w.taps):
                    value = vectors.under(kw, v * self.lanes, width)
                    if value is None:
                        continue
                    for i, kh in rows:
                        weight = self.weights.read(packed, base, channel, each, (kd, kh, kw), 1)
                        self.add(acc[i, v], value * (T.broadcast(weight, width) if width > 1 else weight), width)

        with named("microkernel"):
            self.visit_rows(place, line)
        with named("epilogue"):
            for i, v in slots:
                with T.vectorized(0, widths[v]) as lane:
                    self.store(acc[i, v][lane], place, i, v * self.lanes + lane, out)
