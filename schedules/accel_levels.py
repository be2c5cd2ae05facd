"""Matrix multiplications on an accelerator with several storage levels, by TVM's primitives.

    batch
      for each level from the outermost to the one where K is split, two loops over its blocks, in its order
        steps of K
          GEMM of a block: three loops, one instruction
        the results, level by level outwards

The loads of a level are at the innermost of these loops on which their operand depends. A level outside the one where K
is split loads its blocks in the pieces that the next level uses, so that the next level can start with the first piece.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import NamedTuple

from tvm import s_tir, tirx

from ..decide.known import tiling_for
from ..decide.levels.level_gemm import LevelsTiling
from ..decide.options import Options
from ..decide.surroundings import Surroundings
from ..errors import HardwareError
from ..hardware.description import Hardware
from ..lowering.accel.moves import Block, LoopRV, below, on_engine, tiled
from ..lowering.prim_func import DECISION, ScheduledOperator
from ..match import GemmProgram
from ..match.access import loads
from ..operand_types import element_bytes
from ..workload import ConvWorkload, GemmWorkload
from .accel_product import ProductOnChip, sum_types

# Bytes per result assumed for intermediate values of the vector engine, fewer if they do not fit.
SCRATCH = (12, 8, 4)


def apply(program: GemmProgram, hardware: Hardware, options: Options | None = None) -> ScheduledOperator:
    """Return the matrix multiplication tiled as decided for the levels of `hardware`, or by the configuration in
    `options`, as TIR with its blocks assigned to engines.

    Raises HardwareError if nothing fits, and UnsupportedOperator for operands that are computed or of unsupported
    types.
    """
    sums = sum_types(hardware)
    schedule = LevelsSchedule(program, sums, [level.name for level in hardware.levels])
    tiling = decided(program.workload, hardware, schedule.epilogue_bytes, options)
    sch = schedule.write_levels(tiling)
    main = sch.mod[program.name].with_attr(DECISION, tiling.to_json())
    return ScheduledOperator(tiling, main)


def decided(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, behind: int, options: Options | None = None
) -> LevelsTiling:
    """Return the configuration if the innermost level holds `behind` bytes per result for the epilogue."""
    for scratch in SCRATCH[:-1] if behind else ():
        try:
            return _config(workload, hardware, behind + scratch, options)
        except HardwareError:
            continue
    return _config(workload, hardware, behind and behind + SCRATCH[-1], options)


def _config(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, behind: int, options: Options | None
) -> LevelsTiling:
    tiling = tiling_for(workload, hardware, options or Options(), Surroundings(behind=behind))
    assert isinstance(tiling, LevelsTiling)
    return tiling


def bytes_of(block: s_tir.SBlock, sums: tirx.Buffer) -> int:
    """Return the bytes per result that the block after the sums writes, and reads in addition to them, without scratch
    space."""
    held = [block.writes[0].source, *{load.source for load in loads(block.body.value)}]
    results = prod(int(extent) for extent in sums.shape)
    return sum(
        -(-element_bytes(str(buffer.dtype)) * prod(int(extent) for extent in buffer.shape) // results)
        for buffer in held
        if not buffer.same_as(sums)
    )


class Over(NamedTuple):
    """A loop over blocks: its axis, level and extent."""

    axis: str
    level: int
    loop: LoopRV
    extent: int


class LevelsSchedule(ProductOnChip):
    """Builds the schedule of one matrix multiplication on a machine with these `levels`."""

    def __init__(self, program: GemmProgram, sums: dict[str, str], levels: list[str]) -> None:
        first, last = levels[0], levels[-1]
        super().__init__(
            program,
            sums,
            memory_sums=f"{last}.out",
            memory_a=f"{first}.a",
            memory_b=f"{first}.b",
            memory_out=f"{last}.out",
        )
        self.names = levels

    @property
    def epilogue_bytes(self) -> int:
        """Bytes per result that the innermost level holds for the epilogue, without scratch space."""
        consumers = self.sch.get_consumers(self.product)
        sums = self.sch.get(self.product).writes[0].source
        if not consumers:
            return 0 if str(sums.dtype) == self.sum_type else element_bytes(str(sums.dtype))
        return bytes_of(self.sch.get(consumers[0]), sums)

    def write_levels(self, tiling: LevelsTiling) -> s_tir.Schedule:
        """Return the schedule for `tiling`."""
        sch, self.tiling = self.sch, tiling
        self.a_first = tiling.levels[0].a_first
        batch, m, n, k = self.bring_on_chip()
        chains = self._chains()
        self.count = next(
            (i for i, config in enumerate(tiling.levels) if config.name == tiling.split_level), len(tiling.levels)
        )
        rows = [config.left[0] for config in tiling.levels[: self.count]] + [tiling.tile_m]
        columns = [config.right[1] for config in tiling.levels[: self.count]] + [tiling.tile_n]
        orders = [config.order for config in tiling.levels[: self.count]] + [tiling.tile_order]
        self.rows, self.columns = rows, columns
        *over_m, mi = sch.split(m, [None, *(outer // inner for outer, inner in pairwise(rows)), rows[-1]])
        *over_n, ni = sch.split(n, [None, *(outer // inner for outer, inner in pairwise(columns)), columns[-1]])
        over: list[Over] = []
        for level, (order, loop_m, loop_n) in enumerate(zip(orders, over_m, over_n, strict=True)):
            for axis in order:
                over.append(self._over(axis, level, loop_m if axis == "m" else loop_n))
        tiles = over[-1].loop
        if tiling.split_k:
            step, k = sch.split(k, [None, tiling.tile_k])
            over.append(self._over("k", self.count, step))
        sch.reorder(*batch, *(each.loop for each in over), mi, ni, k)
        on_engine(sch, self.product, "matrix", 3, tiling.sum_slots)
        for level in range(len(self.names) - 1, -1, -1):
            self._place_loads(level, (chains[0][level], chains[1][level]), over, batch)
        self._place_epilogue(tiles)
        return sch

    def _over(self, axis: str, level: int, loop: LoopRV) -> Over:
        return Over(axis, level, loop, int(self.sch.get(loop).extent))

    # ---- buffers --------------------------------------------------------------------------------------------------

    def _sums_on_chip(self, epilogue: Block | None) -> list[Block]:
        """Return the blocks after the matrix multiplication: the epilogue, and the results through every level
        outwards."""
        behind = super()._sums_on_chip(epilogue)
        for name in reversed(self.names[:-1]):
            behind.append(self.sch.cache_write(behind[-1], 0, f"global.{name}.out"))
        return behind

    def _chains(self) -> tuple[list[Block], list[Block]]:
        """Return the blocks that load A and those that load B into every level."""
        chains = {"a": [self.load_a], "b": [self.load_b]}
        for name, config in zip(self.names[1:], self.tiling.levels[1:], strict=True):
            for memory in "ba" if config.a_first else "ab":
                held = self.sch.get(chains[memory][-1]).writes[0].source
                reads = self.sch.get(self.product).reads
                number = next(i for i, region in enumerate(reads) if region.source.same_as(held))
                chains[memory].append(self.sch.cache_read(self.product, number, f"global.{name}.{memory}"))
        return chains["a"], chains["b"]

    # ---- places of blocks ---------------------------------------------------------------------------------------

    def _place_loads(self, level: int, blocks: tuple[Block, Block], over: list[Over], batch: list[LoopRV]) -> None:
        """Place the loads of a level, that of the operand that is loaded first in front."""
        config = self.tiling.levels[level]
        pieces = (self.rows, self.columns)
        both = (("m", blocks[0], config.slots_a, config.across_n), ("n", blocks[1], config.slots_b, config.across_m))
        for axis, block, slots, copies in both if config.a_first else both[::-1]:
            around = [
                each.loop for each in over if each.level <= level and each.axis in (axis, "k") and each.extent > 1
            ]
            if around or batch:
                self.sch.compute_at(block, around[-1] if around else batch[-1], preserve_unit_loops=True)
            if level < self.count:
                tiled(self.sch, block, (pieces["mn".index(axis)][level + 1], self.tiling.tile_k), (0, 1))
            on_engine(self.sch, block, "load", 2, slots)
            if copies > 1:
                self.sch.annotate(block, "vsim.copies", copies)

    def _place_epilogue(self, loop: LoopRV) -> None:
        """Place the epilogue of a block, then the stores level by level outwards."""
        sch = self.sch
        for block in self.behind:
            sch.reverse_compute_at(block, loop, preserve_unit_loops=True)
        stores = self.behind
        computed = len(self.behind) > len(self.names)
        if computed:
            first, stores = self.behind[0], self.behind[1:]
            for load in self.further_operands(first):
                sch.compute_at(load, loop, preserve_unit_loops=True)
                on_engine(sch, load, "load", below(sch, load, loop), 1)
            on_engine(sch, first, "vector", below(sch, first, loop), 1)
        # Each store but the last writes the results to the next level outwards.
        slots = [config.slots_out for config in reversed(self.tiling.levels[:-1])]
        for number, block in enumerate(stores):
            on_engine(sch, block, "store", below(sch, block, loop), slots[number] if number < len(slots) else None)
