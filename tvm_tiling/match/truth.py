"""Arithmetic and comparisons of truth values as logic, the only form that TVM's code generator supports.

It treats `bool` as a floating-point type there: comparing, adding or reducing two of them by max ends in an LLVM error.
As in NumPy, a sum is "or", a product "and", and False is less than True.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm_ffi
from tvm import tirx

_LOGIC: dict[type, Callable[[tirx.Expr, tirx.Expr], tirx.Expr]] = {
    tirx.EQ: lambda a, b: tirx.Not(a ^ b),
    tirx.NE: lambda a, b: a ^ b,
    tirx.LT: lambda a, b: tirx.Not(a) & b,
    tirx.LE: lambda a, b: tirx.Not(a) | b,
    tirx.GT: lambda a, b: a & tirx.Not(b),
    tirx.GE: lambda a, b: a | tirx.Not(b),
    tirx.Add: lambda a, b: a | b,
    tirx.Mul: lambda a, b: a & b,
    tirx.Max: lambda a, b: a | b,
    tirx.Min: lambda a, b: a & b,
}
_KINDS = tuple(_LOGIC)


def with_logic(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """`func` without arithmetic or comparisons of truth values; unchanged if it has none."""
    body = tvm_ffi.structural_map(func.body, (_KINDS, _logical))
    return func if body.same_as(func.body) else func.with_body(body)


def _logical(expr: tirx.Expr) -> tirx.Expr:
    return _LOGIC[type(expr)](expr.a, expr.b) if str(expr.a.ty) == "bool" else expr
