"""Element-wise chains on the accelerator's vector engine, tile by tile.

loops over tiles
  loads of the tile's operands: the first into the buffer of A, the second into that of B, others into the output buffer
  the whole chain on the vector engine, operation by operation
  store

On a machine with several storage levels a tile passes through all of them, in and out; operands use the capacity of A
and of B alternately.
"""

from __future__ import annotations

from typing import Any, cast

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from ..decide.levels.level_vector import decide_vector_on_levels
from ..decide.vector.vector_tiling import VERSIONS, VectorTiling, decide_vector
from ..errors import UnsupportedOperator
from ..hardware.description import Hardware
from ..hardware.machine import Machine
from ..lowering.accel.moves import Block, LoopRV, below, on_engine
from ..lowering.prim_func import DECISION, ScheduledOperator
from ..match.access import loads

MEMORIES = ("a", "b")  # of the first operands; further ones use "out"


def apply(func: tirx.PrimFunc, name: str, hardware: Hardware) -> ScheduledOperator:
    """Return the chain as one block, tiled and assigned to the vector engine. Raises UnsupportedOperator if it cannot
    be one block."""
    sch = s_tir.Schedule(tvm.IRModule({name: func.with_attr("global_symbol", name)}), debug_mask="none")
    sch.work_on(name)
    _one_block(sch, name)
    # Consecutive reshapes leave divisions that cancel; unsimplified, a tile would seem to read all of its operands.
    sch = s_tir.Schedule(s_tir.transform.StmtSimplify()(sch.mod), debug_mask="none")
    sch.work_on(name)
    (block,) = sch.get_child_blocks(sch.get_sblock("root"))
    store = sch.get(block).body
    sources: list[Any] = []
    for load in loads(store.value):
        if not any(load.source.same_as(other) for other in sources):
            sources.append(load.source)
    machine = Machine(hardware)
    if machine.has_levels:
        names, decide = [level.name for level in hardware.levels], decide_vector_on_levels
        places = [MEMORIES[i % len(MEMORIES)] for i in range(len(sources))]
    else:
        names, decide = [], decide_vector
        places = [MEMORIES[i] if i < len(MEMORIES) else "out" for i in range(len(sources))]
    extents = [int(axis.dom.extent) for axis in sch.get(block).iter_vars]
    tiling = decide(
        extents,
        [(place, _bytes(source)) for place, source in zip(places, sources, strict=True)],
        _bytes(store.buffer),
        _operations(store.value),
        machine,
    )
    tile = _Tile(sch, block, names, tiling.versions or (VERSIONS,))
    tile.write([(source.name, place) for source, place in zip(sources, places, strict=True)], tiling, extents)
    main = sch.mod[name].with_attr(DECISION, tiling.to_json())
    return ScheduledOperator(cast(Any, tiling), main)


def _one_block(sch: s_tir.Schedule, name: str) -> Block:
    """Inline all blocks of the function into the one that writes its output."""
    root = sch.get_sblock("root")
    outputs = [sch.get(block).name_hint for block in sch.get_output_blocks(root)]
    for block in sch.get_child_blocks(root):
        hint = sch.get(block).name_hint
        if hint in outputs:
            continue
        try:
            sch.compute_inline(block)
        except Exception as error:
            raise UnsupportedOperator(
                f"{name}: block {hint!r} cannot be inlined into its readers; expected element-wise chains on "
                "accelerators"
            ) from error
    (*_, block) = sch.get_child_blocks(root)
    if len(outputs) != 1 or not isinstance(sch.get(block).body, tirx.BufferStore) or not sch.get(block).iter_vars:
        raise UnsupportedOperator(
            f"{name}: writes {len(outputs)} outputs; expected one output of one store on accelerators"
        )
    return block


class _Tile:
    """A tiled block. `levels` are the names of the machine's storage levels, if any; each of them, or else every
    buffer, holds `versions` of a tile."""

    def __init__(self, sch: s_tir.Schedule, block: Block, levels: list[str], versions: tuple[int, ...]) -> None:
        self.sch, self.block, self.levels, self.versions = sch, block, levels, versions

    def write(self, sources: list[tuple[str, str]], tiling: VectorTiling, extents: list[int]) -> None:
        sch, block = self.sch, self.block
        stores = [sch.cache_write(block, 0, f"global.{self._memories('out')[-1]}")]
        for memory in reversed(self._memories("out")[:-1]):
            stores.append(sch.cache_write(stores[-1], 0, f"global.{memory}"))
        chains = [self._chain(source, self._memories(place)) for source, place in sources]
        over_tiles = _loop_over_tiles(sch, block, tiling.tile, extents)
        for store in stores:
            sch.reverse_compute_at(store, over_tiles, preserve_unit_loops=True)
        for chain in chains:
            for load, versions in zip(reversed(chain), reversed(self.versions), strict=True):
                sch.compute_at(load, over_tiles, preserve_unit_loops=True)
                on_engine(sch, load, "load", below(sch, load, over_tiles), versions)
        on_engine(sch, block, "vector", below(sch, block, over_tiles), self.versions[-1])
        # Each store but the last writes to the next level outwards.
        for store, into in zip(stores, (*reversed(self.versions[:-1]), None), strict=True):
            on_engine(sch, store, "store", below(sch, store, over_tiles), into)

    def _memories(self, operand: str) -> list[str]:
        """Return the memories that an operand passes through, from the outside inwards."""
        return [f"{level}.{operand}" for level in self.levels] or [operand]

    def _chain(self, source: str, memories: list[str]) -> list[Block]:
        """Return the blocks that load a source into one memory after another."""
        chain: list[Block] = []
        for memory in memories:
            chain.append(self.sch.cache_read(self.block, source, f"global.{memory}"))
            source = self.sch.get(chain[-1]).writes[0].source.name
        return chain


def _loop_over_tiles(sch: s_tir.Schedule, block: Block, tile: tuple[int, ...], extents: list[int]) -> LoopRV:
    """Return the innermost loop over tiles: a tile covers whole inner axes, and part of the axis that is too long."""
    axis = max((d for d, part in enumerate(tile) if part < extents[d]), default=0)
    over, _ = sch.split(sch.get_loops(block)[axis], [None, tile[axis]])
    return over


def _bytes(buffer: tirx.Buffer) -> int:
    return max(1, tvm.DataType(str(buffer.dtype)).bits // 8)


def _operations(value: tirx.Expr) -> int:
    """Return the approximate number of instructions of an expression: one for each computing node."""
    found: list[Any] = []

    def note(node: tirx.Expr) -> None:
        if not isinstance(node, (tirx.Var, tirx.IntImm, tirx.FloatImm)) and not hasattr(node, "indices"):
            found.append(node)

    tvm_ffi.structural_walk(value, (tirx.Expr, note))
    return len(found)
