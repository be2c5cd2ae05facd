"""Why each field of a decision on page 05's machine has its value, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..conv.stride_fold import StrideFold
from ..conv.conv_tiling import ConvTiling
from ..tiling import Reason
from .granularity import padding
from .fold_loops import Walk

_PLACES = {
    "load": "on their way from external memory into a zeroed buffer",
    "local": "on their way into the local buffer",
    "in place": "within one buffer, from its tail to its head",
}


def wfold_reasons(tiling: ConvTiling, fold: StrideFold, walk: Walk, walks: Sequence[Walk], other: Walk) -> ConvTiling:
    """`tiling` with a reason for every field. `walks` are the best of each PCI, `other` is the other mode's choice."""
    layer, unit = walk.layer, walk.unit
    best = tiling.mode == "best"
    other_mode = "seed" if best else "best"
    why = {
        "form": "the machine's only form",
        "stride_fold": _stride_text(fold, walk),
        "pci": f"{_pci_cycles(walk, walks) if best else _pci_rule(walk, walks)}; mode {other_mode} takes {other.pci}",
        "ws": f"{unit.row_bytes}-byte rows of {walk.pci} bytes a column: neighbours along W fill them",
        "bci": f"{layer.ci_bytes} bytes of channels in blocks of {walk.pci}",
        "aco": f"{layer.co} output channels in whole rounds of {unit.sub_units} sub-units",
        "co_block": _block_text(walk, best),
        "kmax": f"{unit.first_buffer_rows} rows of the first buffer hold {unit.first_buffer_rows * walk.ws} columns, a "
        f"block of {walk.points} points needs one less than kernel and points together",
        "kw_pieces": f"a kernel of {layer.kw} columns {'fits' if len(walk.kw_pieces) == 1 else 'is cut'}",
        "pco": f"{'fewest rows leave' if best else 'the padding rule of PCI'}; mode {other_mode} takes {other.pco}",
        "wso": f"a row that leaves is {_write_text(walk)}",
        "pco_whole": f"{layer.co_bytes} bytes of output channels in pieces of {walk.pco}",
        "pco_remainder": "the last piece is shorter" if layer.co_bytes % walk.pco else "none",
        "loop_order": "an input row serves the channels of a sub-unit, then both buffers slide along W; kh and ci may "
        "change places, counts are equal",
        "block_steps": f"{walk.aco_rows} channels of a sub-unit x {walk.kw_pieces[0]} x {layer.taps_high} taps x "
        f"{_count(walk.bci, 'block')} of channels for {walk.points} points; a row of weights serves all of them",
        "steps": f"per image: {layer.rows} rows of {_count(walk.row_blocks, 'block')}{_groups(walk)}, all taps",
        "reads": f"input rows, {walk.block_reads} a block, {_times(walk.passes)}; {_request_text(walk)}",
        "weight_rows": "of one sub-unit, one a step, loaded in a circle",
        "write_rows": "surplus points and channels are dropped on the way out",
        "cycles": "the largest of " + ", ".join(f"{name} {count}" for name, count in walk.port_cycles.items()),
        "utilisation": f"multiply-adds at peak, {unit.bytes_per_cycle // layer.d_s} a cycle, over the cycles",
    }
    return replace(tiling, reasons=tuple(Reason(name, getattr(tiling, name), text) for name, text in why.items()))


def _stride_text(fold: StrideFold, walk: Walk) -> str:
    w = fold.workload
    expanded = (
        f"; a kernel of {w.kw} columns dilated by {w.dilation[1]} is expanded to {fold.expanded_kw}"
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
        moved = f"rows are written once with their border, {_PLACES[walk.unit.fold_place]}"
    else:
        moved = (
            f"no data moves: {_count(fold.zeros, 'column')} of zeros in front of the kernel, a border of "
            f"{_count(fold.left, 'folded column')}"
        )
    return f"{shapes}; {moved}{expanded}"


def _pci_cycles(walk: Walk, walks: Sequence[Walk]) -> str:
    counts = ", ".join(f"{w.pci}: {w.cycles}" for w in walks)
    ties = [w for w in walks if w.cycles == walk.cycles and w.pci != walk.pci]
    tie = " and, of equals, fewest input rows, then the largest" if ties else ""
    return f"fewest cycles{tie} ({counts})"


def _pci_rule(walk: Walk, walks: Sequence[Walk]) -> str:
    pads = ", ".join(f"{w.pci} pads {padding(walk.layer.ci_bytes, w.pci)}" for w in walks)
    return (
        f"{pads} bytes; of those with less than {walk.unit.padding_slack} more than the least, the largest "
        f"({walk.cycles} cycles)"
    )


def _block_text(walk: Walk, best: bool) -> str:
    serves = f"an input row serves {walk.co_rows} channels of each sub-unit"
    if walk.co_rows > walk.unit.co_block_factor:
        return f"{serves}, whose weights of a tap fit the {walk.unit.second_buffer_rows} rows of the second buffer"
    if walk.passes == 1:
        return f"{serves}, which are all"
    return f"{serves}, the machine's usual block" + ("; a larger one saves nothing" if best else "")


def _groups(walk: Walk) -> str:
    return f", {walk.layer.groups} groups one after the other" if walk.layer.groups > 1 else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times, once for each block of output channels"


def _write_text(walk: Walk) -> str:
    return "one write" if walk.wso == 1 or walk.layer.co_bytes <= walk.pco else f"{walk.wso} writes, one Co apart"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _request_text(walk: Walk) -> str:
    """How the neighbours of a row are fetched."""
    layer = walk.layer
    if walk.ws == 1 or (walk.bci == 1 and layer.groups == 1):
        return "each one contiguous read"
    if walk.ws * layer.ci_bytes <= walk.unit.staging_bytes and layer.groups == 1:
        return f"{walk.ws} columns are one contiguous read into staging registers, rows strided picks from them"
    return f"each {walk.ws} reads of {walk.pci} bytes, one column apart"
