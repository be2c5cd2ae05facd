"""NaN-propagating maximum and minimum of two floats, as an expression that is created and recognised here.

TIR's max(a, b) is a if a > b, else b: it drops a NaN in a and keeps one in b. No NaN is at least minus infinity.
"""

from __future__ import annotations

import math

import tvm_ffi
from tvm import tirx


def extreme(kind: type, first: tirx.Expr, second: tirx.Expr) -> tirx.Expr:
    """`kind` (tirx.Max or tirx.Min) of two expressions of one type; for floats, NaN if either is NaN."""
    dtype = str(first.ty)
    if "float" not in dtype:
        return kind(first, second)
    for constant, other in ((first, second), (second, first)):
        if isinstance(constant, tirx.FloatImm) and not math.isnan(constant.value):
            return kind(constant, other)
    lanes = dtype.partition("x")
    least: tirx.Expr = tirx.const(-math.inf, lanes[0])
    if lanes[2]:
        least = tirx.Broadcast(least, int(lanes[2]))
    return tirx.Select(tirx.LE(least, first), kind(first, second), first)


def plain(expr: tirx.Expr) -> tirx.Max | tirx.Min | None:
    """The TIR max or min within an expression made by extreme() from two variable operands; None for anything else."""
    if not isinstance(expr, tirx.Select) or not isinstance(expr.true_value, tirx.Max | tirx.Min):
        return None
    condition, inner = expr.condition, expr.true_value
    # TVM's analyzer writes "a is at least b" as b <= a.
    if not isinstance(condition, tirx.LE) or not isinstance(condition.a, tirx.FloatImm):
        return None
    same = all(tvm_ffi.structural_equal(inner.a, other) for other in (condition.b, expr.false_value))
    return inner if same and condition.a.value == -math.inf else None
