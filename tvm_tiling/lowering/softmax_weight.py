"""The exponentials of a softmax, of which the smallest are zero.

Beside the largest of a row, which is 1, e^-80 changes no sum of float32. Below e^-87 numbers are subnormal, and Intel's
processors take some 150 cycles for each arithmetic instruction on one: masks that add -100 made an attention over
windows 200 times as slow.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

LEAST = -80.0  # room for a division by a sum of a thousand before results are subnormal


def softmax_weight(difference: tirx.Expr) -> tirx.Expr:
    """e to the power of a score less the largest of its row, zero where that is below LEAST. float32."""
    least, zero = (tirx.const(number, "float32") for number in (LEAST, 0.0))
    below = difference < least  # not where it is NaN
    return tirx.Select(below, zero, tirx.exp(tirx.Select(below, least, difference)))


def with_softmax_weights(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A softmax along an axis, or its logarithm, with such exponentials."""

    def replaced(call: Call) -> tirx.Expr:
        is_exp = getattr(call.op, "name", "") == "tirx.exp" and str(call.ty) == "float32"
        return softmax_weight(call.args[0]) if is_exp else call

    return tvm_ffi.structural_map(func, (Call, replaced))
