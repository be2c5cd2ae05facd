"""Packs block-quantised weights at run time into the panels that kernels read (lowering/weight_panels.py).

Only weights passed at run time are packed this way; constants are packed when a model is compiled.
"""

from __future__ import annotations

from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..lowering.described import weight_at
from ..lowering.loops import when
from ..lowering.weight_panels import Panels

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


def pack_panels(layout: Panels, weights: tirx.Var, packed: tirx.Var) -> None:
    """Pack `weights`, given as records, into the flat buffer `packed`, one parallel task per panel; what is past the
    last column stays 0."""
    p, nr = layout.product, layout.nr
    with T.parallel(0, layout.count) as panel, T.serial(0, p.blocks) as block, T.serial(0, nr) as j:
        column = panel * nr + j
        with when(column < p.n):
            base = panel * layout.size + block * layout.step
            with T.serial(0, layout.units) as unit, T.serial(0, 4) as byte:
                for word in range(layout.unit_words):
                    at = ((unit * layout.unit_words + word) * nr + j) * 4 + byte
                    T.buffer_store(packed, _byte(layout, weights, column, block, unit, word, byte), [base + at])
            with T.serial(0, p.scale_bytes) as byte:
                at = base + layout.values + j * p.scale_bytes + byte
                T.buffer_store(packed, weights[column, block, p.value_bytes + byte], [at])
                if p.encoding.offsets:
                    T.buffer_store(packed, weights[column, block, p.zero_place + byte], [at + layout.shared])
            tail = panel * layout.size + layout.tail
            if p.encoding.zero_points:
                T.buffer_store(packed, weights[column, block, p.zero_place], [tail + block * nr + j])
            if p.factors:
                _pack_factors(layout, weights, packed, column, block, tail, j)


def _pack_factors(
    layout: Panels, weights: tirx.Var, packed: tirx.Var, column: Index, block: Index, tail: Index, j: Index
) -> None:
    """Pack the factors of a group, together with its first block."""
    p, grouped = layout.product, layout.product.encoding.grouped
    with when(tirx.EQ(tirx.floormod(block, grouped), 0)), T.serial(0, 2) as byte:
        for factor in range(p.factors):
            at = tail + 2 * ((tirx.floordiv(block, grouped) * p.factors + factor) * layout.nr + j)
            T.buffer_store(packed, weights[column, block, p.factor_place + 2 * factor + byte], [at + byte])


def _byte(layout: Panels, weights: tirx.Var, column: Index, block: Index, unit: Index, word: int, byte: Index) -> Expr:
    """Return a byte of a lane's word, composed of parts of weights from the lowest bits upwards."""
    p = layout.product

    def weight(place: int) -> Expr:
        return T.Cast("uint8", weight_at(p, weights, column, block, unit * layout.in_unit + place + byte))

    def joined(parts: list[Expr], bits: int) -> Expr:
        found = parts[0]
        for number, part in enumerate(parts[1:], 1):
            found = tirx.bitwise_or(found, tirx.shift_left(part, tirx.const(bits * number, "uint8")))
        return found

    if p.bits == 8:
        return weight(0)
    if word < 2:
        low = [tirx.bitwise_and(weight(8 * word + place), tirx.const(15, "uint8")) for place in (0, 4)]
        return joined(low, 4)
    return joined([tirx.shift_right(weight(place), tirx.const(4, "uint8")) for place in (0, 4, 8, 12)], 2)
