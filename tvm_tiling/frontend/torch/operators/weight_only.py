"""Matrix multiplications with low-bit weights in the operators of torchao and torch.export; see few_bits.py for their
representation."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax
from tvm.relax import op

from ..few_bits import FewBits, product_of_few_bits, unpacked_int4
from ..translation import Translation, Unsupported, Value, converter, shape_of
from ..types import NAMES


@converter("torchao::dequantize_affine.default")
def _dequantised(t: Translation, input: Value, **others: Any) -> Value:
    """Constants remain quantised or are evaluated during translation; for other tensors PyTorch's own decomposition is
    translated."""
    raise Unsupported("dequantisation of values computed at run time is not supported; expected constants")


@converter("_weight_int4pack_mm_for_cpu.default")
def _four_bits(t: Translation, self: relax.Expr, mat2: Value, qGroupSize: int, qScaleAndZeros: Value) -> Value:
    """self w', w = (q - 8) scale + zero for groups of q along k; one (scale, zero) pair per group and column."""
    packed, pairs = _known(t, mat2, "weights"), _known(t, qScaleAndZeros, "scales and zeros")
    n, k = t.shape[-1], shape_of(self)[-1]
    values = unpacked_int4(packed, n, k)
    if values is None or pairs.shape[0] * qGroupSize != k:
        raise Unsupported(f"weights of shape {tuple(packed.shape)} do not match {n} by {k} and groups of {qGroupSize}")
    scales, zeros = (part.float().t().contiguous() for part in pairs.unbind(-1))
    centred = (values.to(torch.int8) - 8, None) if not zeros.any() else (values, 8 * scales - zeros)
    return _product(t, self, FewBits(centred[0], scales, centred[1], torch.float32))


@converter("_weight_int8pack_mm.default")
def _eight_bits(t: Translation, self: relax.Expr, mat2: Value, scales: Value) -> Value:
    """self w' times one scale per column."""
    values, each = _known(t, mat2, "weights"), _known(t, scales, "scales")
    return _product(t, self, FewBits(values, each.float()[:, None], None, torch.float32))


def _known(t: Translation, value: Value, called: str) -> torch.Tensor:
    held = t.content(value)
    if held is None:
        raise Unsupported(f"{called} computed at run time are not supported; expected constants")
    return held


def _product(t: Translation, x: relax.Expr, weights: FewBits) -> relax.Expr:
    made = product_of_few_bits(t, x, weights)
    if made is None:
        columns = t.constant(weights.floats().t().contiguous())
        made = t.emit(op.matmul(t.cast(x, "float32"), columns))
    return t.cast(made, NAMES[t.result.dtype])
