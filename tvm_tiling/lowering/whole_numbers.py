"""Floats that are rounded, bounded and converted to integers, as in the write-back of 8-bit tensors.

Above 1.5 * 2^23 a float32 has no fraction bits: adding this constant rounds to the nearest integer, ties to even, and
the lowest bits of the sum are that integer. One addition replaces three instructions (round, convert). Bounds are
integers, so bounding first rounds to the same value. The bounds are between a multiplication and the addition, which
LLVM would otherwise fuse into one multiply-add that rounds once where two operations round twice.
"""

from __future__ import annotations

from typing import TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

Expr: TypeAlias = tirx.Expr

ROUNDING = 1.5 * 2.0**23
ROUNDING_BITS = 0x4B400000
_MOST = 2.0**22  # largest magnitude for which the sum is exact


def with_whole_numbers(expr: Expr) -> Expr:
    """Return `expr` with integers of rounded and bounded float32 numbers computed by an addition."""
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
        """Return the same bound of another value; the order of operands determines the result for NaN."""
        return type(bound)(bound.a, inner) if isinstance(bound.a, tirx.FloatImm) else type(bound)(inner, bound.b)

    total = of(high, of(low, rounded.args[0])) + tirx.const(ROUNDING, "float32")
    return tirx.reinterpret("int32", total) - tirx.const(ROUNDING_BITS, "int32")


def _is_rounding(expr: Expr) -> bool:
    return isinstance(expr, Call) and getattr(expr.op, "name", "") == "tirx.nearbyint"
