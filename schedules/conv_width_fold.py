"""W-fold as a rewriting of TIR: neighbours along W fill the row that few channels leave empty.

    image   [n, h, w, c]    ->  [n, h, w // ws, c // pci, (w % ws) * pci + c % pci]
    kernel  [co, kh, kw, c] ->  [co, kh, kw, c // pci, c % pci]
    block   (.., x, .., c)  ->  (.., x // ws, x % ws, .., c // pci, c % pci)

Channels are padded to whole blocks of pci with zeros, columns of the output to whole rows of ws points, which are
dropped on the way out. Only a stride of 1 along W folds; a larger one is folded into channels first (page 05).
"""

from __future__ import annotations

from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule
from tvm.s_tir.schedule import SBlockRV

from ..errors import UnsupportedOperator
from ..lowering.conv_block import Fold, checked_weights, conv_block
from .conv_stride_fold import fold_strides


def fold_width(sch: s_tir.Schedule, block: SBlockRV, pci: int, ws: int, weights: str = "plain") -> SBlockRV:
    """Fold `ws` neighbours along W and blocks of `pci` channels of the convolution `block` into rows of ws * pci.

    `weights` as in fold_strides, and likewise for what is recorded. UnsupportedOperator for what is not the block of a
    convolution of NHWC images in one group, for a stride along W, and where a row has fewer than `ws` points
    (paragraph 86). Source: page 05.
    """
    checked_weights(weights)
    conv = conv_block(sch, block)
    name = sch.get(block).name_hint
    if conv.stride[1] > 1:
        raise UnsupportedOperator(
            f"block {name!r}: stride {conv.stride[1]} along W; accepted: 1, so fold strides first"
        )
    columns = int(conv.buffer(conv.image).shape[2])
    if pci < 1 or not 1 <= ws <= columns:
        raise UnsupportedOperator(
            f"block {name!r}: pci = {pci}, ws = {ws}; accepted: pci from 1 on, ws of 1 to the row's {columns} columns"
        )
    # Points beyond the output's last read columns that the padded image may not have.
    needed = -(-conv.extent["x"] // ws) * ws + (conv.extent["kw"] - 1) * conv.dilation[1]
    longer = -(-needed // ws) * ws
    image = [
        lambda n, h, w, c: (n, h, w, c // pci, c % pci),
        lambda n, h, w, block, c: (n, h, w // ws, block, w % ws * pci + c),
    ]
    if longer > -(-columns // ws) * ws:
        # Rows of one piece, padded to its length.
        image[1:] = [
            lambda n, h, w, block, c: (n, h, w // longer, w % longer, block, c),
            lambda n, h, one, w, block, c: (n, h, w // ws, block, w % ws * pci + c),
        ]
    conv.fold(
        Fold(
            multiples={"x": ws, "c": pci},
            split={
                "x": (lambda at: at["x"] // ws, lambda at: at["x"] % ws),
                "c": (lambda at: at["c"] // pci, lambda at: at["c"] % pci),
            },
            join=lambda piece: {
                **{axis: parts[0] for axis, parts in piece.items()},
                "x": piece["x"][0] * ws + piece["x"][1],
                "c": piece["c"][0] * pci + piece["c"][1],
            },
            image=tuple(image),
        ),
        weights,
    )
    return block


@derived_object
class FoldWidth(PyScheduleRule):
    """Adds to the space of each convolution the one with strides and width folded, rows being `row` elements long.

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
        """The largest power of two up to a row that pads `channels` least."""
        sizes = [1 << i for i in range(self.row.bit_length()) if 1 << i <= self.row]
        return min(sizes, key=lambda size: (-channels % size, -size))

    def clone(self) -> FoldWidth:
        return FoldWidth(self.row)
