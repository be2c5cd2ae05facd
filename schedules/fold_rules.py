"""MetaSchedule rules that add folded convolutions to a search space: stride-fold, and W-fold after it."""

from __future__ import annotations

from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule
from tvm.s_tir.schedule import SBlockRV

from ..errors import UnsupportedOperator
from ..lowering.conv_block import conv_block
from ..lowering.fold_moves import fold_strides, fold_width


@derived_object
class FoldStrides(PyScheduleRule):
    """Adds to the space of each convolution with a stride along W the one with the stride folded."""

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        pass

    def apply(self, sch: s_tir.Schedule, block: SBlockRV) -> list[s_tir.Schedule]:
        try:
            stride = conv_block(sch, block).stride[1]
        except UnsupportedOperator:
            return [sch]
        if stride == 1:
            return [sch]
        other = sch.copy()
        try:
            fold_strides(other, block)
        except UnsupportedOperator:
            return [sch]
        return [sch, other]

    def clone(self) -> FoldStrides:
        return FoldStrides()


@derived_object
class FoldWidth(PyScheduleRule):
    """Adds to the space of each convolution the one with strides and width folded, with rows of `row` elements.

    The block of channels is the largest power of two up to `row` that pads the folded channels least.
    """

    def __init__(self, row: int = 16) -> None:
        self.row = row

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        pass

    def apply(self, sch: s_tir.Schedule, block: SBlockRV) -> list[s_tir.Schedule]:
        other = sch.copy()
        try:
            fold_strides(other, block)
            pci = self.block_of_channels(conv_block(other, block).extent["c"])
            fold_width(other, block, pci, self.row // pci)
        except UnsupportedOperator:
            return [sch]
        return [sch, other]

    def block_of_channels(self, channels: int) -> int:
        """Return the largest power of two up to a row that pads `channels` least."""
        sizes = [1 << i for i in range(self.row.bit_length()) if 1 << i <= self.row]
        return min(sizes, key=lambda size: (-channels % size, -size))

    def clone(self) -> FoldWidth:
        return FoldWidth(self.row)
