"""Block-quantised weights in the graph, as stored until they are packed, and the operators that use them.

A graph represents them as a call on the constants stored in the file, whose value is their records (weight_panels.py
describes these); `stored()` emits it. The call is never executed: only the packing of the kernels that read it
evaluates it, some rows at a time, so that weights are read sequentially from a mapped file and are never expanded to
records or floats as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from ..decide.gemm.blocked import BlockedProduct
from ..decide.gemm.table_rows import TableRows
from ..lowering.extents import product_of
from ..lowering.positions import checked_positions
from ..lowering.weight_panels import Blocks, BlocksOf, blocks_of_records, record_memory, records, values_of
from ..operand_types import Encoding
from ..runtime.tensors import array_of, tensor_of
from .described_call import described_call
from .gguf.types import TENSOR_TYPES
from .open_shapes import whole

ALIGNED = 16  # elements of K that are decoded together; rows of other lengths are padded with zeros
_STORED = "tvm_tiling.stored"  # the called function; its name is followed by the layout, the encoding and K
_AT_ONCE = 1 << 22  # weights converted to records at a time


def _bits(parts: Sequence[np.ndarray], product: BlockedProduct) -> Blocks:
    """Return blocks from the layout of MatMulNBits: values, scales and, if present, zero points, which are packed like
    the values or are one number per block; or offsets in their place."""
    values, scales, *zeros = parts
    rows = len(values)
    shape = (rows, product.blocks)
    found, offsets = None, None
    if product.encoding.offsets:
        offsets = zeros[0].reshape(shape)
    elif zeros:
        found = zeros[0].reshape(rows, -1)
        if found.dtype == np.uint8:
            found = values_of(found, product.bits)[:, : product.blocks]
    missing = product.blocks * product.value_bytes - values.shape[1]  # bytes missing from the last block
    packed = (np.pad(values, ((0, 0), (0, missing))) if missing else values).reshape(*shape, product.value_bytes)
    return Blocks(values_of(packed, product.bits), scales.reshape(shape), found, offsets)


_LAYOUTS: dict[str, Callable[[Sequence[np.ndarray], BlockedProduct], Blocks]] = {
    "bits": _bits,
    **{kind.name: kind.read for kind in TENSOR_TYPES.values() if kind.blocks is not None},
}
"""Functions that return blocks from some rows of the constants, by the name of the layout."""
RECORDS = "records"  # the layout of constants that already are records


@dataclass(frozen=True)
class Stored:
    """Weights of a matrix multiplication: `parts` are constants with a row for each output column, in a layout."""

    layout: str
    parts: tuple[tvm.runtime.Tensor, ...]
    product: BlockedProduct

    def rows(self) -> BlocksOf:
        """Return its blocks, some rows at a time."""
        arrays = [array for part in self.parts if (array := array_of(part)) is not None]
        if self.layout == RECORDS:
            return blocks_of_records(arrays[0], self.product)
        found = [array.reshape(self.product.n, -1) for array in arrays]

        def some(first: int, count: int) -> Blocks:
            return _LAYOUTS[self.layout]([array[first : first + count] for array in found], self.product)

        return some

    def records(self) -> tvm.runtime.Tensor:
        """Return all rows as records."""
        rows, product = self.rows(), self.product
        made = record_memory(product)
        step = max(1, _AT_ONCE // product.k)
        for first in range(0, product.n, step):
            part = made[first : first + step]
            records(rows(first, len(part)), product, part)
        return tensor_of(made)


def stored(bb: Any, layout: str, parts: Sequence[relax.Expr], product: BlockedProduct) -> relax.Expr:
    """Return the weights of a matrix multiplication, N x K, that constants hold."""
    name = f"{_STORED} {layout} {product.encoding} {product.k}"
    shape, dtype = product.inputs["weights"]
    kind = relax.TensorType(shape, dtype)
    return bb.emit(relax.op.call_pure_packed(name, *parts, ty_args=[kind]))


def stored_of(value: relax.Expr) -> Stored | None:
    """Return the content of such a call, or None for any other expression."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return None
    if value.op.name != "relax.call_pure_packed":
        return None
    called, *parts = value.args
    name = str(getattr(called, "global_symbol", ""))
    if not name.startswith(f"{_STORED} "):
        return None
    _, layout, encoding, k = name.split(" ")
    n = int(value.ty.shape[0])
    product = BlockedProduct(rows=1, n=n, k=int(k), encoding=Encoding.parse(encoding))
    return Stored(layout, tuple(part.value for part in parts), product)


def product_in_blocks(
    bb: Any, x: relax.Expr, weights: relax.Expr, product: BlockedProduct, activations: str
) -> relax.Expr:
    """Return x w', float32[..., N], of x float32[..., K] and weights given by stored() or as records.

    `activations` "int8" quantises rows of x in the blocks of the weights, "int16" lets kernels round them to 16 bits.
    """
    n, k, encoding = product.n, product.k, product.encoding
    lead = [whole(extent) for extent in list(x.ty.shape)[:-1]]
    rows = product_of(lead) if lead else 1
    flat = bb.emit(op.reshape(x, relax.ShapeExpr([rows, k])))
    if k % ALIGNED:
        none = relax.ShapeExpr([rows, -k % ALIGNED])
        flat = bb.emit(op.concat([flat, bb.emit(op.broadcast_to(relax.const(0.0, "float32"), none))], axis=1))
        k += -k % ALIGNED
    description = BlockedProduct(rows=rows, n=n, k=k, encoding=encoding, activations=activations)
    taken = {"x": flat}
    if activations == "int8":
        taken = described_call(bb, description.ready("int8"), taken, "block_rows")
        taken["x"] = taken.pop("x_blocks")
    taken["weights"] = weights
    y = described_call(bb, description, taken, "product_in_blocks")["y"]
    return bb.emit(op.reshape(y, relax.ShapeExpr([*lead, n])))


def rows_of_blocks(
    bb: Any, weights: relax.Expr, places: relax.Expr, product: BlockedProduct, operator: str, *, wraps: bool
) -> relax.Expr:
    """Return float32[places..., K]: rows of a table stored like the weights of a matrix multiplication. Indices out of
    range are refused, naming `operator`; with `wraps`, -1 is the last row."""
    checked = checked_positions(bb, places, product.n, operator, wraps=wraps)
    lead = [whole(extent) for extent in checked.ty.shape]
    rows = product_of(lead) if lead else 1
    flat = bb.emit(op.reshape(checked, relax.ShapeExpr([rows])))
    description = TableRows(
        rows=rows, n=product.n, k=product.k, encoding=product.encoding, places=str(checked.ty.dtype)
    )
    y = described_call(bb, description, {"places": flat, "weights": weights}, "table_rows")["y"]
    return bb.emit(op.reshape(y, relax.ShapeExpr([*lead, product.k])))
