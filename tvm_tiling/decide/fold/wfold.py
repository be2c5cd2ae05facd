"""W-fold: which granularities and blocks a convolution of few channels takes on page 05's machine.

How the machine works and what a choice counts is told in fold/fold_nest.py, how long it takes in fold/fold_walk.py.
What is left to decide is the granularity PCI of input channels, PCO of output channels and how many output channels
share one pass over the input. There are a handful of each: mode "best" walks the buffers for every choice that might be
the best one by the cycles that it needs at least.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Literal

from ...errors import HardwareError, TilingError, UnsupportedOperator
from ...hardware.description import Hardware, WFold
from ...workload import ConvWorkload, GemmWorkload
from ..conv.conv_tiling import ConvTiling
from ..conv.stride_fold import StrideFold
from ..gemm.traffic import ceil_div, refuse_types
from .fold_nest import FoldNest, Layer
from .fold_reasons import Compared, wfold_reasons
from .fold_walk import image_cycles
from .granularity import granularity

Mode = Literal["best", "seed"]


def decide_wfold(workload: ConvWorkload, hardware: Hardware, *, mode: Mode = "best") -> ConvTiling:
    """The configuration of a convolution on `hardware.w_fold`. Sizes and counts as :class:`ConvTiling` says; source:
    page 05.

    mode "seed" takes PCI and PCO by the padding rule and output channels in the machine's usual blocks; mode "best"
    takes the choices of fewest predicted cycles, then fewest input rows, then the largest granularity.

    HardwareError where the unit is absent or for other types, or a row is shorter than an element; UnsupportedOperator
    for transposed convolutions and for a stride along W with groups; TilingError for an unknown mode.
    """
    if mode not in ("best", "seed"):
        raise TilingError(f"decide: mode = {mode!r}; expected 'best', 'seed'")
    unit = hardware.w_fold
    if unit is None:
        raise HardwareError(f"hardware {hardware.name!r}: has no w_fold unit, which form 'wfold' needs")
    refuse_types(hardware, unit, workload)
    fold = stride_fold_of(workload)
    layer = layer_of(fold, unit)
    if not granularities_of(unit, layer.w, layer.d_s) or not granularities_of(unit, layer.wo, layer.d_out):
        raise HardwareError(
            f"hardware {hardware.name!r}: w_fold.row_bytes = {unit.row_bytes} holds no whole elements of {layer.d_s} "
            f"bytes in, {layer.d_out} bytes out; expected a multiple of both"
        )
    if not blocks_of(layer, unit):
        raise HardwareError(
            f"hardware {hardware.name!r}: w_fold.result_buffer_rows = {unit.result_buffer_rows} of {unit.row_bytes} "
            f"bytes have no room for the sums of {unit.units} points; expected more rows"
        )
    best, others = _compared(layer, unit)
    literal = _seed_nest(layer, unit)
    nest = best if mode == "best" else literal
    tiling = wfold_tiling(fold, nest, unit, mode=mode)
    return wfold_reasons(tiling, fold, nest, others, other=literal if mode == "best" else best)


def wfold_tiling(fold: StrideFold, nest: FoldNest, unit: WFold, *, mode: Mode = "best") -> ConvTiling:
    """The decision that a walk stands for, without its reasons."""
    workload, layer, cycles = fold.workload, nest.layer, image_cycles(nest)
    return ConvTiling(
        form="wfold",
        mode=mode,
        stride_fold=fold.factor,
        pci=nest.pci,
        ws=nest.ws,
        bci=nest.bci,
        aco=nest.aco_rows * unit.sub_units,
        co_block=nest.co_rows * unit.sub_units,
        kmax=nest.kmax,
        kw_pieces=nest.kw_pieces,
        pco=nest.pco,
        wso=nest.wso,
        pco_whole=layer.co_bytes // nest.pco,
        pco_remainder=layer.co_bytes % nest.pco,
        loop_order=_loop_order(workload, nest),
        instruction_rows=nest.instruction_rows,
        instruction_columns=nest.instruction_columns,
        block_steps=nest.block_steps,
        steps=nest.steps,
        reads=nest.reads,
        weight_rows=nest.weight_rows,
        write_rows=nest.write_rows,
        steady_cycles=nest.steady_cycles,
        cycles=cycles,
        utilisation=workload.macs // workload.n * layer.d_s / (cycles * unit.bytes_per_cycle),
    )


def product_as_convolution(product: GemmWorkload) -> ConvWorkload:
    """A product as a convolution of one tap: its m rows are the columns of one image, k its channels, n output
    channels; a batch are groups."""
    return ConvWorkload(
        n=1,
        h=1,
        w=product.m,
        ci=product.batch * product.k,
        co=product.batch * product.n,
        kh=1,
        kw=1,
        groups=product.batch,
        memory_a=product.memory_b,
        memory_b=product.memory_a,
        **product.type_fields(),
    )


def stride_fold_of(workload: ConvWorkload) -> StrideFold:
    """The convolution with its stride along W folded; UnsupportedOperator for what W-fold does not serve."""
    if workload.transposed:
        raise UnsupportedOperator(
            "conv: form 'wfold' takes no transposed convolution; expected transposed=False, such as the convolution "
            "of the dilated input"
        )
    if workload.groups > 1 and workload.stride[1] > 1:
        raise UnsupportedOperator(
            f"conv: form 'wfold' takes stride {workload.stride[1]} along W by folding columns into channels, which "
            f"would interleave groups = {workload.groups}; expected groups=1, or a stride of 1 along W"
        )
    return StrideFold(workload)


def layer_of(fold: StrideFold, unit: WFold) -> Layer:
    """What the machine sees of a folded convolution."""
    plain, folded = fold.workload, fold.folded()
    return Layer(
        groups=plain.groups,
        rows=plain.do * plain.ho,
        wo=plain.wo,
        w=folded.w,
        ci_bytes=folded.ci // plain.groups * plain.a_bytes,
        co=plain.co // plain.groups,
        taps_high=plain.kd * plain.kh,
        kw=folded.kw,
        d_s=plain.a_bytes,
        d_out=unit.output_element_bytes or plain.a_bytes,
        pitch=folded.ci * plain.a_bytes,
        d_acc=plain.acc_bytes,
        planes=plain.do,
        deep=plain.kd,
    )


def granularities_of(unit: WFold, width: int, element: int) -> tuple[int, ...]:
    """Granularities of whole elements that fold no more neighbours than a row of `width` points has (paragraph 86)."""
    return tuple(g for g in unit.granularities if g % element == 0 and unit.row_bytes // g <= width)


def blocks_of(layer: Layer, unit: WFold) -> dict[int, int]:
    """The granularities of input channels that the engine can take, the largest first, each with the most output
    channels of a sub-unit that share a pass: the usual block, or as many as the second buffer holds weights of a tap
    for, and no more than the result buffer holds sums for."""
    found = {}
    for pci in granularities_of(unit, layer.w, layer.d_s):
        most = min(ceil_div(layer.co, unit.sub_units), max(unit.co_block_factor, unit.second_buffer_rows))
        if unit.result_buffer_rows is not None:
            room = unit.result_buffer_rows * unit.row_bytes
            most = min(most, room // (unit.units * (unit.row_bytes // pci) * layer.d_acc))
        if most:
            found[pci] = most
    return found


def _rank(nest: FoldNest) -> tuple[int, ...]:
    """Of choices that take as long, the first is taken: of the fewest input rows, then the largest granularity."""
    return image_cycles(nest), nest.reads, -nest.pci, nest.co_rows, nest.write_rows, -nest.pco


def _compared(layer: Layer, unit: WFold) -> tuple[FoldNest, list[Compared]]:
    """The best choice, and that of each PCI. Choices are walked in the order of the cycles that they take at least,
    until none of the others can be better."""
    least = sorted(_choices(layer, unit), key=lambda pair: pair[0])
    walked = [least[0][1]]
    best = _rank(walked[0])
    for bound, nest in least[1:]:
        if bound >= best:
            break
        walked.append(nest)
        best = min(best, _rank(nest))
    walked.sort(key=_rank)
    found = []
    for pci in blocks_of(layer, unit):
        own = next((nest for nest in walked if nest.pci == pci), None)
        if own is not None:
            found.append(Compared(own, image_cycles(own), exact=True))
        else:
            bound, nest = next(pair for pair in least if pair[1].pci == pci)
            found.append(Compared(nest, bound[0], exact=False))
    return walked[0], found


def _choices(layer: Layer, unit: WFold) -> Iterator[tuple[tuple[int, ...], FoldNest]]:
    """Every choice, with the least that its rank can be."""
    for pci, most in blocks_of(layer, unit).items():
        # Blocks below the usual size too: one that a row of results holds exactly writes less.
        for co_rows in range(1, most + 1):
            nest = FoldNest(layer, unit, pci, unit.row_bytes, co_rows)
            ports = max(cycles for name, cycles in nest.port_cycles.items() if name != "write-out")
            steps, reads = nest.least_steps, nest.reads
            for pco in granularities_of(unit, layer.wo, layer.d_out):
                nest = FoldNest(layer, unit, pci, pco, co_rows)
                rows = nest.write_rows
                least = nest.least_cycles(steps, max(ports, ceil(rows / unit.output_rows_per_cycle)))
                yield (least, reads, -pci, co_rows, rows, -pco), nest


def _seed_nest(layer: Layer, unit: WFold) -> FoldNest:
    """Every choice by the formulas as printed."""
    blocks = blocks_of(layer, unit)
    pci = granularity(layer.ci_bytes, tuple(blocks), unit.padding_slack)
    return FoldNest(
        layer,
        unit,
        pci=pci,
        pco=granularity(layer.co_bytes, granularities_of(unit, layer.wo, layer.d_out), unit.padding_slack),
        co_rows=min(unit.co_block_factor, blocks[pci]),
    )


def _loop_order(workload: ConvWorkload, nest: FoldNest) -> tuple[str, ...]:
    """Inner to outer; loops that every convolution has, then depth, pieces of the kernel and groups where there are."""
    deep = workload.kd > 1 or workload.do > 1
    loops = {
        "co": True,
        "kw": True,
        "kh": True,
        "kd": deep,
        "ci": True,
        "kw_piece": len(nest.kw_pieces) > 1,
        "wo": True,
        "ho": True,
        "do": deep,
        "co_block": True,
        "group": workload.groups > 1,
    }
    return tuple(name for name, present in loops.items() if present)
