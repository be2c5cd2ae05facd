"""Depthwise convolution on the CPU: every output channel reads one input channel, so there is no reduction over
channels.

    parallel task = (share of tiles of rows, share of channel panels)
      plane: output plane of one image
        columns of channels          the input under a column of tiles stays in L1
          tiles of columns           } inner_order "nm": columns outside rows, "mn": rows outside columns
            tiles of rows            }
              panels of z vectors    the register tile, lowering/depthwise_tile.py and depthwise_dot.py

Lanes are channels if these are adjacent, else columns; in the latter case every channel is a plane of its own, and
there is one panel. A convolution with one row divides its tiles of columns among the cores instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.conv_tiling import ConvTiling
from ..decide.conv.shape import ConvShape, shapes_of
from ..hardware.dot_instructions import DotInstruction
from ..lowering.depthwise_dot import DotLanes, DotWeights
from ..lowering.depthwise_tile import ChannelLanes, ColumnLanes, Place
from ..lowering.depthwise_weights import DepthwiseWeights
from ..lowering.loops import share, when
from ..lowering.named_blocks import named
from ..lowering.taps import Tile, Tiles
from ..match import ConvProgram

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


class DepthwiseEmitter:
    """Emits a depthwise convolution; a transposed one consists of several plain ones, one per residue."""

    def __init__(self, program: ConvProgram, tiling: ConvTiling, engine: DotInstruction) -> None:
        self.engine = engine
        shapes = shapes_of(program.workload)
        made = DotWeights if tiling.taps_at_once else DepthwiseWeights
        self.weights: list[DotWeights | DepthwiseWeights] = [made(program, shape, tiling, engine) for shape in shapes]
        self.emitters = [
            _Plain(program, shape, tiling, weights) for shape, weights in zip(shapes, self.weights, strict=True)
        ]
        self.bases = [sum(weights.size for weights in self.weights[:i]) for i in range(len(shapes))]

    @property
    def packed_shape(self) -> tuple[int, ...]:
        if len(self.weights) == 1:
            return self.weights[0].packed_shape
        return (sum(weights.size for weights in self.weights),)

    @property
    def packed_dtype(self) -> str:
        return self.engine.panel if isinstance(self.weights[0], DotWeights) else self.engine.alone

    def emit(self, packed: tirx.Var | None) -> None:
        """Emit the whole convolution; `packed` holds prepacked weights, None packs them first."""
        if packed is None and not all(weights.in_place for weights in self.weights):
            packed = T.alloc_buffer((sum(weights.size for weights in self.weights),), self.packed_dtype)
            self.pack_whole(packed)
        for emitter, base in zip(self.emitters, self.bases, strict=True):
            emitter.emit(packed, base)

    def pack_whole(self, packed: tirx.Var) -> None:
        """Pack all weights."""
        for weights, base in zip(self.weights, self.bases, strict=True):
            if weights.taps:
                weights.pack(packed, base)


class _Plain:
    """Emits one plain convolution."""

    def __init__(
        self, program: ConvProgram, shape: ConvShape, tiling: ConvTiling, weights: DotWeights | DepthwiseWeights
    ) -> None:
        t = tiling
        assert t.tile_rows and t.tile_columns and t.vectors and t.lanes and t.columns
        self.shape, self.tiling = shape, tiling
        self.by_channel = t.lanes_along == "channels"
        self.rows = Tiles(shape.h, min(t.tile_rows, shape.h.points), walked=bool(t.walk_rows))
        self.columns = Tiles(shape.w, min(t.tile_columns, shape.w.points), walked=bool(t.walk_columns))
        self.nr = t.vectors * t.lanes
        self.full = shape.groups // self.nr if self.by_channel else 1
        self.tail = shape.groups % self.nr if self.by_channel else 0
        self.channel_tile: DotLanes | ChannelLanes
        if isinstance(weights, DotWeights):
            self.channel_tile = DotLanes(program, shape, t.lanes, weights)
        else:
            self.channel_tile = ChannelLanes(program, shape, t.lanes, weights)
            self.column_tile = ColumnLanes(program, shape, t.lanes, weights)

    def emit(self, packed: tirx.Var | None, base: int) -> None:
        """Emit the convolution; `packed` holds the weights starting at element `base`."""
        t, s = self.tiling, self.shape
        tr, tn = t.threads_rows or 1, t.threads_columns or 1
        lone = s.h.points == 1
        shared, other = (self.columns, self.rows) if lone else (self.rows, self.columns)
        each = shared.count
        channels = 1 if self.by_channel else s.groups * s.co
        planes = s.n * s.d.points * channels
        panels = self.full + (self.tail > 0)
        step = max(1, (t.columns or self.nr) // self.nr)
        with T.parallel(0, tr * tn) if tr * tn > 1 else T.serial(0, 1) as task:
            unit0, unit1 = share(planes * each, tirx.floordiv(task, tn), tr)
            panel0, panel1 = share(panels, tirx.floormod(task, tn), tn)
            plane0 = tirx.floordiv(unit0, each)
            with T.serial(0, tirx.ceildiv(unit1, each) - plane0) as p:
                plane = plane0 + p
                whole = tr == 1 or (planes % tr == 0)
                start = 0 if whole else tirx.max(unit0 - plane * each, 0)
                end = each if whole else tirx.min(unit1 - plane * each, each)
                channel = tirx.floormod(plane, channels)
                depth = tirx.floormod(tirx.floordiv(plane, channels), s.d.points)
                image = tirx.floordiv(plane, channels * s.d.points)

                def mine(emit: Callable[[Tile], None]) -> None:
                    shared.emit(start, end, emit)

                def every(emit: Callable[[Tile], None]) -> None:
                    other.emit(0, other.count, emit)

                rows, columns = (every, mine) if lone else (mine, every)
                with T.serial(0, tirx.ceildiv(panel1 - panel0, step)) as c:
                    panel = panel0 + c * step
                    count = tirx.min(step, panel1 - panel)

                    def tile(y: Tile, x: Tile) -> None:
                        place = Place(image, depth, y, x)
                        if self.by_channel:
                            self.panels(place, panel, count, packed, base)
                        else:
                            with named("tile"):
                                self.column_tile.emit(place, channel, packed, base)

                    if t.inner_order == "mn":
                        rows(lambda y: columns(lambda x: tile(y, x)))
                    else:
                        columns(lambda x: rows(lambda y: tile(y, x)))

    def panels(self, place: Place, first: Index, count: Index, packed: tirx.Var | None, base: int) -> None:
        """Emit `count` panels at one position of the image."""
        full = count if not self.tail else tirx.max(0, tirx.min(count, self.full - first))
        if self.full:
            with T.serial(0, full) as p, named("tile"):
                self.channel_tile.emit(place, (first + p) * self.nr, self.nr, packed, base)
        if self.tail:
            with when(count > full), named("tile"):
                self.channel_tile.emit(place, self.full * self.nr, self.tail, packed, base)
