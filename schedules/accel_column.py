"""Matrix-vector multiplications on the column engine.

    batch
      load of the vector
      pieces of rows
        pieces of columns
          load of the piece of the matrix
          COLMV of the piece, one instruction
        the epilogue on the vector engine, and the store

The matrix is in memory b, in row or column order as in the source, the vector in memory a.
"""

from __future__ import annotations

from tvm import s_tir

from ..decide.known import tiling_for
from ..decide.options import Options
from ..decide.rnn.column_product import ColumnTiling
from ..decide.surroundings import Surroundings
from ..hardware.description import Hardware
from ..lowering.accel.moves import Block, LoopRV, below, on_engine
from ..lowering.prim_func import DECISION, ScheduledOperator
from ..match import ConvProgram, GemmProgram
from .accel_product import SUMS, ProductOnChip


def apply(program: GemmProgram | ConvProgram, hardware: Hardware, options: Options) -> ScheduledOperator:
    """Return the matrix-vector multiplication, tiled as decided for `hardware.column`, as TIR with its blocks assigned
    to engines. Raises UnsupportedOperator for operands that are computed or of unsupported types."""
    assert isinstance(program, GemmProgram)  # a machine of this kind takes no convolutions
    tiling = tiling_for(program.workload, hardware, options, Surroundings())
    assert isinstance(tiling, ColumnTiling)
    sch = ColumnSchedule(program, tiling).write()
    main = sch.mod[program.name].with_attr(DECISION, tiling.to_json())
    return ScheduledOperator(tiling, main)


class ColumnSchedule(ProductOnChip):
    """Builds the schedule of one matrix-vector multiplication."""

    def __init__(self, program: GemmProgram, tiling: ColumnTiling) -> None:
        self.tiling = tiling
        self.matrix_first = program.workload.n == 1
        memories = {"memory_a": "b", "memory_b": "a"} if self.matrix_first else {}
        super().__init__(program, SUMS[4], memory_sums="acc", **memories)

    def write(self) -> s_tir.Schedule:
        sch, tiling = self.sch, self.tiling
        batch, m, n, k = self.bring_on_chip()
        rows, single = (m, n) if self.matrix_first else (n, m)
        over_rows, rows = sch.split(rows, [None, tiling.rows])
        over_columns, k = sch.split(k, [None, tiling.columns])
        sch.reorder(*batch, over_rows, over_columns, single, rows, k)
        on_engine(sch, self.product, "column", 3, tiling.sums)
        for name, value in (("ep", tiling.ep), ("vp", tiling.vp)):
            sch.annotate(self.product, f"vsim.{name}", value)
        matrix, vector = (self.load_a, self.load_b) if self.matrix_first else (self.load_b, self.load_a)
        sch.compute_at(matrix, over_columns, preserve_unit_loops=True)
        on_engine(sch, matrix, "load", 2, tiling.versions)
        if batch:
            sch.compute_at(vector, batch[-1], preserve_unit_loops=True)
        on_engine(sch, vector, "load", 2, tiling.vectors)
        self._place_epilogue(over_rows)
        return sch

    def _place_epilogue(self, loop: LoopRV) -> None:
        """Place the epilogue and the store of a piece of rows at its loop."""
        sch = self.sch
        first, *rest = self.behind
        for block in self.behind:
            sch.reverse_compute_at(block, loop, preserve_unit_loops=True)
        last: Block = rest[0] if rest else first
        on_engine(sch, last, "store", below(sch, last, loop))
        if rest:
            for load in self.further_operands(first):
                sch.compute_at(load, loop, preserve_unit_loops=True)
                on_engine(sch, load, "load", below(sch, load, loop), 2)
            on_engine(sch, first, "vector", below(sch, first, loop), 2)
