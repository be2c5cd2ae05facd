"""Matrix multiplications and convolutions on a machine with a matrix engine and two input buffers (analytical split-K
partition, design page 01).

The decision has two steps. The partition sets what the buffers hold, and gives traffic and utilisation in closed form.
Then the steps of the program are chosen: loads and multiplications overlap only where they alternate in pieces smaller
than a buffer.
"""

from __future__ import annotations

from dataclasses import fields, replace

from ..errors import HardwareError
from ..hardware.description import Hardware
from ..workload import ConvWorkload, GemmWorkload
from .conv.blocks import conv_blocks
from .conv.conv_blocks import ConvBlocks, ConvPartition
from .gemm.best import Prefer
from .gemm.chunks import product_chunks
from .gemm.inner_tile import blocks_covered, covered_part
from .gemm.partition import decide_partition, order_named, partition_tiling
from .gemm.program_choice import best_program, leaves_for_free
from .gemm.traffic import ceil_div, product_on
from .options import Options
from .tiling import GemmTiling, Reason


def decide_near_tile(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, options: Options, *, vector: bool = False
) -> GemmTiling:
    """Return the complete decision on `hardware.near_tile`. Options and errors are those of decide_partition; `vector`
    is described in Surroundings.

    The decision is that of the matrix multiplication alone for transposed convolutions, for convolutions whose
    rectangles of points do not fit the buffers although a run of points would, and for a literal partition that does
    not fit.
    """
    tiling = best_partition(workload, hardware, options)
    if isinstance(workload, GemmWorkload):
        return with_chunks(tiling, workload, hardware, vector) if tiling.feasible else tiling
    if workload.transposed:
        return tiling
    try:
        return with_blocks(tiling, workload, hardware, vector, options.prefer)
    except HardwareError as error:
        return replace(tiling, reasons=(*tiling.reasons, Reason("blocks", "none", str(error))))


def best_partition(workload: GemmWorkload | ConvWorkload, hardware: Hardware, options: Options) -> GemmTiling:
    """Return the partition alone. For a matrix multiplication this is the partition whose program is best by the
    caller's preference, otherwise the one of the formulas. Errors are those of decide_partition."""
    tiling = decide_partition(
        workload,
        hardware,
        mode=options.mode,
        prefer=options.prefer,
        acc_factor=options.acc_factor,
        outer_preset=options.outer_preset,
        inner_preset=options.inner_preset,
    )
    if isinstance(workload, ConvWorkload) or options.mode != "best":
        return tiling
    split_order = order_named("outer_preset", options.outer_preset, "mn")
    config = best_program(product_on(workload, hardware), tiling, hardware, options.prefer, split_order)
    if config is None:
        return tiling
    preset = options.inner_preset is not None
    return partition_tiling(product_on(workload, hardware), config, hardware, "best", tiling.inner_order, preset)


def with_chunks(tiling: GemmTiling, workload: GemmWorkload, hardware: Hardware, vector: bool) -> GemmTiling:
    """Add the steps of the program to a decision that lacks them; `vector` is described in Surroundings."""
    if tiling.chunks is not None:
        return tiling
    p = product_on(workload, hardware)
    chunks = product_chunks(p, tiling, hardware)
    tiling = _executed(tiling, p.gemm_cycles, chunks.cycles, hardware)
    if vector:
        tile, sizes, block = (chunks.tile_m, chunks.tile_n), (p.m, p.n), (p.block_m, p.block_n)
        sync_m, sync_n = covered_part(tile, sizes, block, _covered(workload, hardware))
        chunks = replace(chunks, sync_m=sync_m, sync_n=sync_n)
    if chunks.stays:
        other = "b" if chunks.stays == "a" else "a"
        why = (
            f"a block of {chunks.stays.upper()} stays resident while {other.upper()} streams past; the fastest of the "
            "simulated steps"
        )
    else:
        why = "split-K: steps of A and of B alternate in the buffers, at the depth with the least estimated time"
    return replace(
        tiling,
        chunks=chunks,
        reasons=(*tiling.reasons, Reason("chunks", chunks.size, why), _synchronised(chunks.sync_m, vector)),
    )


def with_blocks(
    tiling: GemmTiling, workload: ConvWorkload, hardware: Hardware, vector: bool, prefer: Prefer = "utilisation"
) -> ConvPartition:
    """Add the best blocks by `prefer` to a decision that lacks them; `vector` is described in Surroundings. Raises
    HardwareError if no block fits."""
    if isinstance(tiling, ConvPartition):
        return replace(tiling, blocks=_in_synchronisations(tiling.blocks, workload, hardware, vector))
    order = tiling.outer_order if tiling.mode == "seed" else None
    blocks = conv_blocks(workload, hardware, order=order, prefer=prefer)
    blocks = _in_synchronisations(blocks, workload, hardware, vector)
    unit = hardware.near_tile
    assert unit is not None  # conv_blocks has already refused machines without it
    tiling = _executed(tiling, workload.macs / unit.macs(workload.a_bytes), blocks.cycles, hardware)
    own = {field.name: getattr(tiling, field.name) for field in fields(tiling) if field.name != "reasons"}
    why = "blocks of the output; their inputs are loaded with the halo; the fastest of those simulated"
    return ConvPartition(
        blocks=blocks,
        **own,
        reasons=(*tiling.reasons, Reason("blocks", blocks.size, why), _synchronised(blocks.sync_m, vector)),
    )


def _executed(tiling: GemmTiling, at_peak: float, cycles: float, hardware: Hardware) -> GemmTiling:
    """Replace the utilisation of the formulas by that of the program, which takes `cycles`; the formulas' value remains
    in the reason as an upper bound. Machines without store costs and literal formulas keep the formulas' value."""
    if tiling.mode != "best" or leaves_for_free(hardware):
        return tiling
    found = min(1.0, at_peak / cycles)
    why = f"the program takes {cycles:.0f} cycles; upper bound {tiling.utilisation:.1%}: "
    reasons = (
        reason._replace(value=found, why=why + reason.why) if reason.field == "utilisation" else reason
        for reason in tiling.reasons
    )
    return replace(tiling, utilisation=found, reasons=tuple(reasons))


def _in_synchronisations(blocks: ConvBlocks, workload: ConvWorkload, hardware: Hardware, vector: bool) -> ConvBlocks:
    """Set the part of a block that one synchronisation covers: whole rows of points for some of the output channels."""
    unit = hardware.near_tile
    assert unit is not None  # conv_blocks has already refused machines without it
    if not vector:
        return replace(blocks, sync_m=blocks.tile_m, sync_rows=blocks.tile_rows)
    tile, sizes = (blocks.tile_rows, blocks.tile_m), (workload.ho, workload.co // workload.groups)

    def count(rows: int, channels: int) -> int:
        return ceil_div(rows * blocks.columns, unit.block_n) * ceil_div(channels, unit.block_m)

    sync_rows, sync_m = covered_part(tile, sizes, (1, unit.block_m), _covered(workload, hardware), count)
    return replace(blocks, sync_m=sync_m, sync_rows=sync_rows)


def _covered(workload: GemmWorkload | ConvWorkload, hardware: Hardware) -> int:
    assert hardware.near_tile is not None
    return blocks_covered(hardware.near_tile.sync_granularity, workload.a_bytes)


def _synchronised(sync_m: int, vector: bool) -> Reason:
    why = "what one synchronisation with the vector engine covers (near_tile.sync_granularity)"
    return Reason("sync_m", sync_m, why if vector else "a whole tile, as there is no epilogue")
