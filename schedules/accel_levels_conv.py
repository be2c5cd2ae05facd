"""Convolutions on an accelerator with several storage levels, by TVM's primitives.

    steps of groups
      for each level from the outermost to the one where input channels are split, loops over its blocks, in its order:
      output channels; images, planes, strips of columns (outermost level only) and lines of output points
        steps of input channels
          GEMM of a block: six loops, one instruction; groups and planes of a kernel one after another
        the results, level by level outwards

Every level holds its lines of the image with their halo. Padding is stored as zeros, written when the image is loaded
to the chip. If instances of a level have lines of their own, lines shared by neighbours are held and loaded by both.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import tvm
from tvm import s_tir

from ..decide.levels.level_gemm import LevelConfig, LevelsTiling
from ..decide.options import Options
from ..hardware.description import Hardware
from ..lowering.accel.image import ConvOperands, ImageLayout, Scopes, plain_layout, types_of, write_image_layout
from ..lowering.accel.moves import Block, LoopRV, below, on_engine, tiled
from ..lowering.accel.operands import further_operands
from ..lowering.prim_func import DECISION, ScheduledOperator
from ..match import ConvProgram
from .accel_levels import Over, bytes_of, decided
from .accel_product import sum_types

CHANNELS, LINES = 1, 2  # axes of the buffers: output channels of kernels, lines of an image
INPUTS = 5  # input channels, in both buffers


def apply(program: ConvProgram, hardware: Hardware, options: Options | None = None) -> ScheduledOperator:
    """Return the convolution tiled as decided for the levels of `hardware`, or by the configuration in `options`, as
    TIR with its blocks assigned to engines.

    Raises HardwareError if nothing fits, and UnsupportedOperator for transposed convolutions, operands that are
    computed, and unsupported types.
    """
    schedule = ConvLevelsSchedule(program, sum_types(hardware), [level.name for level in hardware.levels])
    tiling = decided(program.workload, hardware, schedule.epilogue_bytes, options)
    sch = schedule.write(tiling)
    main = sch.mod[program.name].with_attr(DECISION, tiling.to_json())
    return ScheduledOperator(tiling, main)


class ConvLevelsSchedule:
    """Builds the schedule of one convolution on a machine with these `levels`."""

    def __init__(self, program: ConvProgram, sums: dict[str, str], levels: list[str]) -> None:
        self.names, self.form = levels, _needed(plain_layout(program.workload))
        first, last = levels[0], levels[-1]
        scopes = Scopes(f"global.{first}.b", f"global.{first}.a", f"global.{last}.out", f"global.{last}.out")
        func = write_image_layout(program, ConvOperands(program), self.form, types_of(program, sums), scopes)
        self.sch = s_tir.Schedule(tvm.IRModule({program.name: func}), debug_mask="none")
        self.sch.work_on(program.name)
        self.sums = self.sch.get_sblock("sums")
        (self.behind,) = self.sch.get_consumers(self.sums)

    @property
    def computed(self) -> bool:
        """Whether the vector engine processes the sums."""
        return str(self.sch.get(self.behind).name_hint) == "results"

    @property
    def epilogue_bytes(self) -> int:
        """Bytes per result that the innermost level holds for the epilogue, without scratch space."""
        if not self.computed:
            return 0
        return bytes_of(self.sch.get(self.behind), self.sch.get(self.sums).writes[0].source)

    def write(self, tiling: LevelsTiling) -> s_tir.Schedule:
        """Return the schedule for `tiling`."""
        sch, form, levels = self.sch, self.form, tiling.levels
        self.tiling = tiling
        self.count = next((i for i, config in enumerate(levels) if config.name == tiling.split_level), len(levels))
        taps = form.taps[0] * form.taps[1] * form.taps[2]
        self.channels = tiling.tile_k // taps
        self.rows = [config.left[0] for config in levels[: self.count]] + [tiling.tile_m]
        self.lines = [config.right[1] // tiling.points for config in levels[: self.count]] + [
            tiling.tile_n // tiling.points
        ]
        orders = [config.order for config in levels[: self.count]] + [tiling.tile_order]
        stores = self._stores()
        n, d, y, x, g, o, kd, kh, kw, c = sch.get_loops(self.sums)
        groups, gi = sch.split(g, [None, tiling.groups])
        xo, xi = sch.split(x, [None, tiling.points])
        *over_m, oi = sch.split(o, [None, *(outer // inner for outer, inner in pairwise(self.rows)), self.rows[-1]])
        *over_n, yi = sch.split(y, [None, *(outer // inner for outer, inner in pairwise(self.lines)), self.lines[-1]])
        over: list[Over] = []
        for level, (order, of_m, of_n) in enumerate(zip(orders, over_m, over_n, strict=True)):
            for axis in order:
                loops = [of_m] if axis == "m" else [*([n, d, xo] if level == 0 else []), of_n]
                over += [self._over(axis, level, loop) for loop in loops]
        tiles = over[-1].loop
        if self.channels < form.ci:
            step, c = sch.split(c, [None, self.channels])
            over.append(self._over("k", self.count, step))
        sch.reorder(groups, *(each.loop for each in over), gi, kd, oi, yi, xi, kh, kw, c)
        on_engine(sch, self.sums, "matrix", 6, tiling.sum_slots)
        chains = self._chains()
        for level in range(len(levels) - 1, -1, -1):
            self._place_loads(level, (chains[0][level], chains[1][level]), over, groups)
        # After all loads are placed: a load covers the extents of the next level's loops, including partial pieces.
        for level, config in enumerate(levels):
            self._give_loads(level, config, chains[0][level], chains[1][level])
        self._place_epilogue(tiles, stores)
        return sch

    def _over(self, axis: str, level: int, loop: LoopRV) -> Over:
        return Over(axis, level, loop, int(self.sch.get(loop).extent))

    # ---- buffers --------------------------------------------------------------------------------------------------

    def _stores(self) -> list[Block]:
        """Return the blocks that store the results level by level outwards."""
        store = self.sch.get_sblock("store")
        return [*(self.sch.cache_read(store, 0, f"global.{name}.out") for name in reversed(self.names[:-1])), store]

    def _chains(self) -> tuple[list[Block], list[Block]]:
        """Return the blocks that load kernels and those that load the image into every level."""
        sch = self.sch
        chains = {"a": [sch.get_sblock("kernels")], "b": [sch.get_sblock("image")]}
        for name, config in zip(self.names[1:], self.tiling.levels[1:], strict=True):
            for memory in "ba" if config.a_first else "ab":
                held = sch.get(chains[memory][-1]).writes[0].source
                reads = sch.get(self.sums).reads
                number = next(i for i, region in enumerate(reads) if region.source.same_as(held))
                chains[memory].append(sch.cache_read(self.sums, number, f"global.{name}.{memory}"))
        return chains["a"], chains["b"]

    # ---- places of blocks ---------------------------------------------------------------------------------------

    def _place_loads(self, level: int, blocks: tuple[Block, Block], over: list[Over], groups: LoopRV) -> None:
        """Place the loads of a level at their loops, that of the operand that is loaded first in front."""
        both = list(zip("mn", blocks, strict=True))
        for axis, block in both if self.tiling.levels[level].a_first else both[::-1]:
            loops = [each.loop for each in over if each.level <= level and each.axis in (axis, "k") and each.extent > 1]
            self.sch.compute_at(block, loops[-1] if loops else groups, preserve_unit_loops=True)

    def _give_loads(self, level: int, config: LevelConfig, kernels: Block, image: Block) -> None:
        """Divide the loads of a level into the pieces that the next level uses, and assign them to their engine."""
        sch, halo = self.sch, self._halo(config, level)
        if level < self.count:
            rows, lines = self.rows[level + 1], self.lines[level + 1] * self.form.stride[1]
            tiled(sch, kernels, (None, rows, None, None, None, self.channels), (CHANNELS, INPUTS))
            tiled(sch, image, (None, None, None if halo else lines, None, None, self.channels), (LINES, INPUTS))
        on_engine(sch, kernels, "load", 6, config.slots_a)
        on_engine(sch, image, "load", 4, config.slots_b)
        for block, copies in ((kernels, config.across_n), (image, config.across_m)):
            if copies > 1:
                sch.annotate(block, "vsim.copies", copies)
        if halo:
            sch.annotate(image, "vsim.halo", halo)

    def _halo(self, config: LevelConfig, level: int) -> list[int] | None:
        """Return the annotation of a block whose instances have lines of their own: the axis, the distance in image
        lines between parts, the number of lines that two parts share, and the number of parts."""
        form = self.form
        overlap = (form.taps[1] - 1) * form.dilation[1] + 1 - form.stride[1]
        lines = self.lines[min(level, self.count)]
        if config.across_n == 1 or overlap <= 0:
            return None
        return [LINES, lines // config.across_n * form.stride[1], overlap, config.across_n]

    def _place_epilogue(self, loop: LoopRV, stores: list[Block]) -> None:
        """Place the epilogue of a block, then the stores level by level outwards."""
        sch = self.sch
        for block in [*([self.behind] if self.computed else []), *stores]:
            sch.reverse_compute_at(block, loop, preserve_unit_loops=True)
        if self.computed:
            sums = sch.get(self.sums).writes[0].source
            for load in further_operands(sch, self.behind, [sums], f"{self.names[-1]}.out"):
                sch.compute_at(load, loop, preserve_unit_loops=True)
                on_engine(sch, load, "load", below(sch, load, loop), 1)
            on_engine(sch, self.behind, "vector", below(sch, self.behind, loop), 1)
        # Each store but the last writes the results to the next level outwards.
        slots = [config.slots_out for config in reversed(self.tiling.levels[:-1])]
        for number, block in enumerate(stores):
            on_engine(sch, block, "store", below(sch, block, loop), slots[number] if number < len(slots) else None)


def _needed(form: ImageLayout) -> ImageLayout:
    """Return the layout with an image that ends at the last point that a tap reads."""
    deep, high, wide = (
        (points - 1) * step + (taps - 1) * apart + 1
        for points, step, taps, apart in zip(form.out, form.stride, form.taps, form.dilation, strict=True)
    )
    return replace(form, size=(deep, high, wide))
