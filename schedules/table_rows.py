"""Gathers rows of a block-quantised table, read from the panels of a matrix multiplication with the same weights.

A row is a column of a panel, so every nr-th word of a block belongs to it. Few rows are read compared to a matrix
multiplication, so one core reads all of them.
"""

from __future__ import annotations

from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.gemm.table_rows import TableRows
from ..lowering.described import declare
from ..lowering.loops import when
from ..lowering.prim_func import ScheduledOperator, root, write_function
from ..lowering.registers import register
from ..lowering.weight_panels import Panels
from ..operand_types import element_bytes

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
ALONE = 16  # columns of a panel if no matrix multiplication reads the table


def schedule_table_rows(
    description: TableRows, name: str, nr: int | None, *, prepacked: bool
) -> ScheduledOperator | None:
    """Return the kernel of TableRows; its parameters are the inputs and outputs in order.

    nr: columns of a panel if a matrix multiplication reads the same table, else None. Returns None if the table is not
    prepacked.
    """
    if not prepacked:
        return None
    panels = Panels(description.product, nr or ALONE)

    def main() -> None:
        buffers = declare(description, panels.shape)
        with root():
            _Emitter(description, panels, buffers).emit()

    return ScheduledOperator(None, write_function(name, None, main), None, panels.shape, "uint8", panels)


def _kept(value: Expr) -> Expr:
    """Return `value` in a register, so that it is computed once."""
    held = register(1, str(value.ty))
    T.buffer_store(held, value, [0])
    return held[0]


class _Emitter:
    def __init__(self, description: TableRows, panels: Panels, buffers: dict[str, tirx.Var]) -> None:
        self.t, self.p, self.layout, self.nr = description, description.product, panels, panels.nr
        self.places, self.y, self.packed = buffers["places"], buffers["y"], buffers["weights"].view(-1)

    def emit(self) -> None:
        t, p = self.t, self.p
        with T.serial(0, t.rows) as row:
            place = _kept(T.Cast("int64", self.places[row]))
            start = _kept(tirx.floordiv(place, self.nr) * self.layout.size)
            column = _kept(tirx.floormod(place, self.nr))
            with T.serial(0, p.blocks) as block:
                scale = _kept(self.shared(start, column, block, 0))
                less = _kept(self.less(start, column, block))
                with T.serial(0, self.layout.units) as unit:
                    first = block * p.encoding.block + unit * self.layout.in_unit
                    for number, value in enumerate(self.weights(start, column, block, unit)):
                        element = self.decoded(value, scale, less)
                        if t.k % p.encoding.block:
                            with when(first + number < t.k):
                                T.buffer_store(self.y, element, [row, first + number])
                        else:
                            T.buffer_store(self.y, element, [row, first + number])

    def weights(self, start: Index, column: Index, block: Index, unit: Index) -> list[Expr]:
        """Return the stored weights of a unit as int32, in the order of k."""
        bits, words = self.p.bits, self.layout.unit_words
        at = start + block * self.layout.step

        def byte(word: int, number: int) -> Expr:
            place = at + ((unit * words + word) * self.nr + column) * 4 + number
            return T.Cast("int32", self.packed[place])

        def bits_of(value: Expr, shift: int, mask: int) -> Expr:
            return tirx.bitwise_and(tirx.shift_right(value, tirx.const(shift, "int32")), tirx.const(mask, "int32"))

        if bits == 8:
            return [byte(0, r) for r in range(4)]
        low = [bits_of(byte(word, r), shift, 15) for word in range(min(words, 2)) for shift in (0, 4) for r in range(4)]
        if bits == 4:
            return low
        high = [bits_of(byte(2, r), 2 * group, 3) for group in range(4) for r in range(4)]
        return [
            tirx.bitwise_or(own, tirx.shift_left(two, tirx.const(4, "int32")))
            for own, two in zip(low, high, strict=True)
        ]

    def decoded(self, value: Expr, scale: Expr, less: Expr) -> Expr:
        """Return the decoded value of a weight."""
        if self.p.encoding.offsets:
            return T.Cast("float32", value) * scale - less
        return T.Cast("float32", value - less) * scale

    def less(self, start: Index, column: Index, block: Index) -> Expr:
        """Return the value subtracted from every weight of a block: its offset, or its zero point before scaling."""
        if self.p.encoding.offsets:
            return self.shared(start, column, block, 1)
        if not self.p.encoding.zero_points:
            return tirx.const(self.p.centre, "int32")
        return T.Cast("int32", self.packed[start + self.layout.tail + block * self.nr + column])

    def shared(self, start: Index, column: Index, block: Index, which: int) -> Expr:
        """Return the scale of a block, or its offset, as float32."""
        kind = self.p.encoding.scales
        at = start + block * self.layout.step + self.layout.values + which * self.layout.shared
        value = self.number(kind, at + column * element_bytes(kind))
        if not self.p.factors:
            return value
        group = tirx.floordiv(block, self.p.encoding.grouped)
        row = (group * self.p.factors + which) * self.nr + column
        return value * self.number("float16", start + self.layout.tail + 2 * row)

    def number(self, kind: str, place: Index) -> Expr:
        """Return the number of type `kind` at a byte of the panels as float32."""
        size = element_bytes(kind)
        word = f"uint{8 * size}"
        value: Expr = T.Cast(word, self.packed[place])
        for byte in range(1, size):
            part = tirx.shift_left(T.Cast(word, self.packed[place + byte]), tirx.const(8 * byte, word))
            value = tirx.bitwise_or(value, part)
        return T.Cast("float32", T.reinterpret(kind, value))
