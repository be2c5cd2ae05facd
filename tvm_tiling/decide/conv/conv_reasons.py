"""Why a direct convolution on a CPU is cut as it is, choice by choice."""

from __future__ import annotations

from ..gemm.microkernel import registers_of
from ..tiling import Reason
from .conv_cost import ConvCut, ConvModel
from .shape import ConvShape


def direct_reasons(
    form: str, shape: ConvShape, model: ConvModel, cut: ConvCut, *, adjacent: bool
) -> tuple[Reason, ...]:
    """Fields of a ConvTiling and why; `adjacent`: the input's channels lie side by side."""
    cpu, pixels = model.cpu, cut.rows * cut.columns
    registers = registers_of(pixels, cut.vectors)
    tiles = -(-shape.w.points // cut.columns)
    band = int(model.band_bytes(cut)) >> 10
    taps = shape.d.taps * shape.h.taps * (1 if cut.merged else shape.w.taps)
    whole = cut.block_taps >= taps
    return (
        Reason("form", form, _form(shape)),
        Reason(
            "tile_rows",
            cut.rows,
            f"{pixels} pixels x {cut.vectors} vectors need {registers} of {cpu.vector_registers} registers",
        ),
        Reason("tile_columns", cut.columns, f"{shape.w.points} columns in {tiles} tiles"),
        Reason("vectors", cut.vectors, f"{shape.co} output channels in vectors of {model.lanes}"),
        Reason("keep_rows", cut.band, f"they read {band} KiB, which stay in the second cache beside the weights"),
        Reason(
            "block_taps",
            cut.block_taps,
            "sums stay in registers over all taps"
            if whole
            else "a panel of weights over all taps does not stay in the second cache",
        ),
        Reason(
            "merge_taps",
            cut.merged,
            f"{shape.ci} channels are few: the {shape.w.taps} taps of a row are one run"
            if cut.merged
            else "each tap's channels are a run of their own",
        ),
        Reason(
            "inner_order",
            "mn" if cut.tiles_outside else "nm",
            "tiles of pixels outside, weights pass by"
            if cut.tiles_outside
            else "a panel of weights stays, pixels pass by",
        ),
        Reason("copy_input", cut.copies, _copy(shape, model, cut, adjacent)),
        Reason("threads_rows", cut.threads[0], f"shares of {shape.planes * shape.h.points} rows"),
        Reason("threads_columns", cut.threads[1], f"shares of {shape.co} output channels"),
    )


def _form(shape: ConvShape) -> str:
    if shape.fold == 1:
        return "pixels are read at constant distances: no im2col, and a stride costs nothing"
    return (
        f"{shape.fold} columns become channels: {shape.fold_taps} taps of {shape.ci // shape.fold} channels become "
        f"{shape.w.taps} of {shape.ci}"
    )


def _copy(shape: ConvShape, model: ConvModel, cut: ConvCut, adjacent: bool) -> str:
    engine = model.engine
    if not cut.copies:
        return "channels are adjacent, and every tap lies in the image or is left out: read in place"
    if not adjacent:
        return "channels are not adjacent in the input, they are on the way"
    if not engine.in_place:
        return f"{engine.name} takes {engine.operand} in groups of {engine.group}: converted on the way"
    if shape.w.padded or shape.d.padded:
        return "the border is written once instead of being asked for at every tap"
    return "in place, the pixels of a tile would collide in the first cache, or cost more"
