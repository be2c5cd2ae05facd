"""Reasons for the fields of a decision on a W-fold machine, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...figures import quantity
from ..conv.conv_tiling import ConvTiling
from ..conv.stride_fold import StrideFold
from ..tiling import Reason
from .fold_nest import INSTRUCTIONS, FoldNest
from .fold_walk import fold_time, image_cycles
from .granularity import padding

_PLACES = {
    "load": "while they are loaded from external memory into a zeroed buffer",
    "local": "while they are copied to the local buffer",
    "in place": "within one buffer, from its tail to its head",
}


class Compared(NamedTuple):
    """The best choice for a PCI and its cycles; a lower bound if none of its choices was simulated."""

    nest: FoldNest
    cycles: int
    exact: bool


def wfold_reasons(
    tiling: ConvTiling, fold: StrideFold, nest: FoldNest, nests: Sequence[Compared], other: FoldNest
) -> ConvTiling:
    """Return `tiling` with a reason for every field. `nests` are the best of each PCI, `other` is the choice of the
    other mode."""
    layer, unit = nest.layer, nest.unit
    best = tiling.mode == "best"
    other_mode = "seed" if best else "best"
    why = {
        "form": "the only algorithm of a W-fold engine",
        "stride_fold": _stride_text(fold, nest),
        "pci": f"{_pci_cycles(nest, nests) if best else _pci_rule(nest, nests)}; mode {other_mode} chooses {other.pci}",
        "ws": f"a row of {unit.row_bytes} bytes holds adjacent columns of {nest.pci} bytes",
        "bci": f"{layer.ci_bytes} bytes of channels in blocks of {nest.pci}",
        "aco": f"{layer.co} output channels rounded up to a multiple of {unit.sub_units} sub-units",
        "co_block": _block_text(nest, best),
        "kmax": f"{unit.first_buffer_rows} rows of the first buffer hold {unit.first_buffer_rows * nest.ws} columns, a "
        f"block of {quantity(nest.points, 'output')} needs the kernel width plus the outputs minus one",
        "kw_pieces": f"{quantity(layer.kw, 'column')} {'fit' if len(nest.kw_pieces) == 1 else 'are divided'}",
        "pco": f"{'fewest rows written' if best else 'the padding rule of PCI'}; mode {other_mode} chooses {other.pco}",
        "wso": f"an output row takes {_write_text(nest)}",
        "pco_whole": f"{layer.co_bytes} bytes of output channels in parts of {nest.pco}",
        "pco_remainder": "the last part is shorter" if layer.co_bytes % nest.pco else "none",
        "loop_order": "an input row is used for all channels of a sub-unit, then both buffers slide along W; "
        "exchanging kh and ci gives the same counts",
        "instruction_rows": f"at most {INSTRUCTIONS} instructions for the rows of a block of output channels, so that "
        "loads and stores overlap with them",
        "instruction_columns": "all" if nest.instruction_columns == layer.wo else "divided, as there are few rows",
        "block_steps": f"{nest.aco_rows} channels of a sub-unit x {nest.kw_pieces[0]} x {layer.taps_high} taps x "
        f"{quantity(nest.bci, 'block')} of channels for {nest.points} outputs, which share a row of weights",
        "steps": f"per image: {layer.rows} rows of {quantity(nest.row_blocks, 'block')}{_groups(nest)}, all taps",
        "reads": f"input rows, {nest.block_reads} per block, {_times(nest.passes)}; {_request_text(nest)}",
        "weight_rows": "of one sub-unit, one per step, in a ring buffer",
        "write_rows": "padded positions and channels are not written",
        "steady_cycles": "prediction for one image: the largest of "
        + ", ".join(f"{name} {count}" for name, count in nest.port_cycles.items()),
        "cycles": _cycles_text(nest),
        "utilisation": f"share of the peak of {unit.bytes_per_cycle // layer.d_s} multiply-adds per cycle",
    }
    return replace(tiling, reasons=tuple(Reason(name, getattr(tiling, name), text) for name, text in why.items()))


def _cycles_text(nest: FoldNest) -> str:
    """Describe the simulated cycles."""
    count = sum(count for count, _, _ in nest.instructions)
    _, part, leaves = nest.instructions[0]
    time = fold_time(part, leaves)
    return (
        f"of one image, simulated with its buffers: {quantity(count, 'instruction')} in sequence, the first with "
        f"{time.fill} cycles until its rows are formed, {time.busy} of steps and waits, {time.drain} until its results "
        "are written"
    )


def _stride_text(fold: StrideFold, nest: FoldNest) -> str:
    w = fold.workload
    expanded = (
        f"; a kernel of {quantity(w.kw, 'column')} dilated by {w.dilation[1]} is expanded to {fold.expanded_kw}"
        if w.kw > 1 and w.dilation[1] > 1
        else ""
    )
    if fold.factor == 1:
        return f"the stride along W is 1{expanded}"
    shapes = (
        f"{w.w} columns of {w.ci} channels become {fold.width} of {fold.factor * w.ci}, kernels of {fold.expanded_kw} "
        f"columns {fold.kernel_width}"
    )
    if fold.moves_data:
        moved = f"rows are copied once with their padding, {_PLACES[nest.unit.fold_place]}"
    else:
        moved = (
            f"no data moves: {quantity(fold.zeros, 'column')} of zeros in front of the kernel, padding of "
            f"{quantity(fold.left, 'folded column')}"
        )
    return f"{shapes}; {moved}{expanded}"


def _pci_cycles(nest: FoldNest, nests: Sequence[Compared]) -> str:
    counts = ", ".join(f"{w.nest.pci}: {'' if w.exact else 'at least '}{w.cycles}" for w in nests)
    ties = [w for w in nests if w.exact and w.cycles == image_cycles(nest) and w.nest.pci != nest.pci]
    tie = "; on a tie fewest input rows, then the largest" if ties else ""
    return f"fewest cycles{tie} ({counts})"


def _pci_rule(nest: FoldNest, nests: Sequence[Compared]) -> str:
    pads = ", ".join(f"{w.nest.pci} pads {padding(nest.layer.ci_bytes, w.nest.pci)}" for w in nests)
    return (
        f"{pads} bytes; the largest of those less than {nest.unit.padding_slack} above the minimum "
        f"({image_cycles(nest)} cycles)"
    )


def _block_text(nest: FoldNest, best: bool) -> str:
    supports = f"an input row is used for {quantity(nest.co_rows, 'channel')} of each sub-unit"
    if nest.co_rows > nest.unit.co_block_factor:
        return f"{supports}; their weights for a tap fit the {nest.unit.second_buffer_rows} rows of the second buffer"
    if nest.passes == 1:
        return f"{supports}, which are all channels"
    if nest.co_rows < nest.unit.co_block_factor:
        return f"{supports}, which takes fewer cycles than the machine's default block"
    return f"{supports}, the machine's default block" + ("; a larger one saves nothing" if best else "")


def _groups(nest: FoldNest) -> str:
    return f", {quantity(nest.layer.groups, 'group')} in sequence" if nest.layer.groups > 1 else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times, once for each block of output channels"


def _write_text(nest: FoldNest) -> str:
    return "one write" if nest.wso == 1 or nest.layer.co_bytes <= nest.pco else f"{nest.wso} writes at a distance of Co"


def _request_text(nest: FoldNest) -> str:
    """Describe how the columns of a row are read."""
    layer, unit = nest.layer, nest.unit
    if nest.ws == 1 or (nest.bci == 1 and layer.groups == 1):
        return "each is one contiguous read"
    if nest.ws * layer.pitch > unit.staging_bytes:
        return f"each takes {nest.ws} reads of {nest.pci} bytes, one column apart"
    text = f"{nest.ws} columns are one contiguous read into staging registers, from which rows are gathered"
    stay = nest.bci > 1 and nest.row_reads(nest.kw_pieces[0])[1] == 0
    return f"{text}, for all blocks of channels" if stay else text
