"""The exponentials of a softmax, with the smallest replaced by zero.

Relative to the largest weight of a row, which is 1, e^-80 does not change a float32 sum. Below e^-87 numbers are
subnormal, and each arithmetic instruction on one takes about 150 cycles on Intel processors: masks that add -100 made a
windowed attention 200x slower.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

LEAST = -80.0  # a quotient by a sum of up to a thousand is still not subnormal


def softmax_weight(difference: tirx.Expr) -> tirx.Expr:
    """Return e to the power of a score minus the largest of its row, zero below LEAST (float32)."""
    least, zero = (tirx.const(number, "float32") for number in (LEAST, 0.0))
    below = difference < least  # false for NaN
    return tirx.Select(below, zero, tirx.exp(tirx.Select(below, least, difference)))


def with_softmax_weights(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a softmax along an axis, or its logarithm, with such exponentials."""

    def replaced(call: Call) -> tirx.Expr:
        is_exp = getattr(call.op, "name", "") == "tirx.exp" and str(call.ty) == "float32"
        return softmax_weight(call.args[0]) if is_exp else call

    return tvm_ffi.structural_map(func, (Call, replaced))
