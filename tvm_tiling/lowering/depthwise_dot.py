"""Register tile of an 8-bit depthwise convolution whose taps are the elements of a dot product.

A vector holds four adjacent pixels of each of its channels. The pixels' bytes are interleaved, and every sum of the
tile with a tap among them uses the vector, with weights in the same order and zeros where a pixel is not a tap. A row
of three taps then takes one instruction instead of three multiplications and three additions of widened numbers. With
stride 1, two adjacent sums share a vector; all rows of the tile do in any case.

packed[vector of channels][start | row of taps, pixels before the first tap, part of the row][lane][four taps]

If the instruction takes unsigned numbers, pixels are offset by 128, and `start` subtracts the contribution of the
offset.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.conv_tiling import ConvTiling
from ..decide.conv.shape import Axis, ConvShape
from ..hardware.dot_instructions import DotInstruction
from ..match import ConvProgram
from .depthwise_tile import Lanes, Place
from .dot import dot
from .named_blocks import named
from .registers import register, registers

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


class Use(NamedTuple):
    """A sum in a row of the tile that uses a group of pixels: `before` is the number of pixels before its first tap,
    `part` the index of the group within the sum's row of taps."""

    column: int
    before: int
    part: int


def groups_of_pixels(axis: Axis, columns: int, group: int) -> dict[int, list[Use]]:
    """Return the groups of pixels under a row of `columns` sums, keyed by their first pixel, and the sums that use
    each."""
    apart = 2 if axis.stride == 1 and axis.taps < group else axis.stride
    found: dict[int, list[Use]] = {}
    for column in range(columns):
        first = column * axis.stride // apart * apart
        before = column * axis.stride - first
        for part in range(-(-(axis.taps + before) // group)):
            found.setdefault(first + part * group, []).append(Use(column, before, part))
    return found


class DotWeights:
    """Order, packing and access of the weights."""

    in_place = False

    def __init__(self, program: ConvProgram, shape: ConvShape, tiling: ConvTiling, engine: DotInstruction) -> None:
        assert tiling.lanes and tiling.tile_columns
        self.program, self.shape, self.engine, self.lanes = program, shape, engine, tiling.lanes
        self.vectors = -(-shape.groups // self.lanes)
        self.taps = shape.h.taps * shape.w.taps
        uses = groups_of_pixels(shape.w, tiling.tile_columns, engine.group).values()
        self.kinds = sorted({(use.before, use.part) for found in uses for use in found})
        self.row = self.lanes * engine.group

    @property
    def packed_shape(self) -> tuple[int, ...]:
        return (self.vectors, 1 + self.shape.h.taps * len(self.kinds), self.lanes, self.engine.group)

    @property
    def size(self) -> int:
        return self.vectors * (1 + self.shape.h.taps * len(self.kinds)) * self.row

    def pack(self, packed: tirx.Var, base: int) -> None:
        """Write all weights starting at element `base`; lanes after the last channel are not written."""
        w, group = self.shape.w, self.engine.group
        with T.serial(0, self.shape.groups) as channel, named("pack_w"):
            vector, lane = tirx.floordiv(channel, self.lanes), tirx.floormod(channel, self.lanes)
            total: Expr = tirx.const(0, "int32")
            for kh in range(self.shape.h.taps):
                for kw in range(w.taps):
                    total = total + tirx.Cast("int32", self._element(channel, kh, kw))
                for kind, (before, part) in enumerate(self.kinds):
                    at = base + self._at(vector, 1 + kh * len(self.kinds) + kind) + lane * group
                    for place in range(group):
                        tap = part * group + place - before
                        zero = tirx.const(0, self.engine.operand)
                        value = self._element(channel, kh, tap) if 0 <= tap < w.taps else zero
                        T.buffer_store(packed, value, [at + place])
            start = total * tirx.const(-self.engine.offset, "int32")
            for byte in range(group):
                shifted = tirx.Cast("int8", tirx.shift_right(start, tirx.const(8 * byte, "int32")))
                T.buffer_store(packed, shifted, [base + self._at(vector, 0) + lane * group + byte])

    def start(self, packed: tirx.Var, base: int, channel: Index) -> Expr:
        """Return the initial sums of a vector of channels."""
        words = packed[T.ramp(base + self._at(tirx.floordiv(channel, self.lanes), 0), 1, self.row)]
        return T.reinterpret(f"{self.engine.acc}x{self.lanes}", words)

    def read(self, packed: tirx.Var, base: int, channel: Index, kh: Index, before: int, part: int) -> Expr:
        """Return the weights of a vector of channels for a group of pixels."""
        number = 1 + kh * len(self.kinds) + self.kinds.index((before, part))
        return packed[T.ramp(base + self._at(tirx.floordiv(channel, self.lanes), number), 1, self.row)]

    def _at(self, vector: Index, number: Index) -> Index:
        return (vector * (1 + self.shape.h.taps * len(self.kinds)) + number) * self.row

    def _element(self, channel: Index, kh: int, kw: int) -> Expr:
        d, h, w = self.shape.d, self.shape.h, self.shape.w
        at = (d.tap_first, h.tap_first + kh * h.tap_step, w.tap_first + kw * w.tap_step)
        return self.program.weight_at(channel, *at, 0, dtype=self.engine.operand)


class DotLanes(Lanes):
    """Lanes are adjacent input channels."""

    def __init__(self, program: ConvProgram, shape: ConvShape, lanes: int, weights: DotWeights) -> None:
        super().__init__(program, shape, lanes, weights.engine.acc)
        self.weights = weights

    def emit(self, place: Place, channel: Index, count: int, packed: tirx.Var | None, base: int) -> None:
        """Emit the tile of `count` channels starting at `channel`, one vector."""
        assert packed is not None
        h, w, engine, lanes = self.shape.h, self.shape.w, self.weights.engine, self.lanes
        rows, columns = place.rows.count, place.columns.count
        whole = T.ramp(0, 1, lanes)
        slots = [(i, k) for i in range(rows) for k in range(columns)]
        acc = dict(zip(slots, registers(len(slots), lanes, engine.acc), strict=True))
        start = self.weights.start(packed, base, channel)
        for slot in acc.values():
            T.buffer_store(slot, start, [whole])
        groups = groups_of_pixels(w, columns, engine.group)
        with named("microkernel"):
            for line in range(h.reach(rows)):
                served = [(i, line - i * h.stride) for i in range(rows) if 0 <= line - i * h.stride < h.taps]
                for first, uses in groups.items() if served else ():
                    pixels = self._pixels(place, line, first, uses, channel, count)
                    for i, kh in served:
                        for column, before, part in uses:
                            weights = self.weights.read(packed, base, channel, kh, before, part)
                            total = dot(engine, acc[i, column][whole], pixels[whole], weights, lanes)
                            T.buffer_store(acc[i, column], total, [whole])
        with named("epilogue"):
            for i, k in slots:
                with T.vectorized(0, count) as lane:
                    self.store(acc[i, k][lane], place, i, k, channel + lane)

    def _pixels(self, place: Place, line: int, first: int, uses: list[Use], channel: Index, count: int) -> tirx.Var:
        """Return a register with a group of interleaved pixels. Pixels that are not a tap of any sum are not read."""
        engine, lanes = self.weights.engine, self.lanes
        y, x = place.rows.input(self.shape.h) + line, place.columns.input(self.shape.w) + first
        loaded: list[Expr] = []
        for offset in range(engine.group):
            if any(0 <= use.part * engine.group + offset - use.before < self.shape.w.taps for use in uses):
                kept = register(lanes, str(self.program.workload.dtype))
                with T.vectorized(0, count) as lane:
                    element = self.program.input_at(place.image, place.depth, y, x + offset, channel + lane)
                    T.buffer_store(kept, element, [lane])
                loaded.append(kept[T.ramp(0, 1, lanes)])
            else:
                loaded.append(loaded[-1] if loaded else None)
        known = next(pixel for pixel in loaded if pixel is not None)
        order = [pixel * lanes + lane for lane in range(lanes) for pixel in range(engine.group)]
        woven = T.Shuffle([known if pixel is None else pixel for pixel in loaded], order)
        words = T.reinterpret(f"{engine.word}x{lanes}", woven)
        if engine.offset:
            signs = tirx.const(int.from_bytes(b"\x80" * engine.group, "little", signed=True), engine.word)
            words = tirx.bitwise_xor(words, T.broadcast(signs, lanes))
        result = register(lanes, engine.word)
        T.buffer_store(result, words, [T.ramp(0, 1, lanes)])
        return result
