"""Reductions and the stages that run with them row by row: sums, maxima, pooling, softmax, layer normalisation and
similar.

    parallel task
      serial rows, one axis of them divided among tasks
        stage after stage of the row: reductions into registers, columns in vectors

If the reduction axis is contiguous, vectors are along it: each lane reduces its own part, several vectors at once to
cover the latency of the addition, and lanes are combined at the end. Otherwise vectors are across rows: each lane is a
separate row, several vectors of rows at once, with the loops over the reduction axes inside. Windows that extend past
the border have shorter loops there; if the border crosses the lanes, the rows along it are computed one by one.

What one stage passes to the next stays in registers (a value per row) or in a small buffer (a row).
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir import TensorLoad

from ..decide.vector.elementwise import decide_elementwise
from ..hardware.description import Cpu
from ..lowering.registers import small_buffer
from ..lowering.staged_func import work_of, write_stages
from ..lowering.vector_statement import Resolve
from ..match.row_buffer import fits_a_strip
from ..match.row_group import RowGroup, row_groups
from ..match.stages import StagedProgram
from .elementwise import ElementwiseEmitter
from .row_emitter import RowEmitter


def apply(program: StagedProgram, cpu: Cpu) -> tirx.PrimFunc:
    """Return the function as groups of stages, each its own parallel region."""
    tiling = decide_elementwise(work_of(program.stages), cpu)
    stages = program.stages
    first = next((stage for stage in stages if stage.reduced), None)
    fuse = tiling.tasks == 1 or first is None or first.elements >= tiling.tasks
    groups = row_groups(stages, fuse)
    own = [_own(group, groups, program.kept) for group in groups]

    def emit(resolve: Resolve) -> None:
        shared = [b for b in program.kept if not any(b.same_as(o) for local in own for o in local)]
        real = [(b, small_buffer(tuple(b.shape), str(b.dtype))) for b in shared]

        def everywhere(load: TensorLoad) -> tirx.Expr:
            found = next((actual for flat, actual in real if load.source.same_as(flat)), None)
            return resolve(load) if found is None else tirx.BufferLoad(found, list(load.indices))

        for group, local in zip(groups, own, strict=True):
            if len(group.stages) == 1 and not group.stages[0].reduced:
                ElementwiseEmitter(group.stages, tiling, everywhere).emit()
            else:
                RowEmitter(group, tiling, everywhere, local).emit()

    return write_stages(program, tiling, emit)


def _own(group: RowGroup, groups: list[RowGroup], kept: tuple[tirx.Buffer, ...]) -> list[tirx.Buffer]:
    """Return the buffers that only this group reads, and that it can keep in registers or in a small buffer."""
    elsewhere = [load.source for other in groups if other is not group for s in other.stages for load in s.reads()]
    columns = dict(group.columns)
    return [
        b
        for b in kept
        if any(b.same_as(w) for w in group.buffers())
        and not any(b.same_as(read) for read in elsewhere)
        and (b not in columns or fits_a_strip(columns[b]))
    ]
