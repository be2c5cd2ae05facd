"""Rows of a table in blocks of few bits, as an embedding's, taken and decoded."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

from ..operand_types import Encoding


def rows_of_blocks(
    bb: Any,
    values: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray | None,
    places: relax.Expr,
    encoding: Encoding,
    width: int,
) -> relax.Expr:
    """float32[places..., width]: rows of `values`, uint8[rows, blocks, bytes], the element of lower place in the lower
    bits; `scales` and `zeros` are [rows, blocks], zeros left out the middle of the values' range."""
    rows, blocks = scales.shape
    bits = encoding.how.bits
    assert bits is not None
    block, per, centre = encoding.block, 8 // bits, 1 << (bits - 1)
    parts = [relax.const(np.ascontiguousarray(values.reshape(rows, -1))), relax.const(np.ascontiguousarray(scales))]
    if zeros is not None:
        parts.append(relax.const(np.ascontiguousarray(zeros.reshape(rows, blocks))))
    taken = [bb.emit(op.take(part, places, axis=0)) for part in parts]

    def decoded(bytes_: te.Tensor, scales: te.Tensor, *zeros: te.Tensor) -> te.Tensor:
        lead = list(bytes_.shape)[:-1]

        def element(*at: Any) -> Any:
            row, k = list(at[:-1]), at[-1]
            byte = bytes_[tuple([*row, tirx.floordiv(k, per)])].astype("int32")
            if per > 1:
                shift = (bits * tirx.floormod(k, per)).astype("int32")
                byte = tirx.bitwise_and(tirx.shift_right(byte, shift), tirx.const((1 << bits) - 1, "int32"))
            of_block = tuple([*row, tirx.floordiv(k, block)])
            zero = zeros[0][of_block].astype("int32") if zeros else tirx.const(centre, "int32")
            return (byte - zero).astype("float32") * scales[of_block].astype("float32")

        return te.compute([*lead, tirx.IntImm("int64", width)], element, name="decoded")

    return bb.emit(bb.call_te(decoded, *taken, primfunc_name_hint="decoded"))
