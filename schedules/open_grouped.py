"""Grouped convolutions with dynamic image height and width (decide/conv/open_grouped.py): the register tile of
conv_grouped.py with rows and columns counted at run time.

parallel task = share of the output rows of all images
  output row
    tiles of columns           all of their taps inside the image, or tested for each input column
      vector of output channels
        tap rows               a loop over those inside the image
          channels of a group  unrolled if a permutation selects them, else a loop
            taps of a row, columns are unrolled

The last tile of a row has as many columns as are left, rounded up to a quarter, a half or the whole of the register
tile; columns after the end of the row are not stored.

packed[vector of output channels][tap][channel of the group][lane]
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.open_grouped import lanes_of, tile_widths, vectors_alike, window_of
from ..decide.conv.open_winograd import OpenConvTiling
from ..decide.conv.shape import ConvShape, shapes_of
from ..lowering.extents import parts_of, product_of
from ..lowering.loops import share, when
from ..lowering.registers import in_register, register, registers
from ..lowering.samples import Extent
from ..lowering.taps import Tile, supported
from ..match.open_conv import OpenConvProgram
from .open_gemm import held

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
DTYPE = "float32"


def _number(value: int) -> Expr:
    return tirx.const(value, "int64")


def _intrinsic(name: str, *values: Extent) -> Expr:
    numbers = [tirx.Cast("int64", value) if isinstance(value, tirx.Expr) else _number(value) for value in values]
    return T.call_llvm_pure_intrin("int64", f"llvm.{name}.i64", *numbers)


class OpenGroupedEmitter:
    """Emits one grouped convolution of dynamic images."""

    def __init__(self, program: OpenConvProgram, tiling: OpenConvTiling) -> None:
        assert tiling.tile_columns and tiling.lanes
        self.program, self.ranges = program, tiling.ranges
        self.lanes, self.columns = tiling.lanes, tiling.tile_columns
        self.shape: ConvShape = shapes_of(program.workload)[0]
        s = self.shape
        self.together, self.parts, self.width = lanes_of(s, self.lanes)
        self.vectors = -(-s.groups // self.together) * self.parts
        self.window = window_of(s, self.lanes)

    # ---- weights ----------------------------------------------------------------------------------------------------

    @property
    def packed_shape(self) -> tuple[int, ...]:
        s = self.shape
        return (self.vectors, s.h.taps * s.w.taps, s.ci, self.lanes)

    @property
    def packed_dtype(self) -> str:
        return DTYPE

    def place(self, vector: Index, kh: Index, kw: Index, c: Index) -> Index:
        """Return the offset of the weights of a vector of output channels for one tap and one channel of the groups."""
        s = self.shape
        return (((vector * s.h.taps + kh) * s.w.taps + kw) * s.ci + c) * self.lanes

    def pack_whole(self, packed: tirx.Var) -> None:
        """Pack all weights; lanes after the last channel are 0."""
        s, width = self.shape, self.width
        with T.grid(self.vectors, s.h.taps, s.w.taps, s.ci) as (vector, kh, kw, c):
            place = self.place(vector, kh, kw, c)
            with T.vectorized(0, width) as lane:
                channel = self.channels_of(vector)[0] + lane
                T.buffer_store(packed, self.program.weight_at(channel, 0, kh, kw, c, dtype=DTYPE), [place + lane])
            if width < self.lanes:
                with T.vectorized(0, self.lanes - width) as lane:
                    T.buffer_store(packed, tirx.const(0, DTYPE), [place + width + lane])

    # ---- vectors of channels ----------------------------------------------------------------------------------------

    def each_vector(self, emit: Callable[[Index, int], None]) -> None:
        """Call emit(vector, inputs between the start of the loaded window and the first channel of the vector's groups)
        for every vector, in a loop where vectors are alike."""
        s = self.shape
        alike = vectors_alike(s, self.lanes)
        if alike:
            with T.serial(0, alike) as vector:
                emit(vector, 0)
        for number in range(alike, self.vectors):
            first = min(number * self.together, s.groups - self.together)
            emit(number, first * s.ci - (s.groups * s.ci - self.window))

    def channels_of(self, vector: Index) -> tuple[Index, Index]:
        """Return the first output channel of a vector and the first input channel of its groups. The last vector ends
        with the last channel: some channels are in two vectors."""
        s = self.shape
        if self.parts == 1:
            group = vector * self.together
            if s.groups % self.together:
                group = tirx.min(group, s.groups - self.together)
            return group * s.co, group * s.ci
        group, first = vector // self.parts, vector % self.parts * self.lanes
        if s.co % self.lanes:
            first = tirx.min(first, s.co - self.lanes)
        return group * s.co + first, group * s.ci

    # ---- the loop nest ----------------------------------------------------------------------------------------------

    def emit(self, packed: tirx.Var | None) -> None:
        """Emit the whole convolution; `packed` holds prepacked weights, None packs them first."""
        if packed is None:
            packed = T.alloc_buffer((int(product_of(self.packed_shape)),), DTYPE)
            self.pack_whole(packed)
        weights, (ho, wo) = packed, self.program.points
        rows = in_register(product_of((self.program.images, ho)))
        tasks = in_register(self.by_tiles(product_of((rows, parts_of(wo, self.columns)))))
        with T.parallel(0, tasks) as task:
            # In registers of the task: values of the enclosing function would be reloaded after every store.
            self.height, self.wide = map(in_register, self.program.size)
            self.ho, self.wo = map(in_register, (ho, wo))
            self.nothing = register(1, "int64")
            T.buffer_store(self.nothing, _intrinsic("smin", product_of((self.program.images, ho)), 0), [0])
            first, end = (held(edge) for edge in share(in_register(rows), task, tasks))
            with T.serial(0, end - first) as r:
                self.row(weights, held(tirx.floordiv(first + r, self.ho)), held(tirx.floormod(first + r, self.ho)))

    def by_tiles(self, tiles: Extent) -> Extent:
        """Return the number of tasks for the number of register tiles at run time."""
        found: Extent = self.ranges[-1].threads_tiles
        for below in self.ranges[-2::-1]:
            assert below.tiles is not None
            others = found if isinstance(found, tirx.Expr) else _number(found)
            found = tirx.Select(tiles <= below.tiles, _number(below.threads_tiles), others)
        return found

    def zero(self, time: Index) -> Expr:
        """Return 0 in a form that LLVM does not recognise as the same value each time.

        Otherwise LLVM loads the vectors of a tile once for all channels of a group and spills them, since they do not
        fit the registers. A permutation with a memory operand costs nothing extra. It would also make copies of the
        tiles at the border for each result of their tests.
        """
        return _intrinsic("smax", self.nothing[0], -time)

    def is_inside(self, column: Expr) -> Expr:
        """Return whether the image has this column."""
        return tirx.all(column >= 0, column < self.wide)

    def row(self, packed: tirx.Var, image: Expr, y: Expr) -> None:
        """Emit one output row."""
        h, w, columns = self.shape.h, self.shape.w, self.columns
        self.first_tap = held(tirx.ceildiv(-(y * h.stride + h.start), h.dilation))
        end = tirx.min(_number(h.taps), tirx.ceildiv(self.height - h.start - y * h.stride, h.dilation))
        self.taps = held(end - self.first_tap)
        left = -(w.start // w.stride)  # the first column with all taps inside the image
        inside = held(tirx.floordiv(self.wide - w.start - w.span + w.stride, w.stride))  # columns before the end
        widths = tile_widths(columns)
        with T.serial(0, tirx.ceildiv(self.wo, columns)) as number:
            x = held(number * columns)
            rest = held(self.wo - x)

            def edge(count: int) -> None:
                self.vectors_of(packed, image, y, x, count, rest)

            with T.If(tirx.all(x >= left, x + columns <= tirx.min(inside, self.wo))):
                with T.Then():
                    self.vectors_of(packed, image, y, x, columns, None)
                with T.Else():
                    for place, count in enumerate(widths):
                        fits = [rest <= count] if place else []
                        more = [rest > widths[place + 1]] if place + 1 < len(widths) else []
                        with when(tirx.all(*fits, *more)) if fits or more else nullcontext():
                            edge(count)

    def vectors_of(self, packed: tirx.Var, image: Expr, y: Expr, x: Expr, columns: int, rest: Expr | None) -> None:
        """Emit the tiles of all channels at `columns` columns from `x` on. `rest`: the columns up to the end of the
        row, for tiles that test each column; None for others."""

        def tile(vector: Index, before: int) -> None:
            s, (first_out, first_in) = self.shape, self.channels_of(vector)
            loaded = register(self.window, DTYPE)
            acc = registers(columns, self.lanes, DTYPE)
            whole = T.ramp(0, 1, self.lanes)
            for slot in acc:
                T.buffer_store(slot, T.broadcast(tirx.const(0, DTYPE), self.lanes), [whole])
            with T.serial(0, self.taps) as t:
                kh = held(self.first_tap + t)
                row = held(y * s.h.stride + s.h.start + kh * s.h.dilation)

                def channel(c: Index) -> None:
                    def value(column: Expr) -> Expr:
                        return self.spread(loaded, image, row, column, first_in - before, c, before)

                    def weight(kw: Index) -> Expr:
                        return packed[T.ramp(self.place(vector, kh, kw, c), 1, self.lanes)]

                    self.taps_of_row(x, acc, None if rest is None else self.zero(c), value, weight)

                if self.together > 1:
                    for c in range(s.ci):
                        channel(c)
                else:
                    with T.serial(0, s.ci) as c:
                        channel(c)
            for k, slot in enumerate(acc):
                with when(rest > k) if rest is not None and k else nullcontext(), T.vectorized(0, self.width) as lane:
                    point = (image, 0, y, x + k, first_out + lane)
                    result = self.program.result(slot[lane], *point)
                    T.buffer_store(self.program.out, result, self.program.out_at(*point))

        self.each_vector(tile)

    def taps_of_row(
        self,
        x: Expr,
        acc: list[tirx.Var],
        tested: Expr | None,
        value: Callable[[Expr], Expr],
        weight: Callable[[Index], Expr],
    ) -> None:
        """Add the taps of one kernel row for one channel of the groups: value(input column) times weight(tap).
        `tested`: 0 for tiles that test each column, else None."""
        w, whole = self.shape.w, T.ramp(0, 1, self.lanes)
        for offset in range(w.reach(len(acc))):
            uses = supported(w, Tile(x, len(acc)), offset)
            if not uses:
                continue
            column = x * w.stride + (w.start + offset)
            with nullcontext() if tested is None else when(self.is_inside(column + tested)):
                read = value(column)
                for k, kw in uses:
                    T.buffer_store(acc[k], acc[k][whole] + read * weight(kw), [whole])

    def spread(
        self, loaded: tirx.Var, image: Expr, row: Expr, column: Expr, first: Index, c: Index, before: int
    ) -> Expr:
        """Return the input of channel `c` of its group in every lane; lanes after the last channel may have any.
        `loaded`: a register for a window of channels, `first`: the first of them, `before`: those before the groups."""
        s = self.shape
        if self.together == 1:
            return T.broadcast(self.program.input_at(image, 0, row, column, first + c, dtype=DTYPE), self.lanes)
        assert isinstance(c, int)
        with T.vectorized(0, self.window) as lane:
            at = first + self.zero(c) + lane
            T.buffer_store(loaded, self.program.input_at(image, 0, row, column, at, dtype=DTYPE), [lane])
        # The result of TVM's Shuffle has at most as many lanes as its operands.
        operands = [loaded[T.ramp(0, 1, self.window)]] * -(-self.lanes // self.window)
        groups = [min(lane // s.co, self.together - 1) for lane in range(self.lanes)]
        return T.Shuffle(operands, [group * s.ci + c + before for group in groups])
