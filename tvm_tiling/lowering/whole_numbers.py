"""Floats that are rounded, bounded and made integers, as the write-back of 8-bit tensors has them.

Behind 1.5 * 2^23 no bits of a fraction are left: the sum of a float32 and that is the nearest whole number, halves to
even, and its lowest bits are the number as an integer. One addition does what three instructions do otherwise (round,
and convert). Bounds are whole numbers, so that what is bounded first is rounded to the same; they stand between a
product and the addition, which LLVM would make one multiply-add of, that rounds once where two operations round twice.
"""

from __future__ import annotations

from typing import TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

Expr: TypeAlias = tirx.Expr

ROUNDING = 1.5 * 2.0**23
ROUNDING_BITS = 0x4B400000
_MOST = 2.0**22  # of what the sum is exact for


def with_whole_numbers(expr: Expr) -> Expr:
    """`expr` with integers of rounded and bounded float32 numbers made by an addition."""
    return tvm_ffi.structural_map(expr, (tirx.Cast, _whole_number))


def _whole_number(cast: tirx.Cast) -> Expr:
    high = cast.value
    if str(cast.ty) != "int32" or str(high.ty) != "float32" or not isinstance(high, tirx.Max | tirx.Min):
        return cast
    low = next((side for side in (high.a, high.b) if isinstance(side, tirx.Max | tirx.Min)), None)
    if low is None or type(low) is type(high):
        return cast
    rounded = next((side for side in (low.a, low.b) if _is_rounding(side)), None)
    bounds = [side for pair in ((high.a, high.b), (low.a, low.b)) for side in pair if isinstance(side, tirx.FloatImm)]
    if rounded is None or len(bounds) != 2 or any(abs(b.value) >= _MOST or b.value % 1 for b in bounds):
        return cast

    def of(bound: tirx.Max | tirx.Min, inner: Expr) -> Expr:
        """The same bound of another value; the order of operands tells what becomes of NaN."""
        return type(bound)(bound.a, inner) if isinstance(bound.a, tirx.FloatImm) else type(bound)(inner, bound.b)

    total = of(high, of(low, rounded.args[0])) + tirx.const(ROUNDING, "float32")
    return tirx.reinterpret("int32", total) - tirx.const(ROUNDING_BITS, "int32")


def _is_rounding(expr: Expr) -> bool:
    return isinstance(expr, Call) and getattr(expr.op, "name", "") == "tirx.nearbyint"
