"""Extents of a function's tensors in a form from which TVM draws no conclusions.

TVM's simplifier assumes that extents are at least 0, and concludes from an extent such as w * 26 - 13 that w >= 13,
without the factor. It therefore simplifies conditions incorrectly: for a length split into vectors, with a scalar
remainder, a vector was written where there was no room for one. max(extent, 0) has the same value and allows no such
conclusion.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.tirx.buffer import BufferType


def unmarked_extents(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The same function; its parameters have no strides of their own if their extents are dynamic."""
    renewed: dict[tirx.Var, tirx.Var] = {}
    for parameter in func.params:
        if isinstance(parameter.ty, BufferType) and any(map(_misleads, parameter.shape)) and not len(parameter.strides):
            shape = [_unmarked(extent) for extent in parameter.shape]
            renewed[parameter] = tirx.decl_buffer(shape, str(parameter.dtype), parameter.name)
    if not renewed:
        return func
    body = tvm_ffi.structural_map(func.body, (tirx.Var, lambda variable: renewed.get(variable, variable)))
    return tirx.PrimFunc([renewed.get(p, p) for p in func.params], body, func.ret_type, func.attrs)


def _misleads(extent: tirx.Expr) -> bool:
    """Return whether an extent subtracts something from a multiple."""
    if isinstance(extent, tirx.Add):
        return isinstance(extent.b, tirx.IntImm) and int(extent.b) < 0
    return isinstance(extent, tirx.Sub)


def _unmarked(extent: tirx.Expr) -> tirx.Expr:
    return tirx.max(extent, tirx.const(0, str(extent.ty))) if _misleads(extent) else extent
