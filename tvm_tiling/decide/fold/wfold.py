"""W-fold: which granularities and blocks a convolution of few channels takes on page 05's machine.

How the machine works and what a choice costs is told in fold/fold_nest.py. What is left to decide is the granularity
PCI of input channels, PCO of output channels and how many output channels share one pass over the input. There are a
handful of each, so mode "best" counts the cycles of all.
"""

from __future__ import annotations

from typing import Literal

from ...errors import HardwareError, TilingError, UnsupportedOperator
from ...hardware.description import Hardware, WFold
from ...workload import ConvWorkload, GemmWorkload
from ..conv.conv_tiling import ConvTiling
from ..conv.stride_fold import StrideFold
from ..gemm.traffic import ceil_div, refuse_types
from .fold_nest import FoldNest, Layer
from .fold_reasons import wfold_reasons
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
        raise TilingError(f"decide: mode = {mode!r}, accepted: 'best', 'seed'")
    unit = hardware.w_fold
    if unit is None:
        raise HardwareError(f"hardware {hardware.name!r}: has no w_fold unit, which form 'wfold' needs")
    refuse_types(hardware, unit, workload)
    fold = stride_fold_of(workload)
    layer = layer_of(fold, unit)
    if not granularities_of(unit, layer.w, layer.d_s) or not granularities_of(unit, layer.wo, layer.d_out):
        raise HardwareError(
            f"hardware {hardware.name!r}: w_fold.row_bytes = {unit.row_bytes} holds no whole elements of {layer.d_s} "
            f"bytes in, {layer.d_out} bytes out; accepted: a multiple of both"
        )
    nests = [_best_nest(layer, unit, pci) for pci in granularities_of(unit, layer.w, layer.d_s)]
    best, literal = min(nests, key=_rank), _seed_nest(layer, unit)
    nest = best if mode == "best" else literal
    tiling = wfold_tiling(fold, nest, unit, mode=mode)
    return wfold_reasons(tiling, fold, nest, nests, other=literal if mode == "best" else best)


def wfold_tiling(fold: StrideFold, nest: FoldNest, unit: WFold, *, mode: Mode = "best") -> ConvTiling:
    """The decision that a walk stands for, without its reasons."""
    workload, layer = fold.workload, nest.layer
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
        block_steps=nest.block_steps,
        steps=nest.steps,
        reads=nest.reads,
        weight_rows=nest.weight_rows,
        write_rows=nest.write_rows,
        cycles=nest.cycles,
        utilisation=workload.macs // workload.n * layer.d_s / (nest.cycles * unit.bytes_per_cycle),
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
            "conv: form 'wfold' takes no transposed convolution, accepted: transposed=False, such as the convolution "
            "of the dilated input"
        )
    if workload.groups > 1 and workload.stride[1] > 1:
        raise UnsupportedOperator(
            f"conv: form 'wfold' takes stride {workload.stride[1]} along W by folding columns into channels, which "
            f"would interleave groups = {workload.groups}; accepted: groups=1, or a stride of 1 along W"
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
    )


def granularities_of(unit: WFold, width: int, element: int) -> tuple[int, ...]:
    """Granularities of whole elements that fold no more neighbours than a row of `width` points has (paragraph 86)."""
    return tuple(g for g in unit.granularities if g % element == 0 and unit.row_bytes // g <= width)


def _rank(nest: FoldNest) -> tuple[int, int, int, int]:
    return nest.cycles, nest.reads, -nest.pci, nest.co_rows


def _best_nest(layer: Layer, unit: WFold, pci: int) -> FoldNest:
    """The best blocks and pieces of output channels for one PCI."""
    rows, most = ceil_div(layer.co, unit.sub_units), max(unit.co_block_factor, unit.second_buffer_rows)
    leaving = granularities_of(unit, layer.wo, layer.d_out)
    nests = []
    # Blocks below the usual size too: one that a row of results holds exactly writes less.
    for co_rows in range(1, min(most, rows) + 1):
        with_pco = (FoldNest(layer, unit, pci, pco, co_rows) for pco in leaving)
        nests.append(min(with_pco, key=lambda nest: (nest.write_rows, -nest.pco)))
    return min(nests, key=_rank)


def _seed_nest(layer: Layer, unit: WFold) -> FoldNest:
    """Every choice by the formulas as printed."""
    return FoldNest(
        layer,
        unit,
        pci=granularity(layer.ci_bytes, granularities_of(unit, layer.w, layer.d_s), unit.padding_slack),
        pco=granularity(layer.co_bytes, granularities_of(unit, layer.wo, layer.d_out), unit.padding_slack),
        co_rows=min(unit.co_block_factor, ceil_div(layer.co, unit.sub_units)),
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
