"""Operators of the domain com.microsoft, which onnxruntime's optimiser writes, as Relax compositions.

Some of the domain's names are in the standard too, with other operands (Attention, RotaryEmbedding): it has its own
converters. Each is `_impl_v1`, the domain's only version. Operands and attributes as onnxruntime documents them
(docs/ContribOperators.md of its repository).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from .integer_products import CONTRIBUTED as INTEGERS
from .quantized import CONVERTERS as QUANTIZED
from .quantized_pairs import CONVERTERS as PAIRS
from .tensors import constant, dtype_of, shape_of

DOMAIN = "com.microsoft"


class Gelu(tvm_onnx.OnnxOpConverter):
    """x (1 + erf(x / sqrt 2)) / 2."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return op.nn.gelu(inputs[0])


class QuickGelu(tvm_onnx.OnnxOpConverter):
    """x sigmoid(alpha x)."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        scaled = bb.emit(inputs[0] * relax.const(attr.get("alpha", 1.702), dtype_of(inputs[0])))
        return inputs[0] * bb.emit(op.sigmoid(scaled))


class FusedMatMul(tvm_onnx.OnnxOpConverter):
    """alpha A B, of either operand the last two axes exchanged where it says so; before that, where transBatch says so,
    the first axis moved behind the other outer ones."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        turned = [
            cls._turned(
                bb, cls._moved(bb, inputs[place], attr.get(f"transBatch{name}", 0)), attr.get(f"trans{name}", 0)
            )
            for place, name in enumerate("AB")
        ]
        product = bb.emit(op.matmul(*turned))
        alpha = attr.get("alpha", 1.0)
        return product if alpha == 1 else product * relax.const(alpha, dtype_of(product))

    @staticmethod
    def _moved(bb: relax.BlockBuilder, operand: relax.Expr, wanted: int) -> relax.Expr:
        rank = len(shape_of(operand))
        if not wanted or rank < 3:
            return operand
        return bb.emit(op.permute_dims(operand, [*range(1, rank - 1), 0, rank - 1]))

    @staticmethod
    def _turned(bb: relax.BlockBuilder, operand: relax.Expr, wanted: int) -> relax.Expr:
        rank = len(shape_of(operand))
        if not wanted or rank < 2:
            return operand
        return bb.emit(op.permute_dims(operand, [*range(rank - 2), rank - 1, rank - 2]))


class SkipLayerNormalization(tvm_onnx.OnnxOpConverter):
    """Layer normalisation of input + skip + bias over the last axis, that sum being the fourth result; beta and bias
    may be left out, skip may be of one batch."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        total = _sum(bb, inputs[0], inputs[1], inputs[4])
        normal, mean, inverse = _normalised(bb, total, attr, centred=True)
        result = bb.emit(normal * inputs[2])
        return relax.Tuple([result if inputs[3] is None else bb.emit(result + inputs[3]), mean, inverse, total])


class SkipSimplifiedLayerNormalization(tvm_onnx.OnnxOpConverter):
    """The same without mean and beta: division by the root of the mean square."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        total = _sum(bb, inputs[0], inputs[1], inputs[3])
        normal, mean, inverse = _normalised(bb, total, attr, centred=False)
        return relax.Tuple([bb.emit(normal * inputs[2]), mean, inverse, total])


class EmbedLayerNormalization(tvm_onnx.OnnxOpConverter):
    """Rows of tables for words, places and segments, summed and normalised; the number of unmasked words of each batch;
    the sum."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        words, kinds, word_table, place_table, kind_table, gamma, beta = list(inputs)[:7]
        mask, places = inputs[7], inputs[8]
        batch, count = shape_of(words)
        rows = places if places is not None else constant(np.arange(count).reshape(1, count))
        total = bb.emit(op.take(word_table, words, axis=0))
        total = bb.emit(total + bb.emit(op.take(place_table, rows, axis=0)))
        if kinds is not None:
            total = bb.emit(total + bb.emit(op.take(kind_table, kinds, axis=0)))
        normal, _, _ = _normalised(bb, total, attr, centred=True)
        result = bb.emit(bb.emit(normal * gamma) + beta)
        counted = relax.const(np.zeros(batch), "int32")
        if mask is not None:
            counted = bb.emit(op.sum(bb.emit(op.astype(op.equal(mask, relax.const(1, "int32")), "int32")), axis=1))
        return relax.Tuple([result, counted, total])


def _sum(bb: relax.BlockBuilder, data: relax.Expr, skip: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
    total = bb.emit(data + skip)
    return total if bias is None else bb.emit(total + bias)


def _normalised(
    bb: relax.BlockBuilder, data: relax.Expr, attr: dict[str, Any], *, centred: bool
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """The data over their deviation along the last axis, `centred` first; the mean and the inverse deviation, of
    float32. Halves are computed in float32."""
    kept = dtype_of(data)
    wide = bb.emit(op.astype(data, "float32")) if kept in ("float16", "bfloat16") else data
    mean = bb.emit(op.mean(wide, -1, keepdims=True))
    away = bb.emit(wide - mean) if centred else wide
    square = bb.emit(op.mean(bb.emit(away * away), -1, keepdims=True))
    inverse = bb.emit(op.rsqrt(square + relax.const(attr.get("epsilon", 1e-12), dtype_of(wide))))
    normal = bb.emit(away * inverse)
    return (normal if dtype_of(normal) == kept else bb.emit(op.astype(normal, kept))), mean, inverse


class QuantizeLinear(tvm_onnx.OnnxOpConverter):
    """As the standard's of version 21, which has the same types."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return QUANTIZED["QuantizeLinear"].get_converter(21)(bb, inputs, attr, params)


class DequantizeLinear(tvm_onnx.OnnxOpConverter):
    """As the standard's of version 21, which has the same types."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return QUANTIZED["DequantizeLinear"].get_converter(21)(bb, inputs, attr, params)


_OPERATORS: dict[str, Any] = {
    **INTEGERS,
    **PAIRS,
    "BiasGelu": tvm_onnx.BiasGelu,
    "DequantizeLinear": DequantizeLinear,
    "EmbedLayerNormalization": EmbedLayerNormalization,
    "FastGelu": tvm_onnx.FastGelu,
    "FusedMatMul": FusedMatMul,
    "Gelu": Gelu,
    "QuantizeLinear": QuantizeLinear,
    "QuickGelu": QuickGelu,
    "SkipLayerNormalization": SkipLayerNormalization,
    "SkipSimplifiedLayerNormalization": SkipSimplifiedLayerNormalization,
}
CONVERTERS: dict[str, Any] = {f"{DOMAIN}.{name}": converter for name, converter in _OPERATORS.items()}
