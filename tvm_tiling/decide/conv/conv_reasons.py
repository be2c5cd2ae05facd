"""Reasons for the choices of a direct convolution on a CPU."""

from __future__ import annotations

from ...figures import quantity
from ..gemm.microkernel import registers_of
from ..tiling import Reason
from .conv_cost import ConvConfig, ConvModel
from .shape import ConvShape


def direct_reasons(
    form: str, shape: ConvShape, model: ConvModel, config: ConvConfig, *, adjacent: bool
) -> tuple[Reason, ...]:
    """Return the reasons for the fields of a ConvTiling; `adjacent`: the input's channels are contiguous."""
    cpu, pixels = model.cpu, config.rows * config.columns
    registers = registers_of(pixels, config.vectors, rows=model.engine.rows)
    tiles = -(-shape.w.points // config.columns)
    band = int(model.band_bytes(config)) >> 10
    taps = shape.d.taps * shape.h.taps * (1 if config.merged else shape.w.taps)
    rows = quantity(shape.planes * shape.h.points, "row")
    whole = config.block_taps >= taps
    return (
        Reason("form", form, _form(shape)),
        Reason(
            "tile_rows",
            config.rows,
            f"{quantity(pixels, 'pixel')} x {quantity(config.vectors, 'vector')}: {registers} of "
            f"{cpu.vector_registers} registers",
        ),
        Reason("tile_columns", config.columns, f"{quantity(shape.w.points, 'column')} in {quantity(tiles, 'tile')}"),
        Reason("vectors", config.vectors, f"{shape.co} output channels in vectors of {model.lanes}"),
        Reason("keep_rows", config.band, f"they read {band} KiB, which stay in L2 with the weights"),
        Reason(
            "block_taps",
            config.block_taps,
            "sums stay in registers over all taps" if whole else "a panel of weights over all taps does not stay in L2",
        ),
        Reason(
            "merge_taps",
            config.merged,
            f"only {quantity(shape.ci, 'channel')}, so {quantity(shape.w.taps, 'tap')} of a row are summed in one loop"
            if config.merged
            else "a loop over channels for each tap",
        ),
        Reason(
            "inner_order",
            "mn" if config.tiles_outside else "nm",
            "a tile of pixels stays in L1, weights stream past"
            if config.tiles_outside
            else "a panel of weights stays in L1, pixels stream past",
        ),
        Reason("copy_input", config.copies, _copy(shape, model, config, adjacent)),
        Reason("threads_rows", config.threads[0], f"for {rows}"),
        Reason("threads_columns", config.threads[1], f"for {shape.co} output channels"),
    )


def _form(shape: ConvShape) -> str:
    if shape.fold == 1:
        return "reads pixels in place, at any stride, without im2col"
    return (
        f"{shape.fold} columns become channels: {quantity(shape.fold_taps, 'tap')} of "
        f"{quantity(shape.ci // shape.fold, 'channel')} become {shape.w.taps} of {shape.ci}"
    )


def _copy(shape: ConvShape, model: ConvModel, config: ConvConfig, adjacent: bool) -> str:
    engine = model.engine
    if not config.copies:
        return "read in place: channels are adjacent, and taps outside the image are skipped"
    if not adjacent:
        return "the copy makes channels adjacent"
    if not engine.in_place:
        return f"the copy converts elements for {engine.name}, which takes {engine.operand} in groups of {engine.group}"
    if shape.w.padded or shape.d.padded:
        return "the copy contains the padding, so that no tap is tested"
    return "read in place, the pixels of a tile would collide in L1 or take longer"
