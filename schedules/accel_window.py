"""Pooling and reductions along axes on the accelerator: windows of the input through the vector engine.

loops over tiles of the result
  steps of a window, if it does not fit as a whole
    load of the input under them, including padding
    reduction: window loops outside point loops, as many of them as one instruction covers
  the epilogue on the vector engine, and the store
"""

from __future__ import annotations

from typing import Any, cast

import tvm
import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import TensorLoad

from ..decide.vector.vector_tiling import VERSIONS
from ..decide.vector.window import Windows, WindowTiling, decide_windows
from ..errors import UnsupportedOperator
from ..hardware.description import Hardware
from ..hardware.machine import Machine
from ..lowering.accel.moves import Block, LoopRV, below, on_engine
from ..lowering.accel.operands import further_operands
from ..lowering.prim_func import DECISION, ScheduledOperator
from ..match.evaluate import conditional
from ..match.reduction import Reduction, reduction_of
from ..operand_types import ELEMENTS, element_bytes


def supports(func: tirx.PrimFunc) -> bool:
    """Return whether the only reducing block of the function combines unmodified elements by +, max or min."""
    found: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, found.append))
    reducing = [block for block in found if block.init is not None]
    return len(reducing) == 1 and reduction_of(reducing[0].init, reducing[0].body) is not None


def apply(func: tirx.PrimFunc, name: str, hardware: Hardware) -> ScheduledOperator:
    """Return the reduction, tiled for the vector engine of `hardware`, as TIR with its blocks assigned to engines.

    Raises UnsupportedOperator on machines with several storage levels and if the input is computed, and HardwareError
    if nothing fits.
    """
    machine = Machine(hardware)
    if machine.has_levels:
        raise UnsupportedOperator(
            f"{name}: reductions are not supported on {hardware.name}, which has several storage levels; expected one "
            "level"
        )
    schedule = _WindowSchedule(func, name)
    tiling = decide_windows(schedule.windows(), machine)
    sch = schedule.write(tiling)
    main = sch.mod[name].with_attr(DECISION, tiling.to_json())
    return ScheduledOperator(cast(Any, tiling), main)


def _converts(block: s_tir.SBlock) -> bool:
    """Return whether a block only converts elements."""
    store = block.body
    return isinstance(store, tirx.BufferStore) and isinstance(store.value, tirx.Cast)


