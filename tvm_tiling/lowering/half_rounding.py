"""Conversions of other numbers to bfloat16 that round, also within an expression.

TVM computes bfloat16 in float32 and omits a conversion to bfloat16 whose result is converted back or computed with. For
arithmetic of bfloat16 that is more precise: within one kernel its results are rounded only when they are stored. But a
model may need the number that it rounds, for example to subtract it: the rounding error would be 0. So conversions of
values that do not depend on bfloat16 are written in words, which TVM leaves as they are.
"""

from __future__ import annotations

from typing import TypeAlias

import tvm_ffi
from tvm import tirx

from .half_bits import float32_of
from .vector_math import holds_bfloat16, holds_names, nearest_bits

Expr: TypeAlias = tirx.Expr


def rounding(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` in the form for code generation, with conversions of other numbers to bfloat16 rounded."""
    return tvm_ffi.structural_map(func, (tirx.Cast, _rounded))


def _rounded(cast: tirx.Cast) -> Expr:
    # The value is repeated, so that it must be small. Kernels keep the values of functions in registers.
    if str(cast.ty) != "bfloat16" or holds_bfloat16(cast.value) or holds_names(cast.value):
        return cast
    value = cast.value if str(cast.value.ty) == "float32" else tirx.Cast("float32", cast.value)
    return tirx.Cast("bfloat16", float32_of(nearest_bits(tirx.reinterpret("int32", value))))
