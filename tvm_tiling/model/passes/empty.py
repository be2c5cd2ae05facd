"""Operators without elements: TVM divides by the number of elements, or by an extent, in kernels that have none.

A result without elements is a tensor of its shape, whatever computes it; a mean of no elements is NaN.
"""

from __future__ import annotations

import math

import tvm
from tvm import relax

from .dataflow import Expr, Rewriter, is_op, rewrite, shape_of


def without_empty(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` without operators whose result has no elements, and without means of no elements."""
    main = mod["main"]
    blocks = main.body.blocks if isinstance(main.body, relax.SeqExpr) else []
    values = [*main.params, *(binding.var for block in blocks for binding in block.bindings)]
    return rewrite(mod, _call) if any(0 in (shape_of(value) or ()) for value in values) else mod


def _call(rewriter: Rewriter, variable: relax.Var, value: Expr) -> Expr | None:
    shape = shape_of(value)
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op) or shape is None:
        return None
    dtype = str(value.ty.dtype)
    if 0 in shape:
        return None if is_op(value, "zeros") else relax.op.zeros(relax.ShapeExpr(shape), dtype)
    if is_op(value, "mean", "variance", "std") and 0 in (shape_of(value.args[0]) or ()):
        return relax.op.full(relax.ShapeExpr(shape), relax.const(math.nan, dtype), dtype)
    return None
