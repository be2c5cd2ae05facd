"""Stride-fold as a rewriting of TIR: a stride along W moves into channels, so that a convolution of stride 1 is left.

    image   [n, h, w, c]    ->  [n, h, w // sw, (w % sw) * C + c]
    kernel  [co, kh, kw, c] ->  [co, kh, kw // sw, (kw % sw) * C + c]
    stride  sw              ->  1

The image is folded where it is padded, so that one pass writes both the border and the fold; an image without border,
or one that others read too, is copied once. Columns up to a multiple of sw are zeros in image and kernel (page 05).
"""

from __future__ import annotations

from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule
from tvm.s_tir.schedule import SBlockRV

from ..errors import UnsupportedOperator
from ..lowering.conv_block import Fold, checked_weights, conv_block


def fold_strides(sch: s_tir.Schedule, block: SBlockRV, weights: str = "plain") -> SBlockRV:
    """Fold the stride along W of the convolution `block` into channels; a stride of 1 is left as it is.

    Its iterators become (n, y, x, co, kh, kw', c') of stride 1 along W, of extents ceil(kw/sw) and sw*c. `weights`
    "plain" folds the kernels in a block of their own, which depends on them alone and may be evaluated once; "folded"
    expects the parameter in folded layout, with zeros where the kernel has no tap. Where there are such zeros TVM notes
    them as an assumption, behind which it refuses moves such as compute_at: fold last then.

    Only recorded instructions are used, so that a trace replays them. UnsupportedOperator for what is not the block of
    a convolution of NHWC images in one group, and for a kernel dilated along W. Source: page 05.
    """
    checked_weights(weights)
    conv = conv_block(sch, block)
    sw, channels = conv.stride[1], conv.extent["c"]
    if sw == 1:
        return block
    if conv.dilation[1] > 1:
        raise UnsupportedOperator(
            f"block {sch.get(block).name_hint!r}: stride {sw} along W with kernels dilated by {conv.dilation[1]}; "
            "accepted: kernels without dilation along W, such as the dilated one with its zeros"
        )
    conv.fold(
        Fold(
            multiples={"kw": sw},
            split={"kw": (lambda at: at["kw"] // sw,), "c": (lambda at: at["kw"] % sw * channels + at["c"],)},
            join=lambda piece: {
                **{axis: parts[0] for axis, parts in piece.items()},
                "kw": piece["kw"][0] * sw + piece["c"][0] // channels,
                "c": piece["c"][0] % channels,
            },
            image=(lambda n, h, w, c: (n, h, w // sw, w % sw * channels + c),),
        ),
        weights,
    )
    return block


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
