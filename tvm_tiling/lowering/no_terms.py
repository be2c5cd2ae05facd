"""Reductions over zero elements, which yield the initial value of the reduction.

TVM initialises the result in the first iteration of a reduction; without iterations, the result would remain
uninitialised memory.
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx


def started(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with reductions over zero elements replaced by their initial values."""
    return tvm_ffi.structural_map(func, (tirx.For, _loop))


def _loop(loop: tirx.For) -> tirx.Stmt:
    """Return the initialisation of the block that a loop without iterations reduces; other loops unchanged."""
    if not isinstance(loop.extent, tirx.IntImm) or int(loop.extent) > 0:
        return loop
    inner = loop.body
    while isinstance(inner, tirx.For):
        inner = inner.body
    if not isinstance(inner, s_tir.SBlockRealize) or inner.block.init is None:
        return loop
    axes = list(zip(inner.block.iter_vars, inner.iter_values, strict=True))
    kept = [(axis, value) for axis, value in axes if axis.iter_type != tirx.IterVar.CommReduce]
    read = [value for _, value in kept] + [inner.predicate]
    if _uses(read, loop.loop_var):
        return loop
    block = inner.block
    start = s_tir.SBlock(
        [axis for axis, _ in kept],
        [],
        block.writes,
        block.name_hint,
        block.init,
        annotations=block.annotations,
        alloc_buffers=block.alloc_buffers,
    )
    result: tirx.Stmt = s_tir.SBlockRealize([value for _, value in kept], inner.predicate, start)
    inner_loops, step = [], loop.body
    while isinstance(step, tirx.For):
        inner_loops.append(step)
        step = step.body
    for inner_loop in reversed(inner_loops):
        if _uses(read, inner_loop.loop_var):
            result = tirx.For(inner_loop.loop_var, inner_loop.min, inner_loop.extent, inner_loop.kind, result)
    return result


def _uses(expressions: list, variable: tirx.Var) -> bool:
    found: list[tirx.Var] = []
    for expression in expressions:
        tvm_ffi.structural_walk(expression, (tirx.Var, found.append))
    return any(other.same_as(variable) for other in found)
