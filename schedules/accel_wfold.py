"""Convolutions, and matrix multiplications as convolutions with one tap, on the W-fold engine.

    kernels, in pieces of an output channel of each sub-unit
    images and planes
      the image, in pieces of rows, loaded into a zeroed buffer or folded on the chip
      blocks of output channels, which start when their kernels have arrived
        blocks of output rows; also of columns if there are few rows
          groups, planes of a kernel
            WCONV: output channels, rows, columns, kernel rows, kernel columns, channels; one instruction
          the epilogue on the vector engine, and the store

If the chip cannot hold two images, rows are loaded with their halo for each block of output rows, and the loop over
blocks of output channels is inside.

Stride-fold changes how the buffers are read: a folded column is as many columns as the stride. Rows move only if the
stride does not divide the width, and the machine description says where: during the load from external memory ("load"),
from one buffer to another ("local"), or from the tail of a buffer to its head ("in place").
"""

from __future__ import annotations

from math import prod

import tvm
from tvm import s_tir

from ..decide.conv.conv_tiling import ConvTiling
from ..decide.conv.stride_fold import StrideFold
from ..decide.fold.wfold import product_as_convolution
from ..decide.known import tiling_for
from ..decide.options import Options
from ..decide.surroundings import Surroundings
from ..hardware.description import Hardware
from ..hardware.machine import Machine
from ..lowering.accel.fold import MOVES_IN_PLACE, bring_image
from ..lowering.accel.image import (
    ConvOperands,
    ImageLayout,
    Operands,
    ProductOperands,
    folded_layout,
    types_of,
    write_image_layout,
)
from ..lowering.accel.moves import LoopRV, last_loops, on_engine
from ..lowering.accel.place_epilogue import EpilogueCapacity, finished, place_epilogue
from ..lowering.prim_func import DECISION, ScheduledOperator
from ..match import ConvProgram, GemmProgram
from ..operand_types import element_bytes
from .accel_product import SUMS


def apply(program: ConvProgram | GemmProgram, hardware: Hardware, options: Options) -> ScheduledOperator:
    """Return the operator tiled as decided, or by the configuration in `options`, as TIR with its blocks assigned to
    the engines of `hardware.w_fold`.

    Raises UnsupportedOperator for operands that are computed or of unsupported types.
    """
    tiling = tiling_for(program.workload, hardware, options, Surroundings())
    assert isinstance(tiling, ConvTiling)
    operands: Operands
    if isinstance(program, ConvProgram):
        workload, operands = program.workload, ConvOperands(program)
    else:
        workload, operands = product_as_convolution(program.workload), ProductOperands(program)
    fold = StrideFold(workload)
    unit = hardware.w_fold
    assert unit is not None  # decide_wfold has refused machines without it
    place = unit.fold_place if fold.moves_data else "load"
    form = folded_layout(fold)
    func = write_image_layout(
        program, operands, form, types_of(program, SUMS[4]), bring_image=bring_image(place, operands, form)
    )
    sch = s_tir.Schedule(tvm.IRModule({program.name: func}), debug_mask="none")
    sch.work_on(program.name)
    _schedule(sch, form, tiling, unit.sub_units, place, Machine(hardware))
    return ScheduledOperator(tiling, finished(sch, program.name, hardware).with_attr(DECISION, tiling.to_json()))


def _schedule(
    sch: s_tir.Schedule, form: ImageLayout, tiling: ConvTiling, sub_units: int, place: str, machine: Machine
) -> None:
    assert tiling.co_block is not None and tiling.pci is not None and tiling.pco is not None
    assert tiling.instruction_rows is not None and tiling.instruction_columns is not None
    sums = sch.get_sblock("sums")
    n, d, y, x, g, o, kd, kh, kw, c = sch.get_loops(sums)
    rows, columns = tiling.instruction_rows, tiling.instruction_columns
    yo, yi = sch.split(y, [None, rows])
    xo, xi = sch.split(x, [None, columns])
    oo, oi = sch.split(o, [None, tiling.co_block])
    whole = place == "in place" or _whole_image(form, sch, machine)
    if whole:
        sch.reorder(n, d, oo, yo, xo, g, kd, oi, yi, xi, kh, kw, c)
    else:
        sch.reorder(n, d, yo, xo, oo, g, kd, oi, yi, xi, kh, kw, c)
    on_engine(sch, sums, "wfold", 6, 2)
    for name, value in (("pci", tiling.pci), ("pco", tiling.pco), ("block", tiling.co_block // sub_units)):
        sch.annotate(sums, f"vsim.{name}", value)
    last = xo if whole else oo
    place_epilogue(sch, last, last, EpilogueCapacity(None, 1, 1))
    if place == "in place":
        _rows_in_place(sch)
    else:
        piece = rows * form.stride[1], columns * form.fold
        _bring(sch, "image", n if whole else xo, "load" if place == "load" else "vector", piece)
        if place == "local":
            _bring(sch, "raw", n if whole else xo, "load", piece)
    _bring_kernels(sch, min(tiling.co_block, sub_units))


def _whole_image(form: ImageLayout, sch: s_tir.Schedule, machine: Machine) -> bool:
    """Return whether two images fit at once; otherwise rows are loaded with their halo for each block of output
    rows."""
    capacity = machine.capacity("b")
    element = element_bytes(str(sch.get(sch.get_sblock("image")).body.buffer.dtype))
    return capacity is None or 2 * form.groups * form.ci * prod(form.size) * element <= capacity


def _bring(sch: s_tir.Schedule, name: str, loop: LoopRV, engine: str, piece: tuple[int, int]) -> None:
    """Place a block that loads the image at `loop`, in pieces of rows and columns."""
    block = sch.get_sblock(name)
    sch.compute_at(block, loop, preserve_unit_loops=True)
    axes = last_loops(sch, block, 6)
    over, rows = sch.split(axes[2], [None, piece[0]])
    aside, columns = sch.split(axes[3], [None, piece[1]])
    sch.reorder(*axes[:2], over, aside, rows, columns)
    on_engine(sch, block, engine, 4, 2)


def _rows_in_place(sch: s_tir.Schedule) -> None:
    """Assign the blocks that move rows within their buffer."""
    for block in sch.get_child_blocks(sch.get_sblock("fold")):
        name = sch.get(block).name_hint
        if name == "raw":
            on_engine(sch, block, "load", 4, 1)
        elif name in MOVES_IN_PLACE:
            on_engine(sch, block, "vector", 3, 1)


def _bring_kernels(sch: s_tir.Schedule, block_size: int) -> None:
    """Load the kernels in pieces of a few output channels: if both share a port, pieces of the image, which the first
    output channels also need, are loaded in between."""
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        if sch.get(block).name_hint in ("kernels", "no_kernels"):
            sch.split(sch.get_loops(block)[1], [None, block_size])
            on_engine(sch, block, "load", 5, 1)
