"""Stride-fold and W-fold of a convolution by TVM schedule primitives, which a trace can replay (design page 05).

A stride along W is folded into channels, leaving a convolution of stride 1:

    image   [n, h, w, c]    ->  [n, h, w // sw, (w % sw) * C + c]
    kernel  [co, kh, kw, c] ->  [co, kh, kw // sw, (kw % sw) * C + c]

The image is folded where it is padded, so that one pass does both; an image without padding, or with other readers, is
copied once. Columns up to a multiple of sw are zero in image and kernel.

Adjacent columns along W fill the row that few channels leave empty:

    image   [n, h, w, c]    ->  [n, h, w // ws, c // pci, (w % ws) * pci + c % pci]
    kernel  [co, kh, kw, c] ->  [co, kh, kw, c // pci, c % pci]
    block   (.., x, .., c)  ->  (.., x // ws, x % ws, .., c // pci, c % pci)

Channels are padded with zeros to whole blocks of pci, output columns to whole rows of ws points, which are dropped when
stored. W-fold requires a stride of 1 along W; a larger one is folded into channels first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import s_tir
from tvm.s_tir.schedule import SBlockRV

from ..errors import UnsupportedOperator
from .conv_block import Fold, checked_weights, conv_block


def fold_strides(sch: s_tir.Schedule, block: SBlockRV, weights: str = "plain") -> SBlockRV:
    """Fold the stride along W of the convolution `block` into channels; a stride of 1 is unchanged.

    The block's iterators become (n, y, x, co, kh, kw', c') with stride 1 along W and extents ceil(kw/sw) and sw*c.

    weights: "plain" folds the kernels in a separate block, which depends only on them and may be evaluated once;
    "folded" expects the parameter in folded layout, with zeros where the kernel has no tap. TVM records such zeros as
    an assumption, after which it refuses primitives such as compute_at, so fold last in that case.

    Only recorded instructions are used, so a trace can replay them. Raises UnsupportedOperator if the block is not a
    convolution of NHWC images in one group, and for a kernel dilated along W.
    """
    checked_weights(weights)
    conv = conv_block(sch, block)
    sw, channels = conv.stride[1], conv.extent["c"]
    if sw == 1:
        return block
    if conv.dilation[1] > 1:
        raise UnsupportedOperator(
            f"block {sch.get(block).name_hint!r}: stride {sw} along W with kernels dilated by {conv.dilation[1]}; "
            "expected kernels without dilation along W, such as the expanded kernel with its zeros"
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


def fold_width(sch: s_tir.Schedule, block: SBlockRV, pci: int, ws: int, weights: str = "plain") -> SBlockRV:
    """Fold `ws` adjacent columns along W and blocks of `pci` channels of the convolution `block` into rows of ws * pci.

    weights: as in fold_strides; the same holds for recorded instructions. Raises UnsupportedOperator if the block is
    not a convolution of NHWC images in one group, for a stride along W, and if a row has fewer than `ws` points.
    """
    checked_weights(weights)
    conv = conv_block(sch, block)
    name = sch.get(block).name_hint
    if conv.stride[1] > 1:
        raise UnsupportedOperator(
            f"block {name!r}: stride {conv.stride[1]} along W; expected 1; call fold_strides first"
        )
    columns = int(conv.buffer(conv.image).shape[2])
    if pci < 1 or not 1 <= ws <= columns:
        raise UnsupportedOperator(
            f"block {name!r}: pci = {pci}, ws = {ws}; expected pci of at least 1 and ws from 1 to the row's {columns} "
            "columns"
        )
    # Points past the end of the output read columns that the padded image may not have.
    needed = -(-conv.extent["x"] // ws) * ws + (conv.extent["kw"] - 1) * conv.dilation[1]
    longer = -(-needed // ws) * ws
    image: list[Callable[..., Sequence[Any]]] = [
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
