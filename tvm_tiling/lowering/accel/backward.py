"""A loop of a scheduled function walked from its end to its start, for which TVM has no primitive."""

from __future__ import annotations

import tvm_ffi
from tvm import tirx


def backward(func: tirx.PrimFunc, variable: tirx.Var) -> tirx.PrimFunc:
    """`func` with the loop of `variable` walked backward. Its iterations may not depend on each other's order."""

    def reversed_loop(loop: tirx.For) -> tirx.For:
        if not loop.loop_var.same_as(variable):
            return loop
        mirrored = loop.extent - 1 - variable
        body = tvm_ffi.structural_map(loop.body, (tirx.Var, lambda v: mirrored if v.same_as(variable) else v))
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, reversed_loop)))
