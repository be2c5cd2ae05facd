"""Operators of the domain com.microsoft with weights in 4-bit or 8-bit blocks, as Relax.

Operands and attributes are those of onnxruntime's documentation (docs/ContribOperators.md of its repository).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ...decide.gemm.blocked import BlockedProduct
from ...figures import quantity
from ...operand_types import Encoding
from ..blocked_weights import product_in_blocks, rows_of_blocks, stored
from .tensors import as_type, dtype_of, held, known

BITS = (4, 8)
_ROWS = {1: "float32", 4: "int8"}
"""Row types by accuracy_level, the minimum that rows may be rounded to: 0 is unspecified, 2 and 3 are 16-bit types."""


def _require_block(block: int) -> None:
    if block < 16 or block & (block - 1):
        raise ValueError(f"block_size = {block}; expected a power of two of at least 16")


def _require_constants(*operands: tuple[str, relax.Expr | None]) -> None:
    for called, operand in operands:
        if operand is not None and known(operand) is None:
            raise ValueError(f"{called} are computed by the model; expected constants")


def _encoding(bits: int, block: int, scales: relax.Expr, zeros: relax.Expr | None) -> Encoding:
    """The encoding of the weights."""
    return Encoding(format=f"int{bits}", block=block, scales=_kept_in(scales), zero_points=zeros is not None)


def _weights(
    bb: Any, values: relax.Expr, scales: relax.Expr, zeros: relax.Expr | None, product: BlockedProduct
) -> relax.Expr:
    """Return the weights of a matrix multiplication that constants hold."""
    kind = product.encoding.scales
    parts = [values, scales if dtype_of(scales) == kind else relax.const(held(scales).astype(kind))]
    if zeros is not None:
        parts.append(_zeros(zeros, product))
    return stored(bb, "bits", parts, product)


def _kept_in(scales: relax.Expr) -> str:
    """Return the type to store scales in. Kernels do not read bfloat16; it is stored as float16 if that is exact."""
    if dtype_of(scales) != "bfloat16":
        return "float16" if dtype_of(scales) == "float16" else "float32"
    wide = held(scales).astype(np.float32)
    with np.errstate(over="ignore"):
        return "float16" if (wide.astype(np.float16).astype(np.float32) == wide).all() else "float32"


def _zeros(zeros: relax.Expr, product: BlockedProduct) -> relax.Expr:
    """Return zero points as bytes packed like the weights; floats, one per block, are converted to int16."""
    given = held(zeros)
    if given.dtype == np.uint8:
        row = -(-product.blocks * product.bits // 8)
        if given.size != product.n * row:
            raise ValueError(f"zero points have {given.size} bytes; expected {product.n * row}")
        return zeros
    floats = given.astype(np.float32)
    if floats.size != product.n * product.blocks:
        raise ValueError(f"{floats.size} zero points; expected {product.n * product.blocks}")
    wholes = np.rint(floats)
    if not ((floats == wholes) & (wholes >= 0) & (wholes < 1 << product.bits)).all():
        raise ValueError(
            f"zero points are not whole numbers of {product.bits} bits; expected whole numbers in that range"
        )
    return relax.const(wholes.astype(np.int16))


def _shape(value: relax.Expr) -> list[int]:
    return [int(extent) for extent in value.ty.shape]


def _count(value: relax.Expr) -> int:
    return math.prod(_shape(value))


class MatMulNBits(tvm_onnx.OnnxOpConverter):
    """Matrix multiplication A w', with weights of N columns in blocks along K, and a bias. Rows are quantised if
    accuracy_level allows it."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        a, values, scales, zeros, order, bias = inputs[:6]
        n, k, block, bits = (int(attr[name]) if name in attr else None for name in ("N", "K", "block_size", "bits"))
        bits = 4 if bits is None else bits
        if n is None or k is None or block is None:
            raise ValueError("N, K or block_size is missing; expected all three")
        if bits not in BITS:
            raise ValueError(f"bits = {bits}; expected {', '.join(map(str, BITS))}")
        _require_block(block)
        if order is not None:
            raise ValueError("g_idx, a permutation of K, is given; expected weights without it")
        _require_constants(("weights", values), ("scales", scales), ("zero points", zeros))
        if int(a.ty.shape[-1]) != k:
            raise ValueError(f"A has {quantity(int(a.ty.shape[-1]), 'column')}, but K = {k}; expected the same number")
        product = BlockedProduct(rows=1, n=n, k=k, encoding=_encoding(bits, block, scales, zeros))
        if _count(values) != n * product.blocks * product.value_bytes or dtype_of(values) != "uint8":
            raise ValueError(
                f"weights are {dtype_of(values)}{_shape(values)}; expected uint8[{n}, {product.blocks}, "
                f"{product.value_bytes}]"
            )
        count = _count(scales)
        if count != n * product.blocks:
            raise ValueError(f"{quantity(count, 'scale')}; expected {n * product.blocks}, one per block of each column")
        x = as_type(bb, a, "float32")
        activations = _ROWS.get(attr.get("accuracy_level", 0), "int16")
        y = product_in_blocks(bb, x, _weights(bb, values, scales, zeros, product), product, activations)
        if bias is not None:
            y = bb.emit(op.add(y, as_type(bb, bias, "float32")))
        return as_type(bb, y, dtype_of(a))


class GatherBlockQuantized(tvm_onnx.OnnxOpConverter):
    """Rows of a table whose elements are stored in blocks along the last axis."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data, places, scales, zeros = inputs[:4]
        bits, block = int(attr.get("bits", 4)), int(attr.get("block_size", 128))
        if bits not in BITS or dtype_of(data) != "uint8":
            raise ValueError(f"data is {dtype_of(data)} with bits = {bits}; expected uint8 with 4 or 8 bits")
        _require_block(block)
        _require_constants(("data", data), ("scales", scales), ("zero points", zeros))
        shape = _shape(data)
        if len(shape) != 2 or attr.get("gather_axis", 0) != 0 or attr.get("quantize_axis", 1) not in (1, -1):
            raise ValueError(
                f"data has {len(shape)} axes, gather_axis = {attr.get('gather_axis', 0)}, quantize_axis = "
                f"{attr.get('quantize_axis', 1)}; expected 2 axes, rows gathered, blocks along the last"
            )
        rows, width = shape[0], shape[1] * 8 // bits
        blocks = -(-width // block)
        if _shape(scales) != [rows, blocks]:
            raise ValueError(f"scales have shape {tuple(_shape(scales))}; expected {(rows, blocks)}")
        product = BlockedProduct(rows=1, n=rows, k=width, encoding=_encoding(bits, block, scales, zeros))
        weights = _weights(bb, data, scales, zeros, product)
        made = rows_of_blocks(bb, weights, places, product, "take", wraps=True)
        return as_type(bb, made, dtype_of(scales))


CONVERTERS: dict[str, Any] = {"GatherBlockQuantized": GatherBlockQuantized, "MatMulNBits": MatMulNBits}
"""Converters of the domain com.microsoft."""
