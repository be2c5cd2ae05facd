"""Operators of the domain com.microsoft, as emitted by onnxruntime's optimiser, as Relax compositions.

Some of the domain's names also exist in the standard with other operands (Attention, RotaryEmbedding): the domain has
its own converters. Each is `_impl_v1`, the only version. Operands and attributes are those of onnxruntime's
documentation (docs/ContribOperators.md of its repository).
"""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ..open_parts import sequence
from ..open_shapes import whole
from .attention import CONVERTERS as ATTENTION
from .blocked import CONVERTERS as BLOCKED
from .fused_attention import CONVERTERS as FUSED_ATTENTION
from .integer_products import CONTRIBUTED as INTEGERS
from .quantized import CONVERTERS as QUANTIZED
from .quantized_pairs import CONVERTERS as PAIRS
from .recurrent import CONTRIBUTED as RECURRENT
from .tensors import as_type, dtype_of, rank_of

DOMAIN = "com.microsoft"


class Gelu(tvm_onnx.OnnxOpConverter):
    """x (1 + erf(x / sqrt 2)) / 2."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return as_type(bb, bb.emit(op.nn.gelu(_wide(bb, inputs[0]))), dtype_of(inputs[0]))


class BiasGelu(tvm_onnx.OnnxOpConverter):
    """Gelu of x + bias."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        x = bb.emit(_wide(bb, inputs[0]) + _wide(bb, inputs[1]))
        return as_type(bb, bb.emit(op.nn.gelu(x)), dtype_of(inputs[0]))


class FastGelu(tvm_onnx.FastGelu):
    """Gelu of x, or of x + bias, by tanh."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        operands = [None if one is None else _wide(bb, one) for one in inputs]
        return as_type(bb, super()._impl_v1(bb, operands, attr, params), dtype_of(inputs[0]))


class QuickGelu(tvm_onnx.OnnxOpConverter):
    """x sigmoid(alpha x)."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        x = _wide(bb, inputs[0])
        scaled = bb.emit(x * relax.const(attr.get("alpha", 1.702), dtype_of(x)))
        return as_type(bb, bb.emit(x * bb.emit(op.sigmoid(scaled))), dtype_of(inputs[0]))


class FusedMatMul(tvm_onnx.OnnxOpConverter):
    """alpha A B, with the last two axes of either operand transposed if requested; before that, with transBatch, the
    first axis is moved after the other batch axes."""

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
        rank = rank_of(operand)
        if not wanted or rank < 3:
            return operand
        return bb.emit(op.permute_dims(operand, [*range(1, rank - 1), 0, rank - 1]))

    @staticmethod
    def _turned(bb: relax.BlockBuilder, operand: relax.Expr, wanted: int) -> relax.Expr:
        rank = rank_of(operand)
        if not wanted or rank < 2:
            return operand
        return bb.emit(op.permute_dims(operand, [*range(rank - 2), rank - 1, rank - 2]))


class SkipLayerNormalization(tvm_onnx.OnnxOpConverter):
    """Layer normalisation of input + skip + bias over the last axis; the sum is the fourth result. beta and bias are
    optional, and skip may have a batch of one."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data, skip, gamma, beta, bias = (inputs[place] for place in range(5))
        return relax.Tuple(_normalised(bb, data, skip, gamma, beta, bias, attr, centred=True))


class SkipSimplifiedLayerNormalization(tvm_onnx.OnnxOpConverter):
    """The same without mean and beta: RMS normalisation. The second result is 0."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data, skip, gamma, bias = (inputs[place] for place in range(4))
        return relax.Tuple(_normalised(bb, data, skip, gamma, None, bias, attr, centred=False))


