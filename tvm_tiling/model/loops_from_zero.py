"""Normalisation of loops to start at 0 with step 1.

TVM's CanonicalizeLoop does the same, but not in the bounds of inner loops: for loops over j from k + 1 and i from j,
the inner one starts at j - k - 1 afterwards.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx


def loops_from_zero(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The same function with normalised loops."""
    return tvm_ffi.structural_map(func, (tirx.For, _from_zero))


def _from_zero(loop: tirx.For) -> tirx.For:
    step = 1 if loop.step is None else loop.step
    if _is(loop.min, 0) and _is(step, 1):
        return loop
    place = loop.min + loop.loop_var * step
    extent = loop.extent if _is(step, 1) else tirx.ceildiv(loop.extent, step)
    body = tvm_ffi.structural_map(loop.body, (tirx.Var, lambda var: place if var.same_as(loop.loop_var) else var))
    zero = tirx.const(0, str(loop.loop_var.ty))
    return tirx.For(loop.loop_var, zero, extent, loop.kind, body, loop.thread_binding, loop.annotations)


def _is(value: tirx.Expr | int, number: int) -> bool:
    return isinstance(value, int | tirx.IntImm) and int(value) == number