class _WindowSchedule:
    """Builds the schedule of one reduction."""

    def __init__(self, func: tirx.PrimFunc, name: str) -> None:
        self.name = name
        self.sch = sch = s_tir.Schedule(tvm.IRModule({name: func.with_attr("global_symbol", name)}), debug_mask="none")
        sch.work_on(name)
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
        self.reduce = next(block for block in blocks if sch.get(block).init is not None)
        self.load = self._load()
        self.behind, self.store = self._behind()

    @property
    def reduction(self) -> Reduction:
        block = self.sch.get(self.reduce)
        found = reduction_of(block.init, block.body)
        if found is None:
            raise UnsupportedOperator(
                f"{self.name}: the input of reduction {block.name_hint!r} is computed; expected elements read from "
                "memory on accelerators, possibly converted to the type of the result"
            )
        return found

    def _load(self) -> Block:
        """Return the block that loads the input onto the chip, including padding."""
        sch = self.sch
        while (producers := sch.get_producers(self.reduce)) and _converts(sch.get(producers[0])):
            sch.compute_inline(producers[0])
        if not producers:
            source = self.reduction.element.source
            return sch.cache_read(self.reduce, source.name, "global.a")
        store = sch.get(producers[0]).body
        within = conditional(store.value) if isinstance(store, tirx.BufferStore) else None
        element = within[1] if within is not None else getattr(store, "value", None)
        if len(producers) != 1 or sch.get_producers(producers[0]) or not isinstance(element, TensorLoad):
            raise UnsupportedOperator(
                f"{self.name}: the input of reduction {sch.get(self.reduce).name_hint!r} is computed; expected "
                "elements "
                "read from memory on accelerators, possibly padded"
            )
        sch.set_scope(producers[0], 0, "global.a")
        return producers[0]

    def _behind(self) -> tuple[Block | None, Block]:
        """Return the block of the epilogue, with all of it inlined (None if there is none), and the storing block."""
        sch = self.sch
        consumers = sch.get_consumers(self.reduce)
        if not consumers:
            return None, sch.cache_write(self.reduce, 0, "global.out")
        outputs = [sch.get(block).name_hint for block in sch.get_output_blocks(sch.get_sblock("root"))]
        while (own := sch.get_consumers(self.reduce)) and sch.get(own[0]).name_hint not in outputs:
            if len(own) > 1:
                break
            sch.compute_inline(own[0])
        if len(own) != 1 or len(outputs) != 1 or sch.get(own[0]).init is not None:
            raise UnsupportedOperator(
                f"{self.name}: the consumers of reduction {sch.get(self.reduce).name_hint!r} are not an element-wise "
                "chain; expected one on accelerators"
            )
        sch.set_scope(self.reduce, 0, "global.out")
        return own[0], sch.cache_write(own[0], 0, "global.out")

    def windows(self) -> Windows:
        """Return the quantities that the decision needs."""
        block = self.sch.get(self.reduce)
        element = self.reduction.element
        axes = [axis.var for axis in block.iter_vars]
        reduces = [int(axis.iter_type) == tirx.IterVar.CommReduce for axis in block.iter_vars]
        order = [*(i for i, own in enumerate(reduces) if not own), *(i for i, own in enumerate(reduces) if own)]
        steps = []
        for index in element.indices:
            parts = sym.detect_linear_equation(index, axes)
            if len(parts) != len(axes) + 1 or not all(isinstance(part, tirx.IntImm) for part in parts):
                raise UnsupportedOperator(
                    f"{self.name}: block {block.name_hint!r} reads {element}; expected linear combinations of axes"
                )
            steps.append(tuple(int(parts[i]) for i in order))
        extents = [int(axis.dom.extent) for axis in block.iter_vars]
        return Windows(
            points=tuple(extents[i] for i, own in enumerate(reduces) if not own),
            summed=tuple(extents[i] for i, own in enumerate(reduces) if own),
            steps=tuple(steps),
            d_in=self._bytes(element.source),
            d_out=self._bytes(block.body.buffer),
            behind=0 if self.behind is None else 4,
        )

    def _bytes(self, buffer: tirx.Buffer) -> int:
        """Return the bytes of an element. Raises UnsupportedOperator for types that no vector engine supports."""
        dtype = str(buffer.dtype)
        if dtype not in ELEMENTS:
            raise UnsupportedOperator(f"{self.name}: a reduction of {dtype}; expected {', '.join(ELEMENTS)}")
        return element_bytes(dtype)

    def write(self, tiling: WindowTiling) -> s_tir.Schedule:
        """Return the schedule for `tiling`."""
        sch, block = self.sch, self.sch.get(self.reduce)
        loops = sch.get_loops(self.reduce)
        reduces = [int(axis.iter_type) == tirx.IterVar.CommReduce for axis in block.iter_vars]
        points = self._split([loop for loop, own in zip(loops, reduces, strict=True) if not own], tiling.points)
        summed = self._split([loop for loop, own in zip(loops, reduces, strict=True) if own], tiling.summed)
        if not points[0]:  # a single result
            points[0].append(sch.add_unit_loop(summed[0][0]))
        sch.reorder(*points[0], *summed[0], *summed[1], *points[1])
        over = points[0][-1]
        sch.compute_at(self.load, self._innermost([*points[0], *summed[0]]), preserve_unit_loops=True)
        own = below(sch, self.load, self._innermost([*points[0], *summed[0]]))
        on_engine(sch, self.load, "load", own, VERSIONS)
        on_engine(sch, self.reduce, "vector", len(loops), VERSIONS)
        if self.behind is not None:
            sch.reverse_compute_at(self.behind, over, preserve_unit_loops=True)
        sch.reverse_compute_at(self.store, over, preserve_unit_loops=True)
        on_engine(sch, self.store, "store", below(sch, self.store, over))
        if self.behind is not None:
            results = sch.get(self.reduce).writes[0].source
            for load in further_operands(sch, self.behind, [results], "out"):
                sch.compute_at(load, over, preserve_unit_loops=True)
                on_engine(sch, load, "load", below(sch, load, over), VERSIONS)
            on_engine(sch, self.behind, "vector", below(sch, self.behind, over), VERSIONS)
        return sch

    def _split(self, loops: list[LoopRV], sizes: tuple[int, ...]) -> tuple[list[LoopRV], list[LoopRV]]:
        """Return the loops over tiles, and those within."""
        pairs = [self.sch.split(loop, [None, size]) for loop, size in zip(loops, sizes, strict=True)]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def _innermost(self, loops: list[LoopRV]) -> LoopRV:
        """Return the innermost loop with more than one iteration; if there is none, the first one."""
        turning = [loop for loop in loops if int(self.sch.get(loop).extent) > 1]
        return turning[-1] if turning else loops[0]
