"""MetaSchedule rules that add the decided split-K or partitions of matrix multiplications to their search space."""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule
from tvm.s_tir.schedule import SBlockRV

from ..decide.known import tiling_for
from ..decide.options import Options
from ..decide.tiling import GemmTiling
from ..errors import TilingError, UnsupportedOperator
from ..hardware.description import Hardware
from ..lowering.product_moves import partition, product_axes, split_k
from ..match import GemmProgram, match
from .cpu_schedule import around_product


def _decided(sch: s_tir.Schedule, block: SBlockRV, hardware: Hardware) -> GemmTiling | None:
    """Return the decision for the only function of a schedule if `block` is its matrix multiplication, else None."""
    functions = [(g.name_hint, f) for g, f in sch.mod.functions.items() if isinstance(f, tirx.PrimFunc)]
    try:
        product_axes(sch, block)
        ((name, func),) = functions
        program = match(func, name)
        if not isinstance(program, GemmProgram):
            return None
        tiling = tiling_for(program.workload, hardware, Options(), around_product(program, False))
    except (TilingError, ValueError):
        return None
    return tiling if isinstance(tiling, GemmTiling) else None


@derived_object
class SplitK(PyScheduleRule):
    """Adds to the space of each matrix multiplication whose decision divides K among cores the one with this
    split-K."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        pass

    def apply(self, sch: s_tir.Schedule, block: SBlockRV) -> list[s_tir.Schedule]:
        tiling = _decided(sch, block, self.hardware)
        if tiling is None or (tiling.threads_k or 1) == 1:
            return [sch]
        other = sch.copy()
        try:
            split_k(other, block, tiling.threads_k or 1)
        except UnsupportedOperator:
            return [sch]
        return [sch, other]

    def clone(self) -> SplitK:
        return SplitK(self.hardware)


@derived_object
class Partition(PyScheduleRule):
    """Adds to the space of each matrix multiplication the one in the partitions of its decision."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        pass

    def apply(self, sch: s_tir.Schedule, block: SBlockRV) -> list[s_tir.Schedule]:
        tiling = _decided(sch, block, self.hardware)
        if tiling is None:
            return [sch]
        other = sch.copy()
        sizes = (tiling.partition_m, tiling.partition_n, tiling.partition_k)
        partition(other, block, *sizes, order=tiling.outer_order)
        return [sch, other]

    def clone(self) -> Partition:
        return Partition(self.hardware)