class SimplifiedLayerNormalization(tvm_onnx.OnnxOpConverter):
    """RMS normalisation over the axes from `axis`, times a scale; the second result is the inverse of the root mean
    square."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data, scale = inputs[:2]
        rank, kept = rank_of(data), dtype_of(data)
        axes = list(range(attr.get("axis", -1) % rank, rank))
        x = _wide(bb, data)
        square = bb.emit(op.mean(bb.emit(x * x), axes, keepdims=True))
        inverse = bb.emit(op.rsqrt(square + relax.const(attr.get("epsilon", 1e-5), dtype_of(x))))
        result = as_type(bb, bb.emit(bb.emit(x * inverse) * _wide(bb, scale)), kept)
        return relax.Tuple([result, inverse]) if attr["tvm_custom"]["num_outputs"] > 1 else result


class EmbedLayerNormalization(tvm_onnx.OnnxOpConverter):
    """The normalised sum of word, position and segment embeddings; the number of unmasked words of each batch; the
    sum."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        words, kinds, word_table, place_table, kind_table, gamma, beta = list(inputs)[:7]
        mask, places = inputs[7], inputs[8]
        batch, count = (whole(extent) for extent in words.ty.shape)
        rows = places
        if rows is None:
            rows = bb.emit(op.expand_dims(bb.emit(sequence(bb, 0, 1, count, "int64")), 0))
        words, places = (bb.emit(op.take(*one, axis=0)) for one in ((word_table, words), (place_table, rows)))
        third = None if kinds is None else bb.emit(op.take(kind_table, kinds, axis=0))
        result, _, _, total = _normalised(bb, words, places, gamma, beta, third, attr, centred=True)
        counted = bb.emit(op.broadcast_to(relax.const(0, "int32"), relax.ShapeExpr([batch])))
        if mask is not None:
            counted = bb.emit(op.sum(bb.emit(op.astype(op.equal(mask, relax.const(1, "int32")), "int32")), axis=1))
        return relax.Tuple([result, counted, total])


def _wide(bb: relax.BlockBuilder, value: relax.Expr) -> relax.Expr:
    """Convert 16-bit floats to float32 for computation, so that they are rounded only once, at the end."""
    return bb.emit(op.astype(value, "float32")) if dtype_of(value) in ("float16", "bfloat16") else value


def _normalised(
    bb: relax.BlockBuilder,
    data: relax.Expr,
    skip: relax.Expr,
    gamma: relax.Expr,
    beta: relax.Expr | None,
    bias: relax.Expr | None,
    attr: dict[str, Any],
    *,
    centred: bool,
) -> list[relax.Expr]:
    """Return the sum data + skip + bias divided by its deviation along the last axis, after subtracting the mean if
    `centred`, times gamma plus beta; mean (0 unless centred) and inverse deviation in float32; the sum."""
    kept = dtype_of(data)
    total = bb.emit(_wide(bb, data) + _wide(bb, skip))
    if bias is not None:
        total = bb.emit(total + _wide(bb, bias))
    mean = bb.emit(op.mean(total, -1, keepdims=True))
    away = bb.emit(total - mean) if centred else total
    square = bb.emit(op.mean(bb.emit(away * away), -1, keepdims=True))
    inverse = bb.emit(op.rsqrt(square + relax.const(attr.get("epsilon", 1e-12), dtype_of(total))))
    result = bb.emit(bb.emit(away * inverse) * _wide(bb, gamma))
    if beta is not None:
        result = bb.emit(result + _wide(bb, beta))
    if not centred:
        mean = bb.emit(op.zeros_like(mean))
    return [as_type(bb, result, kept), mean, inverse, as_type(bb, total, kept)]


class QuantizeLinear(tvm_onnx.OnnxOpConverter):
    """The same as version 21 of the standard operator, which has the same types."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return QUANTIZED["QuantizeLinear"].get_converter(21)(bb, inputs, attr, params)


class DequantizeLinear(tvm_onnx.OnnxOpConverter):
    """The same as version 21 of the standard operator, which has the same types."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return QUANTIZED["DequantizeLinear"].get_converter(21)(bb, inputs, attr, params)


_OPERATORS: dict[str, Any] = {
    **INTEGERS,
    **PAIRS,
    **RECURRENT,
    **BLOCKED,
    **ATTENTION,
    **FUSED_ATTENTION,
    "BiasGelu": BiasGelu,
    "DequantizeLinear": DequantizeLinear,
    "EmbedLayerNormalization": EmbedLayerNormalization,
    "FastGelu": FastGelu,
    "FusedMatMul": FusedMatMul,
    "Gelu": Gelu,
    "QuantizeLinear": QuantizeLinear,
    "QuickGelu": QuickGelu,
    "SimplifiedLayerNormalization": SimplifiedLayerNormalization,
    "SkipLayerNormalization": SkipLayerNormalization,
    "SkipSimplifiedLayerNormalization": SkipSimplifiedLayerNormalization,
}
CONVERTERS: dict[str, Any] = {f"{DOMAIN}.{name}": converter for name, converter in _OPERATORS.items()}
