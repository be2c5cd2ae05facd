"""Matrix multiplications and convolutions on a machine with a matrix engine and two input buffers (design page 01).

Two steps make one decision. The partition says what the buffers hold, from which traffic and utilisation follow in
closed form. The program's own pieces come next: engines overlap where loads and multiplications take turns in pieces
that are smaller than a buffer.
"""

from __future__ import annotations

from dataclasses import fields, replace

from ..errors import HardwareError
from ..hardware.description import Hardware
from ..workload import ConvWorkload, GemmWorkload
from .conv.blocks import conv_blocks
from .conv.cut import ConvPartition
from .gemm.chunks import product_chunks
from .gemm.partition import decide_partition
from .gemm.traffic import product_on
from .options import Options
from .tiling import GemmTiling, Reason


def decide_near_tile(workload: GemmWorkload | ConvWorkload, hardware: Hardware, options: Options) -> GemmTiling:
    """The whole decision on `hardware.near_tile`; what `options` mean and errors as decide_partition.

    A convolution whose rectangles of points do not fit the buffers, although a run of points would, is decided as its
    matrix multiplication alone; so is a transposed one, and a literal cut that fits no buffer.
    """
    tiling = decide_partition(
        workload,
        hardware,
        mode=options.mode,
        prefer=options.prefer,
        acc_factor=options.acc_factor,
        outer_preset=options.outer_preset,
        inner_preset=options.inner_preset,
    )
    if isinstance(workload, GemmWorkload):
        return with_chunks(tiling, workload, hardware) if tiling.feasible else tiling
    if workload.transposed:
        return tiling
    try:
        return with_blocks(tiling, workload, hardware)
    except HardwareError as error:
        return replace(tiling, reasons=(*tiling.reasons, Reason("blocks", "none", str(error))))


def with_chunks(tiling: GemmTiling, workload: GemmWorkload, hardware: Hardware) -> GemmTiling:
    """The decision with the pieces of its program, unless it has them."""
    if tiling.chunks is not None:
        return tiling
    chunks = product_chunks(product_on(workload, hardware), tiling, hardware)
    if chunks.stays:
        other = "b" if chunks.stays == "a" else "a"
        why = (
            f"a partition of {chunks.stays.upper()} stays while {other.upper()} passes by; of the step sizes that were "
            "timed the fastest"
        )
    else:
        why = "K is split: steps of A and of B take turns in the buffers, of the depth with the least estimated time"
    return replace(
        tiling,
        chunks=chunks,
        reasons=(*tiling.reasons, Reason("chunks", chunks.size, why)),
    )


def with_blocks(tiling: GemmTiling, workload: ConvWorkload, hardware: Hardware) -> ConvPartition:
    """The decision with its blocks, unless it has them. HardwareError where none fits."""
    if isinstance(tiling, ConvPartition):
        return tiling
    blocks = conv_blocks(workload, hardware, order=tiling.outer_order if tiling.mode == "seed" else None)
    own = {field.name: getattr(tiling, field.name) for field in fields(tiling) if field.name != "reasons"}
    why = f"rectangles of points with their halo, the fastest of those timed: {blocks.cycles:.0f} cycles"
    return ConvPartition(
        blocks=blocks,
        **own,
        reasons=(*tiling.reasons, Reason("blocks", blocks.size, why)),
    )
