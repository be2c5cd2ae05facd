"""Numbers of 16 bits as words: TVM computes with bfloat16 in float32, and makes no vectors of its own rounding."""

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
"""The type of a kernel's own buffers of bfloat16 that are read as words: TVM makes floats of those of bfloat16."""


_ROUNDED = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div)
_CHOSEN = (tirx.Min, tirx.Max)
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def bits_of(value: Expr, word: str) -> Expr:
    """The bits of a bfloat16 `value` in an integer of type `word`; UnsupportedOperator where it is none of memory, no
    choice and no plain arithmetic.

    TVM computes all of this in float32, and then takes the bits of that. So bits are chosen in the place of numbers
    here, and numbers are computed in float32 from bits of memory and rounded in words.
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
        f"an operand of type bfloat16 is computed by {name or type(value).__name__}; expected elements of a tensor, "
        "chosen, converted, added, subtracted, multiplied or divided, or another type"
    )


def _number(value: Expr) -> Expr:
    """A bfloat16 `value` as float32."""
    if isinstance(value, tirx.FloatImm):
        return tirx.const(float(np.array(value.value, ml_dtypes.bfloat16)), "float32")
    return float32_of(bits_of(value, BITS))


def float32_of(bits: Expr) -> Expr:
    """The float32 of the bits of a bfloat16."""
    return tirx.reinterpret("float32", tirx.shift_left(tirx.Cast("int32", bits), tirx.const(16, "int32")))


def _widened(expr: Expr) -> Expr:
    """An `expr` of another type with float32 for each bfloat16 that it is computed from."""

    def converted(cast: tirx.Cast) -> Expr:
        if str(cast.value.ty) != "bfloat16":
            return cast
        number = _number(cast.value)
        return number if str(cast.ty) == "float32" else tirx.Cast(str(cast.ty), number)

    def compared(order: Expr) -> Expr:
        return type(order)(_number(order.a), _number(order.b)) if str(order.a.ty) == "bfloat16" else order

    return tvm_ffi.structural_map(expr, [(tirx.Cast, converted), (_COMPARISONS, compared)])


def kept_as(value: Expr, dtype: str) -> Expr:
    """A number of 16 bits as a kernel's own buffer of `dtype` keeps it, BITS of a bfloat16 or the same in float32;
    other values as they are."""
    kind = str(value.ty)
    if kind == dtype or kind not in HALVES:
        return value
    if kind == "float16":
        return tirx.Cast(dtype, value)
    bits = bits_of(value, BITS)
    if dtype == BITS:
        return bits
    return float32_of(bits)
