"""W-fold: granularities and blocks of a convolution with few channels on a W-fold machine.

fold/fold_nest.py describes the machine and the counts of each choice, fold/fold_walk.py simulates its time. The choices
are the granularity PCI of input channels, PCO of output channels, and the number of output channels that share one pass
over the input. There are only a few of each: mode "best" simulates every choice whose lower bound is better than the
best result so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Literal

from ...errors import HardwareError, TilingError, UnsupportedOperator
from ...figures import quantity
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
    """Return the configuration of a convolution on `hardware.w_fold`. Sizes and counts are described in
    :class:`ConvTiling`.

    mode "seed" chooses PCI and PCO by the padding rule, with the machine's default blocks of output channels; mode
    "best" chooses the fewest predicted cycles, then the fewest input rows, then the largest granularity.

    Raises HardwareError if the machine has no such unit, the unit does not support the types, or a row is shorter than
    an element; UnsupportedOperator for transposed convolutions and for a stride along W with groups; TilingError for an
    unknown mode.
    """
    if mode not in ("best", "seed"):
        raise TilingError(f"decide: mode = {mode!r}; expected 'best', 'seed'")
    unit = hardware.w_fold
    if unit is None:
        raise HardwareError(f"hardware {hardware.name!r}: has no w_fold unit, which algorithm 'wfold' needs")
    refuse_types(hardware, unit, workload)
    fold = stride_fold_of(workload)
    layer = layer_of(fold, unit)
    if not granularities_of(unit, layer.w, layer.d_s) or not granularities_of(unit, layer.wo, layer.d_out):
        raise HardwareError(
            f"hardware {hardware.name!r}: w_fold.row_bytes = {unit.row_bytes} does not hold whole elements of "
            f"{layer.d_s} input and {layer.d_out} output bytes; expected a multiple of both"
        )
    if not blocks_of(layer, unit):
        raise HardwareError(
            f"hardware {hardware.name!r}: w_fold.result_buffer_rows = {unit.result_buffer_rows} of {unit.row_bytes} "
            f"bytes cannot hold the sums of {quantity(unit.units, 'point')}; expected more rows"
        )
    best, others = _compared(layer, unit)
    literal = _seed_nest(layer, unit)
    nest = best if mode == "best" else literal
    tiling = wfold_tiling(fold, nest, unit, mode=mode)
    return wfold_reasons(tiling, fold, nest, others, other=literal if mode == "best" else best)


def wfold_tiling(fold: StrideFold, nest: FoldNest, unit: WFold, *, mode: Mode = "best") -> ConvTiling:
    """Return the decision of a loop nest, without its reasons."""
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
    """Return a matrix multiplication as a convolution with one tap: the m rows become the columns of one image, k the
    channels, n the output channels, and the batch becomes groups."""
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
    """Return the convolution with its stride along W folded. Raises UnsupportedOperator for convolutions that W-fold
    does not support."""
    if workload.transposed:
        raise UnsupportedOperator(
            "conv: algorithm 'wfold' does not support transposed convolutions; expected transposed=False, such as "
            "the convolution of the dilated input"
        )
    if workload.groups > 1 and workload.stride[1] > 1:
        raise UnsupportedOperator(
            f"conv: algorithm 'wfold' folds stride {workload.stride[1]} along W into channels, which "
            f"would interleave groups = {workload.groups}; expected groups=1, or a stride of 1 along W"
        )
    return StrideFold(workload)


def layer_of(fold: StrideFold, unit: WFold) -> Layer:
    """Return a folded convolution as the machine sees it."""
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
    """Return the granularities of whole elements that fold no more columns than a row of `width` points has."""
    return tuple(g for g in unit.granularities if g % element == 0 and unit.row_bytes // g <= width)


def blocks_of(layer: Layer, unit: WFold) -> dict[int, int]:
    """Return the granularities of input channels that the engine supports, largest first, with the most output channels
    of a sub-unit that share a pass. The limit is the default block or the weights of a tap that fit the second buffer,
    and the sums that fit the result buffer."""
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
    """Return the rank of a choice; on equal cycles, the fewest input rows and then the largest granularity are
    preferred."""
    return image_cycles(nest), nest.reads, -nest.pci, nest.co_rows, nest.write_rows, -nest.pco


def _compared(layer: Layer, unit: WFold) -> tuple[FoldNest, list[Compared]]:
    """Return the best choice, and the best for each PCI. Choices are simulated in the order of their lower bounds until
    none of the remaining ones can be better."""
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
    """Yield every choice with a lower bound of its rank."""
    for pci, most in blocks_of(layer, unit).items():
        # Smaller blocks than the default are included: one that exactly fills a row of results writes less.
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
    """Return the choices of the published formulas."""
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
    """Return the loops from inner to outer: those of every convolution, and those over depth, pieces of the kernel and
    groups where present."""
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
