"""What is fused behind the sums of an image form, and the store, at a loop of the schedule that makes the sums."""

from __future__ import annotations

from tvm import s_tir

from ..match.access import loads
from .accel_moves import Block, LoopRV, below, on_engine


def place_behind(sch: s_tir.Schedule, loop: LoopRV) -> None:
    """Put the blocks "results", where there is one, and "store" at `loop`: on the vector engine, with what they read
    besides the sums brought on the chip, and on the engine that stores."""
    store = sch.get_sblock("store")
    blocks = [sch.get(block).name_hint for block in sch.get_child_blocks(sch.get_sblock("root"))]
    results = sch.get_sblock("results") if "results" in blocks else None
    for block in (store,) if results is None else (results, store):
        sch.reverse_compute_at(block, loop, preserve_unit_loops=True)
    on_engine(sch, store, "store", below(sch, store, loop))
    if results is None:
        return
    for load in _further_operands(sch, results):
        sch.compute_at(load, loop, preserve_unit_loops=True)
        on_engine(sch, load, "load", below(sch, load, loop), 2)
    on_engine(sch, results, "vector", below(sch, results, loop), 2)


def _further_operands(sch: s_tir.Schedule, block: Block) -> list[Block]:
    """What the fused expression reads besides the sums, on the chip."""
    seen = [sch.get(sch.get_sblock("sums")).body.buffer]
    cached = []
    for load in loads(sch.get(block).body.value):
        if not any(load.source.same_as(other) for other in seen):
            seen.append(load.source)
            cached.append(sch.cache_read(block, load.source.name, "global.out"))
    return cached
