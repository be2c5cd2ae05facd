"""Checks that the blocks of a function may execute one after the other, each with its points in any order.

Matching ignores loops: what remains of a block is its axes and its stores. That is equivalent to the function only if
each block executes once for every point of its axes, no point depends on another one, and each buffer is written by one
block, before any other block reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import tvm_ffi
from tvm import s_tir, tirx

from .access import loads, variables
from .evaluate import evaluate

_MOST_POINTS = 1 << 22  # limit for enumerating points, where axes or indices are not plain loop variables

Loops = Mapping[tirx.Var, tirx.For]


def why_in_place(func: tirx.PrimFunc) -> str | None:
    """The reason why the blocks of `func` cannot be moved, as the end of a sentence; None if they can."""
    root = func.body
    if not isinstance(root, s_tir.SBlockRealize):
        return None  # not scheduled TIR, which the schedule itself reports
    found: list[tuple[s_tir.SBlockRealize, Loops]] = []
    why = _collect(root.block.body, {}, found)
    if why is not None:
        return why
    written: list[tirx.Buffer] = []
    read: list[tirx.Buffer] = []
    for realize, around in found:
        why = _why_block(realize, around)
        if why is not None:
            return why
        block = realize.block
        targets = [store.buffer for store in _stores(block.body)]
        for target in targets:
            if any(target.same_as(other) for other in written):
                return f"{target.name} is written by several blocks"
            if any(target.same_as(other) for other in read):
                return f"{target.name} is written after it is read"
        written += targets
        read += [load.source for load in loads(block.body) if not any(load.source.same_as(t) for t in targets)]
    return None


def stores_apart(block: s_tir.SBlock) -> bool:
    """Return whether every point of the block's spatial axes stores to a separate element."""
    axes = [v for v in block.iter_vars if int(v.iter_type) != tirx.IterVar.CommReduce]
    moving = {v.var for v in axes if not _is(v.dom.extent, 1)}
    for store in _stores(block.body):
        if not variables(tirx.BufferLoad(store.buffer, list(store.indices)), {v.var for v in block.iter_vars}) <= {
            v.var for v in axes
        }:
            return False
        plain = [index for index in store.indices if isinstance(index, tirx.Var) and index in moving]
        if len({*plain}) == len(moving):
            continue
        extents = [_number(v.dom.extent) for v in axes]
        grid = _grid([v.var for v in axes], extents)
        if grid is None or not _differ(store.indices, store.buffer.shape, grid):
            return False
    return True


def _collect(statement: tirx.Stmt, around: Loops, found: list[tuple[s_tir.SBlockRealize, Loops]]) -> str | None:
    """The blocks below `statement`, each with its enclosing loops."""
    if isinstance(statement, tirx.SeqStmt):
        reasons = [_collect(part, around, found) for part in statement.seq]
        return next((why for why in reasons if why is not None), None)
    if isinstance(statement, tirx.For):
        return _collect(statement.body, {**around, statement.loop_var: statement}, found)
    if isinstance(statement, s_tir.SBlockRealize):
        found.append((statement, around))
        return None
    return f"a {type(statement).__name__} is outside its blocks"


def _why_block(realize: s_tir.SBlockRealize, around: Loops) -> str | None:
    block, name = realize.block, realize.block.name_hint
    if not _is(realize.predicate, 1):
        return f"block {name!r} is conditional"
    inner: list[s_tir.SBlockRealize] = []
    tvm_ffi.structural_walk(block.body, (s_tir.SBlockRealize, inner.append))
    if inner or block.alloc_buffers or block.match_buffers:
        return f"block {name!r} contains blocks or buffers"
    if not _covers(realize, around):
        return f"the loops around block {name!r} do not execute each point of its axes exactly once"
    if not stores_apart(block):
        return f"block {name!r} stores several points to one element"
    places = {store.buffer: list(store.indices) for store in _stores(block.body)}
    if block.init is not None:
        for store in _stores(block.init):
            if store.buffer not in places or not _same(store.indices, places[store.buffer]):
                return f"block {name!r} initialises other elements than it reduces to"
    for load in loads(block.body):
        if load.source not in places:
            continue
        if block.init is None:
            return f"block {name!r} modifies {load.source.name} in place"
        if not _same(load.indices, places[load.source]):
            return f"block {name!r} reads {load.source.name}, which it writes, at other indices"
    return None


def _covers(realize: s_tir.SBlockRealize, around: Loops) -> bool:
    """Return whether the loops execute every point of the block's axes exactly once."""
    axes = realize.block.iter_vars
    if any(not _is(axis.dom.min, 0) for axis in axes) or any(not _is(loop.min, 0) for loop in around.values()):
        return False
    moving = [loop for loop in around.values() if not _is(loop.extent, 1)]
    own = [(axis, value) for axis, value in zip(axes, realize.iter_values, strict=True) if not _is(axis.dom.extent, 1)]
    plain = [around[value] for axis, value in own if isinstance(value, tirx.Var) and value in around]
    if len(plain) == len(own) == len(moving) and len({loop.loop_var for loop in plain}) == len(plain):
        return all(
            tvm_ffi.structural_equal(axis.dom.extent, loop.extent) or _is_equal(axis.dom.extent, loop.extent)
            for (axis, _), loop in zip(own, plain, strict=True)
        )
    sizes = [_number(axis.dom.extent) for axis in axes]
    grid = _grid(list(around), [_number(loop.extent) for loop in around.values()])
    points = prod(_number(loop.extent) for loop in around.values())
    return grid is not None and prod(sizes) == points and _differ(realize.iter_values, sizes, grid)


def _stores(body: tirx.Stmt) -> list[tirx.BufferStore]:
    found: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(body, (tirx.BufferStore, found.append))
    return found


def _grid(axes: Sequence[tirx.Var], extents: Sequence[int]) -> dict[tirx.Var, np.ndarray] | None:
    """Every point of the axes, as one flat array per axis; None if there are too many, or their number is dynamic."""
    if any(extent < 0 for extent in extents) or prod(extents) > _MOST_POINTS:
        return None
    places = np.unravel_index(np.arange(prod(extents)), extents) if extents else ()
    return dict(zip(axes, places, strict=True))


def _differ(indices: Sequence[tirx.Expr], shape: Sequence[object], grid: Mapping[tirx.Var, np.ndarray]) -> bool:
    """Return whether the points of `grid` have distinct indices within `shape`."""
    points = len(next(iter(grid.values()))) if grid else 1
    flat = np.zeros(points, np.int64)
    for index, size in zip(indices, shape, strict=True):
        value, extent = evaluate(index, grid), _number(size)
        if value is None or extent < 0 or (points and (np.min(value) < 0 or np.max(value) >= extent)):
            return False
        flat = flat * extent + value
    return len(np.unique(flat)) == points


def _number(extent: object) -> int:
    """A size; -1 if it is dynamic."""
    return int(extent) if isinstance(extent, int | tirx.IntImm) else -1


def _is(expr: object, value: int) -> bool:
    return isinstance(expr, tirx.IntImm) and int(expr) == value


def _is_equal(a: tirx.Expr, b: tirx.Expr) -> bool:
    """Return whether two sizes are the same number, regardless of type."""
    return _number(a) == _number(b) >= 0


def _same(a: Sequence[tirx.Expr], b: Sequence[tirx.Expr]) -> bool:
    return len(a) == len(b) and all(tvm_ffi.structural_equal(x, y) for x, y in zip(a, b, strict=True))
