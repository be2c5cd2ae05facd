"""Rows of a table in blocks of few bits, as an embedding's, taken and decoded."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

from ..operand_types import Encoding
from ..runtime.tensors import tensor_of
from .blocked_weights import Blocks


def rows_of_blocks(bb: Any, table: Blocks, places: relax.Expr, encoding: Encoding, width: int) -> relax.Expr:
    """float32[places..., width]: rows of a table, whose zeros, left out, are the middle of the values' range."""
    rows = len(table.scales)
    bits = encoding.how.bits
    assert bits is not None
    block, centre = encoding.block, 1 << (bits - 1)
    parts = {"values": table.values.reshape(rows, -1), "scales": table.scales}
    if table.zeros is not None:
        parts["zeros"] = table.zeros.reshape(rows, -1)
    if table.offsets is not None:
        parts["offsets"] = table.offsets
    parts |= dict(zip(("factor", "offset_factor"), table.factors, strict=False))
    constants = [relax.const(tensor_of(np.ascontiguousarray(part))) for part in parts.values()]
    taken = [bb.emit(op.take(part, places, axis=0)) for part in constants]

    def decoded(*given: te.Tensor) -> te.Tensor:
        named = dict(zip(parts, given, strict=True))
        values = named["values"]
        lead = list(values.shape)[:-1]

        def element(*at: Any) -> Any:
            row, k = list(at[:-1]), at[-1]
            of_block = tuple([*row, tirx.floordiv(k, block)])

            def real(name: str, factor: str) -> Any:
                value = named[name][of_block].astype("float32")
                if factor not in named:
                    return value
                group = tirx.floordiv(k, block * encoding.grouped)
                return value * named[factor][tuple([*row, group])].astype("float32")

            first = tirx.floordiv(bits * k, 8)
            word = values[tuple([*row, first])].astype("int32")
            if bits < 8:
                if 8 % bits:  # some lie in two bytes
                    second = tirx.min(first + 1, values.shape[-1] - 1)
                    high = values[tuple([*row, second])].astype("int32")
                    word = tirx.bitwise_or(word, tirx.shift_left(high, tirx.const(8, "int32")))
                shift = tirx.floormod(bits * k, 8).astype("int32")
                word = tirx.bitwise_and(tirx.shift_right(word, shift), tirx.const((1 << bits) - 1, "int32"))
            if "offsets" in named:
                return word.astype("float32") * real("scales", "factor") - real("offsets", "offset_factor")
            zero = named["zeros"][of_block].astype("int32") if "zeros" in named else tirx.const(centre, "int32")
            return (word - zero).astype("float32") * real("scales", "factor")

        return te.compute([*lead, tirx.IntImm("int64", width)], element, name="decoded")

    return bb.emit(bb.call_te(decoded, *taken, primfunc_name_hint="decoded"))
