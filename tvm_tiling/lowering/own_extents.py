"""Replaces extents that derive from the model's sizes by variables of the function.

A layer deep inside a model has images of (h - 1) // 16 + 1 rows, and h itself is not needed. With a variable for such
an extent, which the function takes from the shape of a tensor like any other, addresses contain no quotients to
simplify, and layers that are otherwise equal share one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import tvm_ffi
from tvm import sym, tirx
from tvm.tirx.buffer import BufferType

from .extents import sizes_in
from .open_index import is_same
from .samples import is_open

Expr: TypeAlias = tirx.Expr


def with_own_extents(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, Mapping[tirx.Var, Expr]]:
    """Return the function with a variable for each quotient in an extent of its parameters, and the extents that these
    variables replace. Returns the function unchanged if it needs the underlying sizes."""
    shapes = [p.shape for p in func.params if isinstance(p.ty, BufferType)]
    extents = [extent for shape in shapes for extent in shape if is_open(extent) and not isinstance(extent, tirx.Var)]
    found: dict[tirx.Var, tuple[Expr, int, Expr]] = {}  # quotient, added constant, both together
    for extent in extents:
        quotient, more = _parts(extent)
        if isinstance(quotient, tirx.FloorDiv) and not any(is_same(extent, whole) for _, _, whole in found.values()):
            found[tirx.Var(f"own_{len(found)}", str(extent.ty))] = quotient, more, extent
    if not found:
        return func, {}
    # Longest first: one quotient may contain another.
    order = sorted(found.items(), key=lambda item: -len(str(item[1][0])))

    def own(quotient: tirx.FloorDiv) -> Expr:
        for variable, (known, more, _) in order:
            if tvm_ffi.structural_equal(quotient, known):
                return variable - tirx.const(more, str(variable.ty))
        return quotient

    made = tvm_ffi.structural_map(func, (tirx.FloorDiv, own))
    made = tvm_ffi.structural_map(made, ((tirx.Add, tirx.Sub), _shorter))
    given = {p for p in made.params if not isinstance(p.ty, BufferType)}
    plain = {
        extent
        for p in made.params
        if isinstance(p.ty, BufferType)
        for extent in p.shape
        if isinstance(extent, tirx.Var) and extent not in given
    }
    used = sizes_in(made.body).union(*(sizes_in(p.ty) for p in made.params if isinstance(p.ty, BufferType)))
    hidden = {v for variable, (_, _, extent) in found.items() for v in sizes_in(extent)} - plain
    if not set(found) <= plain or used & (hidden | given):
        return func, {}
    return made, {variable: extent for variable, (_, _, extent) in found.items()}


def _parts(extent: Expr) -> tuple[Expr, int]:
    """Split an added constant off: return (expression, constant)."""
    if isinstance(extent, tirx.Add) and isinstance(extent.b, tirx.IntImm):
        return extent.a, int(extent.b)
    return extent, 0


def _shorter(expr: Expr) -> Expr:
    """Return a sum without constants that cancel."""
    if str(expr.ty) not in ("int32", "int64"):
        return expr
    inner, more = _parts(expr) if isinstance(expr, tirx.Add) else (expr, 0)
    if isinstance(inner, tirx.Sub) and isinstance(inner.b, tirx.IntImm):
        left = more - int(inner.b)
        return inner.a if left == 0 else sym.Analyzer().simplify(expr)
    return expr
