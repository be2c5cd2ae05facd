"""The graph pass pipeline, from a Relax module to one with scheduled operators.

in_parts          compute a large batch in parts, if its images do not depend on each other, on CPUs
without_branches  compute both sides of an If, and select one
without_empty     remove operators without elements
roll_cells        roll unrolled cells into recurrent layers
simplify          fold constants and batch norm, remove operators without effect
constant_parts    compute what depends on constants only, for CPUs
integers          compute quantised regions in integers, on CPUs
merged_conv...    compute a sum of convolutions of one tensor as one, on CPUs
sums_of_parts     convolve concatenated tensors one by one, on CPUs
pools             pool large windows along one axis after the other, on CPUs
norms             write group and instance norms as reductions and element-wise operators
join_views        merge and cancel reshapes and transpositions
channels_last     convert regions around convolutions to channels last, except for isolated ones
fuse_attention    fuse the matrix multiplications around a softmax
plain_products    read transposed operands as they are stored, and multiply element-wise for K = 1, on CPUs
legalise          lower operators to TIR with checked positions and in-bounds accesses
fuse              fuse element-wise operators as epilogues
schedule          decide on every operator, and pack constant weights
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import tvm
from tvm import relax, tirx

from ..decide.batch_parts import decide_parts
from ..errors import TilingError
from ..hardware.description import Hardware
from ..schedule import Options, this_cpu
from .kernels import Kernels, kernels_for
from .link import compiler_for
from .operators import Operator, decide_operators, schedule_operators
from .passes.attention import fuse_attention
from .passes.batch_parts import batch_of
from .passes.branches import without_branches
from .passes.constant_parts import with_constant_parts
from .passes.functions import with_known_functions
from .passes.fuse import fused_operators
from .passes.layout import channels_last
from .passes.legalise import legalised
from .passes.lone import with_channels_first
from .passes.merged_convolutions import with_merged_convolutions
from .passes.norms import written_out_norms
from .passes.open_extents import refuse_unproved
from .passes.pools import with_pools_by_axis
from .passes.products import with_plain_products
from .passes.roll import roll_cells
from .passes.simplify import simplify, without_empty
from .passes.sums_of_parts import with_sums_of_parts
from .passes.views import join_views
from .quantise.integers import with_integers_on_cpu

Scheduled: TypeAlias = tuple[tvm.IRModule, list[Operator]]


def lower(
    mod: tvm.IRModule, hardware: Hardware, options: Options | None = None, kernels: Kernels | None = None
) -> Scheduled:
    """`mod`, whose function "main" takes inputs and contains weights, ready for relax.build; and its operators.

    `kernels` compiles each operator for build() as soon as it is scheduled. Without it, only packing functions are
    compiled.
    """
    options = options or Options()
    if kernels is not None:
        return schedule_operators([fused_for_cpu(mod, hardware, options)], hardware, options, kernels, ahead=True)
    with kernels_for(hardware) as own:
        return schedule_operators([fused_for_cpu(mod, hardware, options)], hardware, options, own, ahead=False)


class Decided(NamedTuple):
    """The operators of a model, with the calls of a run, which computes the batch in this many parts."""

    operators: list[Operator]
    parts: int


def decided(mod: tvm.IRModule, hardware: Hardware, options: Options | None = None) -> Decided:
    """The operators of a compiled model, with their decisions; nothing is compiled."""
    options = options or Options()
    part, parts = in_parts(mod, hardware)
    operators = decide_operators(fused_for_cpu(part, hardware, options), hardware, options)
    return Decided(in_a_run(operators, parts), parts)


def in_parts(mod: tvm.IRModule, hardware: Hardware) -> tuple[tvm.IRModule, int]:
    """The model for a part of its batch, and the number of parts that a run computes one after the other; `mod` and 1
    if they are not faster, or images depend on each other, or no execution plan is possible without a C compiler."""
    if hardware.cpu is None or compiler_for(None) is None or (batch := batch_of(mod, straight)) is None:
        return mod, 1
    parts = decide_parts(batch.work, hardware.cpu)
    part = None if parts == 1 else batch.part(parts)
    return (mod, 1) if part is None else (part, parts)


def in_a_run(operators: Sequence[Operator], parts: int) -> list[Operator]:
    """The operators of a part, with all calls of a run."""
    return [replace(operator, calls=parts * operator.calls) for operator in operators]


def fused_for_cpu(mod: tvm.IRModule, hardware: Hardware, options: Options) -> tvm.IRModule:
    """`mod` with one PrimFunc per operator group that becomes one kernel; quantised regions are computed in
    integers."""
    constant = with_constant_parts(straight(mod), results_of)
    merged = with_merged_convolutions(with_integers_on_cpu(constant))
    prepared = with_pools_by_axis(with_sums_of_parts(merged))
    return _fused(prepared, None, lambda made: with_channels_first(made, hardware, options))


def results_of(mod: tvm.IRModule) -> list[tvm.runtime.Tensor] | None:
    """The results of a module whose "main" has no parameters, computed on one core of this machine; None if its
    operators are not supported, or refuse their operands, as they do again in the model."""
    hardware = this_cpu()
    assert hardware.cpu is not None
    hardware = replace(hardware, cpu=replace(hardware.cpu, cores=1, threads=1))
    try:
        with kernels_for(hardware) as kernels:
            scheduled, _ = schedule_operators(
                [_fused(mod, None, lambda _: frozenset())], hardware, Options(), kernels, ahead=False
            )
            built = relax.build(scheduled, kernels.target)
        return list(relax.VirtualMachine(built, tvm.cpu())["main"]())
    except (TilingError, RuntimeError, ValueError):
        return None


def fused(mod: tvm.IRModule, alone: Callable[[tirx.PrimFunc], bool]) -> tvm.IRModule:
    """The same for a graph whose integer operators are already determined. Operators for which `alone` is true are in
    no group."""
    return _fused(straight(mod), alone, lambda _: frozenset())


def straight(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with the constants of its function "main" folded, without branches and operators without effect."""
    return simplify(roll_cells(without_empty(without_branches(mod))))


def _fused(
    mod: tvm.IRModule,
    alone: Callable[[tirx.PrimFunc], bool] | None,
    channels_first: Callable[[tvm.IRModule], frozenset[relax.Var]],
) -> tvm.IRModule:
    # Batch norm is folded before: decomposed, it would be four unrelated operators.
    mod = relax.transform.DecomposeOpsForInference()(mod)
    refuse_unproved(mod)  # on the original operators: fused ones match if their parts do
    mod = join_views(written_out_norms(mod))
    mod = join_views(simplify(channels_last(mod, channels_first(mod))))
    mod = fuse_attention(mod)
    if alone is None:
        mod = with_plain_products(mod)
    mod = with_known_functions(legalised(mod))
    return relax.transform.DeadCodeElimination()(fused_operators(mod, alone))
