"""Operators of the domain com.microsoft whose weights are stored in blocks of 4 or 8 bits, as Relax.

Operands and attributes as onnxruntime documents them (docs/ContribOperators.md of its repository).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ...decide.gemm.blocked import BlockedProduct
from ...operand_types import Encoding
from ..blocked_rows import rows_of_blocks
from ..blocked_weights import Blocks, product_in_blocks, records
from .tensors import as_type, dtype_of, held, known

BITS = (4, 8)
_ROWS = {1: "float32", 4: "int8"}
"""Rows by accuracy_level, the least that they may be rounded to: 0 says nothing, 2 and 3 are types of 16 bits."""


def _zeros(zeros: np.ndarray, product: BlockedProduct) -> np.ndarray:
    """uint8[n, blocks] of zero points that are packed as the weights are, or floats, one for each block."""
    shape = (product.n, product.blocks)
    if zeros.dtype != np.uint8:
        floats = zeros.astype(np.float32)
        if floats.size != product.n * product.blocks:
            raise ValueError(f"{floats.size} zero points; accepted: {product.n * product.blocks}")
        wholes = np.rint(floats)
        if not ((floats == wholes) & (wholes >= 0) & (wholes < 1 << product.bits)).all():
            raise ValueError(f"zero points that are no whole numbers of {product.bits} bits; accepted: such numbers")
        return wholes.astype(np.uint8).reshape(shape)
    row = -(-product.blocks * product.bits // 8)
    if zeros.size != product.n * row:
        raise ValueError(f"zero points of {zeros.size} bytes; accepted: {product.n * row}")
    if product.bits == 8:
        return zeros.reshape(shape)
    pairs = zeros.reshape(product.n, row)
    both = np.stack([pairs & 15, pairs >> 4], axis=-1)
    return both.reshape(product.n, 2 * row)[:, : product.blocks]


class MatMulNBits(tvm_onnx.OnnxOpConverter):
    """A w', weights of N columns in blocks along K, with a bias. Rows are quantised where accuracy_level allows it."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        a, values, scales, zeros, order, bias = inputs[:6]
        n, k, block, bits = (int(attr[name]) if name in attr else None for name in ("N", "K", "block_size", "bits"))
        bits = 4 if bits is None else bits
        if n is None or k is None or block is None:
            raise ValueError("N, K or block_size is missing; accepted: all three")
        if bits not in BITS:
            raise ValueError(f"bits = {bits}; accepted: {', '.join(map(str, BITS))}")
        if block < 16 or block & (block - 1):
            raise ValueError(f"block_size = {block}; accepted: a power of two from 16 on")
        if order is not None:
            raise ValueError("g_idx, an order of the elements of K, is given; accepted: weights without it")
        for called, operand in (("weights", values), ("scales", scales), ("zero points", zeros)):
            if operand is not None and known(operand) is None:
                raise ValueError(f"{called} are computed by the model; accepted: constants")
        if int(a.ty.shape[-1]) != k:
            raise ValueError(f"A of {int(a.ty.shape[-1])} columns, and K = {k}; accepted: the same number")
        encoding = Encoding(
            format=f"int{bits}",
            block=block,
            scales="float16" if dtype_of(scales) == "float16" else "float32",
            zero_points=zeros is not None,
        )
        product = BlockedProduct(rows=1, n=n, k=k, encoding=encoding)
        stored = held(values)
        if stored.size != n * product.blocks * product.value_bytes or stored.dtype != np.uint8:
            raise ValueError(
                f"weights of {stored.dtype}{list(stored.shape)}; accepted: "
                f"uint8[{n}, {product.blocks}, {product.value_bytes}]"
            )
        found = cls._floats(scales)
        if found.size != n * product.blocks:
            raise ValueError(f"{found.size} scales; accepted: {n * product.blocks}, one for each block of each column")
        stored_zeros = None if zeros is None else _zeros(held(zeros), product)
        weights = records(Blocks(stored, found, stored_zeros), product)
        x = as_type(bb, a, "float32")
        activations = _ROWS.get(attr.get("accuracy_level", 0), "int16")
        y = product_in_blocks(bb, x, weights, n, k, encoding, activations)
        if bias is not None:
            y = bb.emit(op.add(y, as_type(bb, bias, "float32")))
        return as_type(bb, y, dtype_of(a))

    @staticmethod
    def _floats(scales: relax.Expr) -> np.ndarray:
        """Scales as NumPy has them: float16 or float32."""
        value = held(scales)
        return value if value.dtype == np.float16 else value.astype(np.float32)


class GatherBlockQuantized(tvm_onnx.OnnxOpConverter):
    """Rows of a table whose elements are stored in blocks along the last axis."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data, places, scales, zeros = inputs[:4]
        bits, block = int(attr.get("bits", 4)), int(attr.get("block_size", 128))
        if bits not in BITS or dtype_of(data) != "uint8":
            raise ValueError(f"data of {dtype_of(data)} and bits = {bits}; accepted: uint8 that holds 4 or 8 bits")
        if block < 16 or block & (block - 1):
            raise ValueError(f"block_size = {block}; accepted: a power of two from 16 on")
        for called, operand in (("data", data), ("scales", scales), ("zero points", zeros)):
            if operand is not None and known(operand) is None:
                raise ValueError(f"{called} are computed by the model; accepted: constants")
        stored, of_blocks = held(data), held(scales)
        if stored.ndim != 2 or attr.get("gather_axis", 0) != 0 or attr.get("quantize_axis", 1) not in (1, -1):
            raise ValueError(
                f"data of {stored.ndim} axes, gather_axis = {attr.get('gather_axis', 0)}, quantize_axis = "
                f"{attr.get('quantize_axis', 1)}; accepted: 2 axes, rows gathered, blocks along the last"
            )
        rows, width = len(stored), stored.shape[1] * 8 // bits
        blocks = -(-width // block)
        if of_blocks.shape != (rows, blocks):
            raise ValueError(f"scales of shape {of_blocks.shape}; accepted: {(rows, blocks)}")
        product = BlockedProduct(rows=1, n=rows, k=width, encoding=Encoding(format=f"int{bits}", block=block))
        zero = None if zeros is None else _zeros(held(zeros), product)
        wide = of_blocks.astype(np.float32)
        made = rows_of_blocks(bb, Blocks(stored, wide, zero), places, product.encoding, width)
        return as_type(bb, made, dtype_of(scales))


CONVERTERS: dict[str, Any] = {"GatherBlockQuantized": GatherBlockQuantized, "MatMulNBits": MatMulNBits}
"""Of the domain com.microsoft."""
