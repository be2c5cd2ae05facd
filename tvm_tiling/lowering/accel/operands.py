"""Loads of the operands of an epilogue other than the sums: biases, multipliers, residuals. On the chip they have the
axes of the block that uses them, whatever their own axes are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from ...match.access import loads, variables
from .moves import Block, LoopRV, below, on_engine


def further_operands(sch: s_tir.Schedule, block: Block, known: Sequence[Any], memory: str) -> list[Block]:
    """Create blocks that load what `block` reads besides the buffers `known` into `memory`; return them in the order of
    the reads.

    An on-chip buffer has one axis for each axis of the block on which its element depends. If the block fuses rows and
    columns into one axis, a tile is a piece of that axis.
    """
    seen = list(known)
    made = []
    for load in loads(sch.get(block).body.value):
        if not any(load.source.same_as(other) for other in seen):
            seen.append(load.source)
            made.append(_on_chip(sch, block, load, f"global.{memory}"))
    return made


def _on_chip(sch: s_tir.Schedule, block: Block, load: TensorLoad, scope: str) -> Block:
    inside = sch.get(block)
    same = [other for other in loads(inside.body.value) if other.source.same_as(load.source)]
    axes = [axis.var for axis in inside.iter_vars]
    used = {variable for index in load.indices for variable in variables(index)}
    if not used or not all(tvm_ffi.structural_equal(list(other.indices), list(load.indices)) for other in same):
        return sch.cache_read(block, load.source.name, scope)  # a single number, or several elements read at once
    fresh = [tirx.Var(axis.name, str(axis.ty)) for axis in axes]
    kept = [new for new, axis in zip(fresh, axes, strict=True) if axis in used]
    number = next(i for i, read in enumerate(inside.reads) if read.source.same_as(load.source))
    return sch.reindex_cache_read(block, number, scope, tirx.IndexMap(fresh, kept, None))


def place_loads(sch: s_tir.Schedule, block: Block, loop: LoopRV, made: Sequence[Block]) -> None:
    """Place the loads of further operands before `block`, which is at `loop`, with two versions. Each load is at the
    innermost enclosing loop on which it depends, so that a bias stays resident while the rows of a matrix change."""
    around = list(sch.get_loops(block))
    around = around[: len(around) - below(sch, block, loop)]
    for load in made:
        varies = loops_of(sch, block, sch.get(load).body.buffer)
        at = next((outer for outer in reversed(around) if sch.get(outer).loop_var in varies), around[0])
        sch.compute_at(load, at, preserve_unit_loops=True)
        on_engine(sch, load, "load", below(sch, load, at), 2)


def loops_of(sch: s_tir.Schedule, block: Block, buffer: tirx.Buffer) -> set[tirx.Var]:
    """Return the loops around a block, except those with one iteration, on which the elements read from `buffer`
    depend."""
    around = [sch.get(loop) for loop in sch.get_loops(block)]
    realize = around[-1].body
    axes = {axis.var: value for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    read = [load for load in loads(realize.block.body.value) if load.source.same_as(buffer)]
    used = {variable for load in read for index in load.indices for variable in variables(index)}
    found = {variable for axis in used if axis in axes for variable in variables(axes[axis])}
    return {loop.loop_var for loop in around if loop.loop_var in found and not _is_one(loop.extent)}


def _is_one(extent: tirx.Expr) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1
