"""Weights in blocks of few bits: as records of bytes, and calls of the products that take them so.

A record is a block of one column: its weights, the one of lower k in the lower bits, the scale, the zero point or the
offset, factors that blocks share. Nothing but the kernel's packing reads it, so that weights never become floats as a
whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from ..decide.gemm.blocked import BlockedProduct
from ..lowering.extents import product_of
from ..operand_types import Encoding
from ..runtime.pages import zeros as pages
from ..runtime.tensors import tensor_of
from .described_call import described_call
from .open_shapes import whole

ALIGNED = 16  # elements of k that are decoded together; rows of other lengths get zeros behind them


@dataclass(frozen=True)
class Blocks:
    """Weights of rows in blocks: `values`, uint8[rows, blocks, bytes], in the order of k; `scales`, `zeros`, `offsets`
    of [rows, blocks], and `factors`, float16[rows, groups], of scales, or of scales and then of offsets."""

    values: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None = None
    offsets: np.ndarray | None = None
    factors: tuple[np.ndarray, ...] = ()


def records(found: Blocks, product: BlockedProduct, into: np.ndarray | None = None) -> np.ndarray:
    """uint8[n, blocks, bytes of a record] of weights in blocks, in memory that a constant shares, or `into` such
    records."""
    shape, encoding = (product.n, product.blocks), product.encoding
    made = record_memory(product) if into is None else into
    shape = made.shape[:2]
    made[..., : product.value_bytes] = found.values.reshape(*shape, product.value_bytes)
    parts = [(product.value_bytes, found.scales, encoding.scales)]
    if found.offsets is not None:
        parts.append((product.zero_place, found.offsets, encoding.scales))
    else:
        made[..., product.zero_place] = product.centre if found.zeros is None else found.zeros.reshape(shape)
    for place, factors in enumerate(found.factors):
        shared = np.repeat(factors, encoding.grouped, axis=-1)[:, : shape[1]]
        parts.append((product.factor_place + 2 * place, shared, "float16"))
    for place, numbers, kind in parts:
        held = np.ascontiguousarray(numbers.reshape(*shape, 1), kind).view(np.uint8)
        made[..., place : place + held.shape[-1]] = held
    return made


def record_memory(product: BlockedProduct) -> np.ndarray:
    """Memory for the records of a product."""
    shape = (product.n, product.blocks, product.record)
    return pages(product.n * product.blocks * product.record).reshape(shape)


def product_in_blocks(
    bb: Any, x: relax.Expr, weights: np.ndarray, n: int, k: int, encoding: Encoding, activations: str
) -> relax.Expr:
    """x w', float32[..., n], of x float32[..., k] and records of weights, which nobody writes to any more.
    `activations` "int8" quantises rows of x in the weights' blocks, "int16" lets kernels round them to 16 bits."""
    lead = [whole(extent) for extent in list(x.ty.shape)[:-1]]
    rows = product_of(lead) if lead else 1
    flat = bb.emit(op.reshape(x, relax.ShapeExpr([rows, k])))
    if k % ALIGNED:
        none = relax.ShapeExpr([rows, -k % ALIGNED])
        flat = bb.emit(op.concat([flat, bb.emit(op.broadcast_to(relax.const(0.0, "float32"), none))], axis=1))
        k += -k % ALIGNED
    product = BlockedProduct(rows=rows, n=n, k=k, encoding=encoding, activations=activations)
    taken = {"x": flat}
    if activations == "int8":
        taken = described_call(bb, product.ready("int8"), taken, "block_rows")
        taken["x"] = taken.pop("x_blocks")
    taken["weights"] = relax.const(tensor_of(weights))
    y = described_call(bb, product, taken, "product_in_blocks")["y"]
    return bb.emit(op.reshape(y, relax.ShapeExpr([*lead, n])))
