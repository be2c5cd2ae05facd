"""Arithmetic and comparisons of truth values as logic, which is all that TVM's code generator makes of them.

It takes `bool` for a type of floats there: two of them compared, added or reduced by max end in an error of LLVM's. As
in NumPy a sum is "or", a product "and", and False is less than True.
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
    """`func` without arithmetic or comparisons of truth values; itself where it has none."""
    body = tvm_ffi.structural_map(func.body, (_KINDS, _logical))
    return func if body.same_as(func.body) else func.with_body(body)


def _logical(expr: tirx.Expr) -> tirx.Expr:
    return _LOGIC[type(expr)](expr.a, expr.b) if str(expr.a.ty) == "bool" else expr
