"""Convolutions on the accelerator's matrix engine: the analytical partition, with input tiles including halo and
padding.

    steps of groups
      the two outer loops, over output channels and over rectangles of points, in the decided order
        steps of input channels, if the reduction is split
          loads of kernels and of the image into their buffers, each at the innermost possible loop
          loops over tiles
            GEMM of a tile: six loops, one instruction; groups and planes of a kernel one after another
      the epilogue on the vector engine, and the store

No im2col copy is made: the instruction iterates over rows, columns and taps of the image in place.
"""

from __future__ import annotations

import tvm
from tvm import s_tir

from ..decide.conv.conv_blocks import ConvBlocks
from ..decide.gemm.traffic import operand_bytes
from ..decide.near_tile import with_blocks
from ..decide.tiling import GemmTiling
from ..errors import UnsupportedOperator
from ..hardware.description import Hardware
from ..hardware.machine import Machine
from ..lowering.accel.image import ConvOperands, ImageLayout, Scopes, plain_layout, types_of, write_image_layout
from ..lowering.accel.moves import Block, LoopRV, last_loops, on_engine
from ..lowering.accel.place_epilogue import EpilogueCapacity, finished, place_epilogue
from ..lowering.prim_func import DECISION, ScheduledOperator
from ..match import ConvProgram
from ..workload import ConvWorkload
from .accel_product import sum_types

TURN = 2  # an instruction may occupy the only memory port for this many latencies


def apply(program: ConvProgram, hardware: Hardware, tiling: GemmTiling, vector: bool = False) -> ScheduledOperator:
    """Return the convolution tiled by `tiling` as TIR with its blocks assigned to engines. If `tiling` has no blocks,
    those with the least estimated time on `hardware.near_tile` are used; `vector` is described in Surroundings.

    Raises HardwareError if no block fits, and UnsupportedOperator for transposed convolutions and for operands that are
    computed or of unsupported types.
    """
    workload = program.workload
    if workload.transposed:
        raise UnsupportedOperator(
            f"{program.name}: transposed convolutions are not supported on accelerators; expected plain ones, such as "
            "the convolution of the dilated input"
        )
    tiling = with_blocks(tiling, workload, hardware, vector)
    machine = Machine(hardware)
    sch = ConvSchedule(program, plain_layout(workload), tiling.blocks, sum_types(hardware), machine).write()
    return ScheduledOperator(tiling, finished(sch, program.name, hardware).with_attr(DECISION, tiling.to_json()))


def _rows_of_a_turn(workload: ConvWorkload, blocks: ConvBlocks, machine: Machine) -> int | None:
    """Return the rows of the image in one instruction of a block's load; None for all rows. If a single port serves all
    queues, the operands of the epilogue wait for the instruction that holds it, so a load releases it after about twice
    its latency."""
    external = machine.memory("external")
    rate = machine.rate("external", "b")
    if external.ports != 1 or rate is None:
        return None
    columns = (blocks.columns - 1) * workload.stride[1] + (workload.kw - 1) * workload.dilation[1] + 1
    row = columns * blocks.channels * blocks.groups * operand_bytes(workload)[1]
    return max(1, int(TURN * external.latency * rate / row))


class ConvSchedule:
    """Builds the schedule of one convolution."""

    def __init__(
        self, program: ConvProgram, form: ImageLayout, blocks: ConvBlocks, sums: dict[str, str], machine: Machine
    ) -> None:
        self.form, self.blocks = form, blocks
        self.image_rows = _rows_of_a_turn(program.workload, blocks, machine)
        # If channels are processed in steps, the sums of the whole block are complete only after the last step.
        self.in_steps = blocks.channels < form.ci
        whole = blocks.rows * blocks.step_m if self.in_steps else blocks.tile_rows * blocks.tile_m
        points = blocks.groups * blocks.columns
        synchronised = points * blocks.sync_rows * blocks.sync_m
        self.capacity = EpilogueCapacity(machine.capacity("out"), points * whole, synchronised)
        types, scopes = types_of(program, sums), Scopes(sums=f"global.{blocks.sums}")
        func = write_image_layout(program, ConvOperands(program), form, types, scopes)
        self.sch = s_tir.Schedule(tvm.IRModule({program.name: func}), debug_mask="none")
        self.sch.work_on(program.name)

    def write(self) -> s_tir.Schedule:
        sch, blocks = self.sch, self.blocks
        image, kernels, sums = (sch.get_sblock(name) for name in ("image", "kernels", "sums"))
        n, d, y, x, g, o, kd, kh, kw, c = sch.get_loops(sums)
        go, gi = sch.split(g, [None, blocks.groups])
        oo, oi = sch.split(o, [None, blocks.step_m])
        ot, oi = sch.split(oi, [None, blocks.tile_m])
        yo, yi = sch.split(y, [None, blocks.rows])
        yt, yi = sch.split(yi, [None, blocks.tile_rows])
        xo, xi = sch.split(x, [None, blocks.columns])
        steps: list[LoopRV] = []
        if self.in_steps:
            step, c = sch.split(c, [None, blocks.channels])
            steps = [step]
        points = [n, d, yo, xo]
        outer = [oo, *points] if blocks.order == "mn" else [*points, oo]
        ys, yi = sch.split(yi, [None, blocks.sync_rows])
        os, oi = sch.split(oi, [None, blocks.sync_m])
        sch.reorder(go, *outer, *steps, yt, ot, ys, os, gi, kd, oi, yi, xi, kh, kw, c)
        on_engine(sch, sums, "matrix", 6, blocks.versions_sums)
        self._load(kernels, None if blocks.whole_a else (steps or [oo])[-1], go, blocks.versions_a, (1, blocks.tile_m))
        rows = None
        if blocks.whole_b:
            rows = (2, max(1, blocks.rows * self.form.stride[1]))
        elif self.image_rows is not None:
            rows = (2, self.image_rows)
        self._load(image, None if blocks.whole_b else (steps or [xo])[-1], go, blocks.versions_b, rows)
        if steps:
            place_epilogue(sch, outer[-1], outer[-1], self.capacity, {2: blocks.sync_rows, 5: blocks.sync_m})
        else:
            place_epilogue(sch, ot, os, self.capacity)
        return sch

    def _load(
        self, block: Block, loop: LoopRV | None, groups: LoopRV, versions: int, pieces: tuple[int, int] | None
    ) -> None:
        """Place a load at `loop`, or at each step of `groups`. `pieces`, if given, is an axis and the size of the
        pieces into which the load is divided along it. One instruction covers the channels, columns and rows of an
        image, or all axes of the kernels.
        """
        sch = self.sch
        sch.compute_at(block, groups if loop is None else loop, preserve_unit_loops=True)
        inner = 4 if sch.get(block).name_hint == "image" else 6
        if pieces is not None:
            axes = last_loops(sch, block, 6)
            axis, size = pieces
            over, within = sch.split(axes[axis], [None, size])
            sch.reorder(*axes[: 6 - inner], over, *axes[6 - inner : axis], within)
        on_engine(sch, block, "load", inner, versions)
