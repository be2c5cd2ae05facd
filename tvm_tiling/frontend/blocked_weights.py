"""Weights in blocks of few bits: as records of bytes, and calls of the products that take them so.

A record is a block of one column: its weights, the one of lower k in the lower bits, the scale, the zero point. Nothing
but the kernel's packing reads it, so that weights never become floats as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from ..decide.gemm.block_rows import BlockRows
from ..decide.gemm.blocked import BlockedProduct
from ..lowering.extents import product_of
from ..operand_types import Encoding
from .described_call import described_call
from .open_shapes import whole

ALIGNED = 8  # elements of k that a word holds; rows of other lengths get zeros behind them


def records(values: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, product: BlockedProduct) -> np.ndarray:
    """uint8[n, blocks, bytes of a record] of `values`, uint8[n, blocks, bytes], in the order of k; `scales` and `zeros`
    are [n, blocks]."""
    shape = (product.n, product.blocks)
    found = np.empty((*shape, product.record), np.uint8)
    found[..., : product.value_bytes] = values.reshape(*shape, product.value_bytes)
    parts = np.ascontiguousarray(scales.reshape(*shape, 1), product.encoding.scales).view(np.uint8)
    found[..., product.value_bytes : -1] = parts
    found[..., -1] = product.centre if zeros is None else zeros.reshape(shape)
    return found


def product_in_blocks(
    bb: Any, x: relax.Expr, weights: np.ndarray, n: int, k: int, encoding: Encoding, activations: str
) -> relax.Expr:
    """x w', float32[..., n], of x float32[..., k] and records of weights. `activations` "int8" quantises rows of x in
    the weights' blocks."""
    lead = [whole(extent) for extent in list(x.ty.shape)[:-1]]
    rows = product_of(lead) if lead else 1
    flat = bb.emit(op.reshape(x, relax.ShapeExpr([rows, k])))
    if k % ALIGNED:
        none = relax.ShapeExpr([rows, -k % ALIGNED])
        flat = bb.emit(op.concat([flat, bb.emit(op.broadcast_to(relax.const(0.0, "float32"), none))], axis=1))
        k += -k % ALIGNED
    ready = BlockRows(rows=rows, k=k, block=encoding.block, to=activations)
    parts = described_call(bb, ready, {"x": flat}, "block_rows")
    taken = {"x": parts.pop("x_blocks", flat), **parts, "weights": relax.const(weights)}
    product = BlockedProduct(rows=rows, n=n, k=k, encoding=encoding, activations=activations)
    y = described_call(bb, product, taken, "product_in_blocks")["y"]
    return bb.emit(op.reshape(y, relax.ShapeExpr([*lead, n])))
