"""Divides the work of the vector engine into smaller pieces, for machines whose output buffer cannot hold a tile's
results, epilogue operands and scratch space."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

from .moves import Block, LoopRV, below, last_loops
from .operands import loops_of

ENGINE, LOOPS = "vsim.engine", "vsim.loops"


def in_pieces(func: tirx.PrimFunc, name: str, pieces: int) -> tirx.PrimFunc | None:
    """Return a scheduled function whose vector-engine blocks are divided into about `pieces` pieces, together with
    their stores and the loads on which each piece depends; None if no loop can be divided further."""
    sch = s_tir.Schedule(tvm.IRModule({name: func}), debug_mask="none")
    sch.work_on(name)
    divided = [_divide(sch, block, pieces) for block in _blocks(sch) if _engine(sch, block) == "vector"]
    return sch.mod[name] if any(divided) else None


def _blocks(sch: s_tir.Schedule) -> list[Block]:
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def _engine(sch: s_tir.Schedule, block: Block) -> str:
    return str(sch.get(block).annotations.get(ENGINE, ""))


def _divide(sch: s_tir.Schedule, block: Block, pieces: int) -> bool:
    """Divide the block: iterate over its outermost loops, and split the last of these. Returns whether it was
    possible."""
    count = int(sch.get(block).annotations[LOOPS])
    outer: LoopRV | None = None
    walked = []
    for loop in last_loops(sch, block, count):
        extent = sch.get(loop).extent
        if pieces <= 1 or not isinstance(extent, tirx.IntImm):
            break
        # All pieces have the same size: TVM moves a store to a partial piece without the bound on its rows.
        whole = int(extent)
        count = next(number for number in range(min(pieces, whole), whole + 1) if whole % number == 0)
        outer, _ = sch.split(loop, [count, None])
        walked.append(sch.get(outer).loop_var)
        pieces = -(-pieces // count)
    if outer is None:
        return False
    loads = [
        producer
        for producer in sch.get_producers(block)
        if _engine(sch, producer) == "load"
        and not loops_of(sch, block, sch.get(producer).body.buffer).isdisjoint(walked)
    ]
    stores = [consumer for consumer in sch.get_consumers(block) if _engine(sch, consumer) == "store"]
    for load in loads:
        sch.compute_at(load, outer, preserve_unit_loops=True)
    for store in stores:
        sch.reverse_compute_at(store, outer, preserve_unit_loops=True)
    for moved in (block, *loads, *stores):
        sch.unannotate(moved, LOOPS)
        sch.annotate(moved, LOOPS, below(sch, moved, outer))
    return True
