"""Extents of a function's tensors as TVM draws no conclusions from them.

TVM's simplifier takes extents for at least 0, and of one such as w * 26 - 13 it concludes w >= 13, without the factor.
From that it takes conditions for true that are not: of a length that is cut into vectors, and into shorter pieces where
it has none, a vector was written where there was no room for one. The larger of such an extent and 0 is the same
number, of which it concludes nothing.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.tirx.buffer import BufferType


def unmarked_extents(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The same function; its parameters have no strides of their own where their extents are open."""
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
    """Whether something is taken from a multiple in an extent."""
    if isinstance(extent, tirx.Add):
        return isinstance(extent.b, tirx.IntImm) and int(extent.b) < 0
    return isinstance(extent, tirx.Sub)


def _unmarked(extent: tirx.Expr) -> tirx.Expr:
    return tirx.max(extent, tirx.const(0, str(extent.ty))) if _misleads(extent) else extent
