"""16-bit floats as words: TVM computes bfloat16 in float32, and does not vectorise its own rounding."""

from __future__ import annotations

from typing import TypeAlias

import ml_dtypes
import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

from ..errors import UnsupportedOperator
from ..operand_types import HALVES
from .vector_math import rounded_bits

Expr: TypeAlias = tirx.Expr

BITS = "uint16"
"""Type of a kernel's own bfloat16 buffers that are read as words; TVM would convert bfloat16 buffers to float."""


_ROUNDED = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div)
_CHOSEN = (tirx.Min, tirx.Max)
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def bits_of(value: Expr, word: str) -> Expr:
    """Return the bits of a bfloat16 `value` in an integer of type `word`. Raises UnsupportedOperator for anything but
    memory, choices and plain arithmetic.

    TVM would compute all of this in float32 and take the bits of the result. Here, choices select between bits, and
    arithmetic is computed in float32 from bits of memory and rounded as words.
    """
    name = getattr(value.op, "name", "") if isinstance(value, Call) else ""
    if isinstance(value, TensorLoad):
        return tirx.reinterpret(word, value)
    if isinstance(value, tirx.FloatImm):
        return tirx.const(int(np.array(value.value, ml_dtypes.bfloat16).view(word)), word)
    if isinstance(value, tirx.Select):
        chosen, other = bits_of(value.true_value, word), bits_of(value.false_value, word)
        return tirx.Select(_widened(value.condition), chosen, other)
    if name == "prim.if_then_else":
        condition, chosen, other = value.args
        return tirx.if_then_else(_widened(condition), bits_of(chosen, word), bits_of(other, word))
    if name == "tirx.reinterpret":
        return tirx.reinterpret(word, value.args[0])
    if isinstance(value, tirx.Cast):
        return tirx.Cast(word, rounded_bits(tirx.Cast("float32", _widened(value.value))))
    if isinstance(value, _ROUNDED + _CHOSEN):
        return tirx.Cast(word, rounded_bits(type(value)(_number(value.a), _number(value.b))))
    raise UnsupportedOperator(
        f"an operand of type bfloat16 is computed by {name or type(value).__name__}; expected tensor elements "
        "that are selected, converted, added, subtracted, multiplied or divided, or another type"
    )


def _number(value: Expr) -> Expr:
    """Return a bfloat16 `value` as float32."""
    if isinstance(value, tirx.FloatImm):
        return tirx.const(float(np.array(value.value, ml_dtypes.bfloat16)), "float32")
    return float32_of(bits_of(value, BITS))


def float32_of(bits: Expr) -> Expr:
    """Return the float32 value of the bits of a bfloat16."""
    return tirx.reinterpret("float32", tirx.shift_left(tirx.Cast("int32", bits), tirx.const(16, "int32")))


def _widened(expr: Expr) -> Expr:
    """Return `expr`, of another type, with every bfloat16 operand replaced by its float32 value."""

    def converted(cast: tirx.Cast) -> Expr:
        if str(cast.value.ty) != "bfloat16":
            return cast
        number = _number(cast.value)
        return number if str(cast.ty) == "float32" else tirx.Cast(str(cast.ty), number)

    def compared(order: Expr) -> Expr:
        return type(order)(_number(order.a), _number(order.b)) if str(order.a.ty) == "bfloat16" else order

    return tvm_ffi.structural_map(expr, [(tirx.Cast, converted), (_COMPARISONS, compared)])


def kept_as(value: Expr, dtype: str) -> Expr:
    """Return a 16-bit float in the form of a kernel's own buffer of `dtype`: the BITS of a bfloat16, or float32. Other
    values are unchanged."""
    kind = str(value.ty)
    if kind == dtype or kind not in HALVES:
        return value
    if kind == "float16":
        return tirx.Cast(dtype, value)
    bits = bits_of(value, BITS)
    if dtype == BITS:
        return bits
    return float32_of(bits)
