"""A matrix multiplication with block-quantised weights, in one kernel for any number of rows.

    rows prepared, unless they already are
    parallel task = (row share, column share)
      panel of nr columns
        [its weights as floats, once for all rows]
        tiles of rows of nearly equal heights, with a microkernel for each height
          block of K: its sums in registers; scaled, they are added to the totals

lowering/weight_panels.py describes the contents of a panel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.gemm.block_rows import BlockRows
from ..decide.gemm.blocked import BlockedProduct, BlockedTiling, decide_blocked
from ..hardware.description import Cpu
from ..hardware.dot_instructions import DOT_INSTRUCTIONS
from ..lowering.described import declare
from ..lowering.dot import dot
from ..lowering.loops import by_edge, share, when
from ..lowering.prim_func import ScheduledOperator, root, write_function
from ..lowering.registers import in_register, register, registers
from ..lowering.samples import is_open, ranged
from ..lowering.weight_panels import Panels
from ..match.described import at_sample
from ..operand_types import element_bytes
from .block_rows import RowsEmitter
from .panel_packing import pack_panels

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
Slots: TypeAlias = dict[tuple[int, int], tirx.Var]  # (row of the tile, vector) -> a register
UNROLLED = 4  # units of a lane per iteration of a loop over a long block


def panels_of(product: BlockedProduct, tiling: BlockedTiling) -> Panels:
    """Return the packed layout of the weights, which is the same for any number of rows."""
    return Panels(replace(product, rows=1, activations="float32"), tiling.nr)


class BlockedEmitter:
    """Emits one matrix multiplication. `buffers` by name, flat, without the weights."""

    def __init__(self, product: BlockedProduct, tiling: BlockedTiling, buffers: Mapping[str, tirx.Var]) -> None:
        self.p, self.tiling, self.buffers = product, tiling, buffers
        self.lanes, self.nr, self.vectors = tiling.lanes, tiling.nr, tiling.nr // tiling.lanes
        self.block, self.blocks, self.bits = product.encoding.block, product.blocks, product.bits
        self.layout = panels_of(product, tiling)
        self.in_unit, self.unit_words, self.units = self.layout.in_unit, self.layout.unit_words, self.layout.units
        self.full, self.tail = divmod(product.n, self.nr)
        self.panels, self.size = self.layout.shape
        self.values, self.shared, self.step = self.layout.values, self.layout.shared, self.layout.step
        self.zeros = self.layout.tail  # offset of the zero points or factors
        self.by_dots = tiling.form in ("dot", "dot16")
        self.parts = 2 if tiling.form == "dot16" else 1
        self.scaled = product.activations == "int8" or self.parts == 2  # whether elements of x are integers with scales
        self.engine = next(row for row in DOT_INSTRUCTIONS if row.name == tiling.instruction)
        self.row_of_x = self.blocks * self.block * self.parts if self.scaled else product.k

    # ---- loop nest --------------------------------------------------------------------------------------------------

    def emit(self, packed: tirx.Var) -> None:
        self.packed = packed
        rows = self.p.rows
        self.rows = in_register(rows)
        tm, tn = self.tiling.threads_m, self.tiling.threads_n
        with T.parallel(0, tm * tn) if tm * tn > 1 else T.serial(0, 1) as task:
            self.divide_rows()
            tile0, tile1 = map(in_register, share(self.tiles, tirx.floordiv(task, tn), tm))
            panel0, panel1 = share(self.panels, tirx.floormod(task, tn), tn)
            with T.serial(0, panel1 - panel0) as turn:
                self.panel(panel0 + turn, tile0, tile1 - tile0)

    def divide_rows(self) -> None:
        """Compute the tiles of all rows: their number, the height of the taller ones, and the number of these."""
        mr = self.tiling.mr
        if is_open(self.rows):
            # In registers of the task: values of the enclosing function would be reloaded after every store.
            self.rows = in_register(self.rows)
            self.tiles = in_register(tirx.floordiv(self.rows + (mr - 1), mr))
            self.height = in_register(tirx.floordiv(self.rows + self.tiles - 1, tirx.max(self.tiles, 1)))
            self.taller = in_register(self.rows - self.tiles * (self.height - 1))
            self.heights = range(1, mr + 1)
            return
        self.tiles = -(-self.rows // mr)
        self.height = -(-self.rows // self.tiles)
        self.taller = self.rows - self.tiles * (self.height - 1)
        self.heights = range(self.height - (self.taller < self.tiles), self.height + 1)

    def panel(self, panel: Index, first: Index, count: Index) -> None:
        """Emit all rows of a task for one panel."""
        least = self.tiling.unpacked_rows
        if least is None or (not is_open(self.rows) and self.rows < least):
            self.every_tile(first, count, lambda height, i0: self.tile_of_blocks(height, i0, panel))
        elif is_open(self.rows):
            with when(self.rows < least):
                self.every_tile(first, count, lambda height, i0: self.tile_of_blocks(height, i0, panel))
            with when(self.rows >= least):
                self.unpacked(panel, first, count)
        else:
            self.unpacked(panel, first, count)

    def every_tile(self, first: Index, count: Index, emit: Callable[[int, Index], None]) -> None:
        """Call emit(height, first row) for each tile of rows."""
        with T.serial(0, count) as turn:
            tile = first + turn
            if len(self.heights) == 1:
                emit(self.heights[0], tile * self.height)
                return
            rows = in_register(self.height - tirx.Cast("int64", tile >= self.taller))
            i0 = in_register(tile * self.height - tirx.max(tile - self.taller, 0))
            for height in self.heights:
                with when(tirx.EQ(rows, tirx.const(height, "int64"))):
                    emit(height, i0)

    # ---- a tile -----------------------------------------------------------------------------------------------------

    def tile_of_blocks(self, height: int, i0: Index, panel: Index) -> None:
        """Emit one tile block by block, with weights decoded in registers."""
        totals = self.clear(height, "float32")
        whole = self.blocks if self.scaled else self.p.k // self.block
        start = panel * self.size
        # Blocks that share factors load them once.
        groups, rest = divmod(whole, self.p.encoding.grouped) if self.p.factors else (0, whole)
        if groups:
            grouped = self.p.encoding.grouped
            with T.serial(0, groups) as group, T.serial(0, grouped) as turn:
                self.add_block(totals, height, i0, start, group * grouped + turn, self.units)
        if rest:
            with T.serial(0, rest) as turn:
                self.add_block(totals, height, i0, start, whole - rest + turn, self.units)
        if whole < self.blocks:
            self.add_block(totals, height, i0, start, whole, (self.p.k - whole * self.block) // self.in_unit)
        self.store(totals, height, i0, panel)

    def clear(self, height: int, kind: str) -> Slots:
        cleared = self.slots(height, kind)
        for each in cleared.values():
            T.buffer_store(each, self.spread(tirx.const(0, kind)), [self.whole])
        return cleared

    def slots(self, height: int, kind: str) -> Slots:
        """Return uninitialised registers for a tile of `height` rows."""
        places = [(row, v) for row in range(height) for v in range(self.vectors)]
        return dict(zip(places, registers(len(places), self.lanes, kind), strict=True))

    @property
    def whole(self) -> Expr:
        return T.ramp(0, 1, self.lanes)

    def spread(self, value: Expr) -> Expr:
        return T.broadcast(value, self.lanes)

    def add_block(self, totals: Slots, height: int, i0: Index, start: Index, block: Index, units: int) -> None:
        """Emit totals += scale (sum over the block of x q - zero * sum of x), or scale * sum of x q - offset * sum of
        x."""
        acc = self.started(height, i0, start, block)
        high = self.clear(height, "int32") if self.parts == 2 else {}
        at = start + block * self.step

        def add(unit: Index) -> None:
            for number, vectors in enumerate(self.decoded(at, unit)):
                for part, sums in enumerate([high, acc] if high else [acc]):
                    self.multiply(sums, height, i0, block * self.parts + part, unit, number, vectors)

        if units <= 2 * UNROLLED:
            for unit in range(units):
                add(unit)
        else:
            turns = units // UNROLLED
            with T.serial(0, turns) as turn:
                for unit in range(UNROLLED):
                    add(turn * UNROLLED + unit)
            for unit in range(turns * UNROLLED, units):
                add(unit)
        for place, upper in high.items():
            both = acc[place][self.whole] + tirx.shift_left(upper[self.whole], self.number(8))
            T.buffer_store(acc[place], both, [self.whole])
        scales = [self.kept(self.scale(start, block, v)) for v in range(self.vectors)]
        if self.p.encoding.offsets:
            self.add_with_offsets(totals, acc, i0, block, scales, self.offsets(start, block))
            return
        for (row, v), total in totals.items():
            value = acc[row, v][self.whole]
            if self.by_dots:
                value = T.Cast(f"float32x{self.lanes}", value)
            value = value * scales[v]
            if self.scaled:  # last: the two scales' product may be less than float32 represents
                value = value * self.spread(self.buffers["scales"][(i0 + row) * self.blocks + block])
            T.buffer_store(total, total[self.whole] + value, [self.whole])

    def started(self, height: int, i0: Index, start: Index, block: Index) -> Slots:
        """Return registers for the sums of a block, initialised with the contribution of its zero points, - zero * sum
        of x."""
        kind = "int32" if self.by_dots else "float32"
        if self.p.encoding.offsets:
            return self.clear(height, kind)
        stored = self.p.encoding.zero_points
        zeros = [self.zero(start, block, v) for v in range(self.vectors)]
        started = self.slots(height, kind)
        for row in range(height):
            summed = self.buffers["sums"][(i0 + row) * self.blocks + block]
            if self.scaled and not self.by_dots:
                summed = T.Cast("float32", summed)
            less = self.kept(self.spread(summed * tirx.const(-1 if stored else -self.p.centre, kind)))
            for v, zero in enumerate(zeros):
                T.buffer_store(started[row, v], less * zero if stored else less, [self.whole])
        return started

    def add_with_offsets(
        self, totals: Slots, acc: Slots, i0: Index, block: Index, scales: list[Expr], offsets: list[Expr]
    ) -> None:
        """Emit totals += scale * acc - offset * sum of x."""
        for (row, v), total in totals.items():
            place = (i0 + row) * self.blocks + block
            summed = self.buffers["sums"][place]
            if self.scaled:
                summed = T.Cast("float32", summed)
            product = acc[row, v][self.whole]
            if self.by_dots:
                product = T.Cast(f"float32x{self.lanes}", product)
            value = product * scales[v] - offsets[v] * self.spread(summed)
            if self.scaled:
                value = value * self.spread(self.buffers["scales"][place])
            T.buffer_store(total, total[self.whole] + value, [self.whole])

    def decoded(self, at: Index, unit: Index) -> list[list[Expr]]:
        """Return the weights in the words of a unit, in the order of k, for all vectors of a panel's row: groups of
        bytes in words for dot products, otherwise single weights as floats."""
        if self.bits == 4 and not self.by_dots:
            loaded = [self.kept(self.word(at, unit, v)) for v in range(self.vectors)]
            return [self.floats(loaded, 8 * r + half) for half in (0, 4) for r in range(4)]
        groups = self.groups_of_bytes(at, unit)
        return groups if self.by_dots else [self.floats(group, 8 * r) for group in groups for r in range(4)]

    def groups_of_bytes(self, at: Index, unit: Index) -> list[list[Expr]]:
        """Return words of four one-byte weights, for each group the vectors of a panel's row."""
        words = [
            [self.kept(self.word(at, unit * self.unit_words + word, v)) for v in range(self.vectors)]
            for word in range(self.unit_words)
        ]
        if self.bits == 8:
            return words
        low = [[self.kept(self.masked(value, shift, 0x0F)) for value in word] for word in words[:2] for shift in (0, 4)]
        if self.bits == 4:
            return low
        high = [
            [tirx.shift_left(self.masked(value, 2 * group, 0x03), self.number(4)) for value in words[2]]
            for group in range(4)
        ]
        return [
            [self.kept(tirx.bitwise_or(*pair)) for pair in zip(*both, strict=True)]
            for both in zip(low, high, strict=True)
        ]

    def floats(self, words: list[Expr], shift: int) -> list[Expr]:
        """Return the weight at bit `shift` of each word as float."""
        mask = self.number((1 << min(self.bits, 8)) - 1)
        moved = [tirx.shift_right(value, self.number(shift)) if shift else value for value in words]
        return [self.kept(T.Cast(f"float32x{self.lanes}", tirx.bitwise_and(value, mask))) for value in moved]

    def masked(self, value: Expr, shift: int, mask: int) -> Expr:
        """Return the bits `mask` of every byte, starting at bit `shift`."""
        moved = tirx.shift_right(value, self.number(shift)) if shift else value
        return tirx.bitwise_and(moved, self.number(mask * 0x01010101))

    def number(self, value: int) -> Expr:
        return self.spread(tirx.const(value, "int32"))

    def multiply(
        self, acc: Slots, height: int, i0: Index, block: Index, unit: Index, number: int, vectors: list[Expr]
    ) -> None:
        """Emit acc += x times one group of the unit, or one of its weights. `block` counts blocks of bytes of x."""
        group = 4 if self.by_dots else 1

        def add(sums: Expr, value: Expr, x: Expr) -> Expr:
            return dot(self.engine, sums, value, x, self.lanes) if self.by_dots else sums + x * value

        k = block * self.block + unit * self.in_unit + number * group
        for row in range(height):
            place = (i0 + row) * self.row_of_x + k
            x = self.buffers["x"][T.ramp(place, 1, 4)] if self.by_dots else self.buffers["x"][place]
            if self.by_dots:
                spread = T.reinterpret(f"int8x{4 * self.lanes}", self.spread(T.reinterpret("int32", x)))
            elif self.scaled:
                spread = self.spread(T.Cast("float32", x))
            else:
                spread = self.spread(x)
            for v, value in enumerate(vectors):
                register_of_sums = acc[row, v]
                before = register_of_sums[self.whole]
                T.buffer_store(register_of_sums, add(before, value, spread), [self.whole])

    def store(self, totals: Slots, height: int, i0: Index, panel: Index) -> None:
        """Store the totals in the result."""
        y = self.buffers["y"]

        def columns(width: int) -> None:
            for (row, v), total in totals.items():
                used = min(self.lanes, width - v * self.lanes)
                place = (i0 + row) * self.p.n + panel * self.nr + v * self.lanes
                if used == self.lanes:
                    T.buffer_store(y, total[self.whole], [T.ramp(place, 1, self.lanes)])
                elif used > 0:
                    with T.vectorized(0, used) as lane:
                        T.buffer_store(y, total[lane], [place + lane])

        by_edge(panel, self.full, self.tail, self.nr, columns)

    # ---- contents of a panel ----------------------------------------------------------------------------------------

    def word(self, at: Index, word: Index, v: int) -> Expr:
        """Return a word for every lane of a vector as int32."""
        place = at + (word * self.vectors + v) * (4 * self.lanes)
        return T.reinterpret(f"int32x{self.lanes}", self.packed[T.ramp(place, 1, 4 * self.lanes)])

    def scale(self, start: Index, block: Index, v: int) -> Expr:
        """Return the scales of a vector's columns."""
        return self.of_block(start, block, v, 0)

    def offsets(self, start: Index, block: Index) -> list[Expr]:
        """Return the offsets of all columns, one vector each."""
        return [self.kept(self.of_block(start, block, v, 1)) for v in range(self.vectors)]

    def of_block(self, start: Index, block: Index, v: int, which: int) -> Expr:
        """Return the scales of a vector's columns, or the offsets, as float32."""
        size, kind = self.p.scale_bytes, self.p.encoding.scales
        place = start + block * self.step + self.values + which * self.shared + v * self.lanes * size
        value = self.as_floats(kind, place)
        if not self.p.factors:
            return value
        group = tirx.floordiv(block, self.p.encoding.grouped)
        row = (group * self.p.factors + which) * self.nr + v * self.lanes
        return value * self.as_floats("float16", start + self.zeros + 2 * row)

    def as_floats(self, kind: str, place: Index) -> Expr:
        """Return the numbers of type `kind`, one per lane, at a byte of the panels."""
        size = element_bytes(kind)
        value = T.reinterpret(f"{kind}x{self.lanes}", self.packed[T.ramp(place, 1, size * self.lanes)])
        return value if kind == "float32" else T.Cast(f"float32x{self.lanes}", value)

    def zero(self, start: Index, block: Index, v: int) -> Expr:
        """Return the zero points of a vector's columns in the type of a block's sums."""
        kind = "int32" if self.by_dots else "float32"
        if not self.p.encoding.zero_points:
            return self.spread(tirx.const(self.p.centre, kind))
        place = start + self.zeros + block * self.nr + v * self.lanes
        return self.kept(T.Cast(f"{kind}x{self.lanes}", self.packed[T.ramp(place, 1, self.lanes)]))

    def kept(self, value: Expr) -> Expr:
        """Return `value` in a register, so that it is computed once."""
        held = register(self.lanes, str(value.ty).partition("x")[0])
        T.buffer_store(held, value, [self.whole])
        return held[self.whole]

    # ---- weights decoded once ---------------------------------------------------------------------------------------

    def unpacked(self, panel: Index, first: Index, count: Index) -> None:
        """Emit all rows of a task for one panel, with its weights decoded to floats in a buffer, as many elements of K
        as stay in L2."""
        depth = self.tiling.partition_k // self.block  # in blocks
        floats = T.alloc_buffer((depth * self.block * self.nr,), "float32")
        chunks = -(-self.blocks // depth)
        start = panel * self.size
        for chunk in range(chunks):
            block0, here = chunk * depth, min(depth, self.blocks - chunk * depth)
            with T.serial(0, here) as turn:
                self.unpack(floats, start, block0 + turn, turn)
            elements = min(self.p.k - block0 * self.block, here * self.block)

            def tile(height: int, i0: Index, k0: int = block0 * self.block, elements: int = elements) -> None:
                self.tile_of_floats(floats, height, i0, panel, k0, elements)

            self.every_tile(first, count, tile)

    def unpack(self, floats: tirx.Var, start: Index, block: Index, turn: Index) -> None:
        """Decode the weights of a block to floats."""
        at = start + block * self.step
        scales = [self.kept(self.scale(start, block, v)) for v in range(self.vectors)]
        if self.p.encoding.offsets:
            offsets = self.offsets(start, block)
        else:
            offsets = [self.kept(self.zero(start, block, v) * scales[v]) for v in range(self.vectors)]
        with T.serial(0, self.units) as unit:
            for number, vectors in enumerate(self.decoded(at, unit)):
                row = turn * self.block + unit * self.in_unit + number
                for v, value in enumerate(vectors):
                    place = row * self.nr + v * self.lanes
                    T.buffer_store(floats, value * scales[v] - offsets[v], [T.ramp(place, 1, self.lanes)])

    def tile_of_floats(self, floats: tirx.Var, height: int, i0: Index, panel: Index, k0: int, elements: int) -> None:
        """Emit one tile over the elements of K in the buffer; the sums of earlier elements are in the result."""
        totals = self.clear(height, "float32")
        x, scales = self.buffers["x"], self.buffers.get("scales")
        with T.serial(0, elements) as k:
            values = [
                self.kept(floats[T.ramp(k * self.nr + v * self.lanes, 1, self.lanes)]) for v in range(self.vectors)
            ]
            for row in range(height):
                element = x[(i0 + row) * self.row_of_x + k0 + k]
                if self.scaled:
                    assert scales is not None
                    place = (i0 + row) * self.blocks + tirx.floordiv(k0 + k, self.block)
                    element = T.Cast("float32", element) * scales[place]
                for v, value in enumerate(values):
                    total = totals[row, v]
                    T.buffer_store(total, total[self.whole] + self.spread(element) * value, [self.whole])
        if k0:
            self.add_stored(totals, i0, panel)
        self.store(totals, height, i0, panel)

    def add_stored(self, totals: Slots, i0: Index, panel: Index) -> None:
        """Add the sums of earlier elements of K."""
        y = self.buffers["y"]

        def columns(width: int) -> None:
            for (row, v), total in totals.items():
                used = min(self.lanes, width - v * self.lanes)
                if used > 0:
                    with T.vectorized(0, used) as lane:
                        place = (i0 + row) * self.p.n + panel * self.nr + v * self.lanes
                        T.buffer_store(total, total[lane] + y[place + lane], [lane])

        by_edge(panel, self.full, self.tail, self.nr, columns)


def schedule_blocked(
    product: BlockedProduct,
    name: str,
    cpu: Cpu,
    *,
    prepacked: bool,
    tiling: BlockedTiling | None = None,
    deterministic: bool = False,
) -> ScheduledOperator:
    """Return the kernel of a matrix multiplication with block-quantised weights; its parameters are those of the
    description in order.

    prepacked: the weights are passed in the panels that are returned with the kernel; otherwise the kernel packs them
    in each call. deterministic: as in decide_blocked().
    """
    rows = ranged(product.rows) if is_open(product.rows) else None
    chosen = tiling or decide_blocked(at_sample(product).workload, cpu, rows, deterministic=deterministic)
    layout = panels_of(product, chosen)
    shape = layout.shape

    def main() -> None:
        buffers = declare(product, shape if prepacked else None)
        with root():
            given = buffers.pop("weights")
            flat = {called: each.view(-1) for called, each in buffers.items()}
            if "sums" not in flat:
                flat |= _rows_made_ready(product.ready("int16" if chosen.form == "dot16" else "float32"), cpu, flat)
            emitter = BlockedEmitter(product, chosen, flat)
            if prepacked:
                emitter.emit(given.view(-1))
                return
            packed = T.alloc_buffer((shape[0] * shape[1],), "uint8")
            pack_panels(layout, given, packed)
            emitter.emit(packed)

    made = write_function(name, chosen, main)
    if not prepacked:
        return ScheduledOperator(chosen, made)
    return ScheduledOperator(chosen, made, None, shape, "uint8", layout)


def _rows_made_ready(ready: BlockRows, cpu: Cpu, flat: Mapping[str, tirx.Var]) -> dict[str, tirx.Var]:
    """Prepare the rows in the form that the kernel reads and return their buffers."""
    made = {name: T.alloc_buffer((math.prod(shape),), dtype) for name, (shape, dtype) in ready.outputs.items()}
    RowsEmitter(ready, cpu, {"x": flat["x"], **made}).emit()
    return {"x" if name == "x_blocks" else name: buffer for name, buffer in made.items()}
