"""Schedule primitives of the accelerators: assigning blocks to engines, tiling loops, and reversing a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

Block = Any  # a block of a schedule, as s_tir.Schedule names it
LoopRV = Any


def on_engine(sch: s_tir.Schedule, block: Block, engine: str, loops: int, versions: int | None = None) -> None:
    """Assign a block to an engine, with its `loops` innermost loops in one instruction and `versions` versions of its
    output."""
    sch.annotate(block, "vsim.engine", engine)
    sch.annotate(block, "vsim.loops", loops)
    if versions is not None:
        sch.annotate(block, "vsim.versions", versions)


def last_loops(sch: s_tir.Schedule, block: Block, count: int) -> list[LoopRV]:
    """Return the innermost loops of a block."""
    return list(sch.get_loops(block))[-count:]


def below(sch: s_tir.Schedule, block: Block, loop: LoopRV) -> int:
    """Return how many loops are between `loop` and the block."""
    around = [sch.get(other).loop_var for other in sch.get_loops(block)]
    place = next(i for i, variable in enumerate(around) if variable.same_as(sch.get(loop).loop_var))
    return len(around) - place - 1


def tiled(sch: s_tir.Schedule, block: Block, tiles: Sequence[int | None], order: Sequence[int]) -> list[LoopRV]:
    """Split the block's innermost loops, one for each of `tiles`, by these sizes (None: not split), and move the loops
    over tiles, in `order`, outside those within a tile. Returns the loops over tiles, outermost first."""
    own = last_loops(sch, block, len(tiles))
    outer: list[LoopRV | None] = []
    inner = []
    for loop, tile in zip(own, tiles, strict=True):
        if tile is None:
            outer.append(None)
            inner.append(loop)
        else:
            over, within = sch.split(loop, [None, tile])
            outer.append(over)
            inner.append(within)
    over_tiles = [outer[d] for d in order if outer[d] is not None]
    sch.reorder(*over_tiles, *inner)
    return over_tiles


def backward(func: tirx.PrimFunc, variable: tirx.Var) -> tirx.PrimFunc:
    """Return `func` with the loop of `variable` reversed, for which TVM has no primitive. Its iterations must be
    independent of their order."""

    def reversed_loop(loop: tirx.For) -> tirx.For:
        if not loop.loop_var.same_as(variable):
            return loop
        mirrored = loop.extent - 1 - variable
        body = tvm_ffi.structural_map(loop.body, (tirx.Var, lambda v: mirrored if v.same_as(variable) else v))
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, reversed_loop)))
