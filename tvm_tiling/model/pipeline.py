"""From a Relax module to one whose operators are scheduled: the order of the graph passes.

without_branches  both sides of an If computed, and one chosen
without_empty     operators of no elements, which have nothing to compute
roll_cells        cells that an exporter unrolled into recurrent layers
simplify          constants, batch norm into weights, operators that do nothing
integers          between what is dequantised and quantised again, on CPUs
join_views        reshapes and transpositions that meet, and vanish
channels_last     regions around convolutions
fuse_attention    products around a softmax
legalise          operators to TIR, which checks positions that tensors hold and stays inside of its buffers
fuse              element-wise operators into the write-back of what they follow
schedule          a decision for every operator, constant weights packed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import tvm
from tvm import relax, tirx

from ..hardware.description import Hardware
from ..schedule import Options
from .kernels import Kernels, kernels_for
from .operators import Operator, decide_operators, schedule_operators
from .passes.attention import fuse_attention
from .passes.branches import without_branches
from .passes.functions import with_known_functions
from .passes.fuse import fused_operators
from .passes.layout import channels_last
from .passes.legalise import legalised
from .passes.open_extents import refuse_unproved
from .passes.roll import roll_cells
from .passes.simplify import simplify, without_empty
from .passes.views import join_views
from .quantise.integers import with_integers_on_cpu

Scheduled: TypeAlias = tuple[tvm.IRModule, list[Operator]]


def lower(
    mod: tvm.IRModule, hardware: Hardware, options: Options | None = None, kernels: Kernels | None = None
) -> Scheduled:
    """`mod`, whose function "main" takes inputs and holds weights, ready for relax.build; and its operators.

    `kernels` compiles each operator for build() from the moment it is scheduled. Without it nothing is compiled but
    what packs weights.
    """
    if kernels is not None:
        return schedule_operators(fused_for_cpu(mod), hardware, options or Options(), kernels, ahead=True)
    with kernels_for(hardware) as own:
        return schedule_operators(fused_for_cpu(mod), hardware, options or Options(), own, ahead=False)


def decided(mod: tvm.IRModule, hardware: Hardware, options: Options | None = None) -> list[Operator]:
    """The operators that lower() would schedule, with their decisions; nothing is compiled."""
    return decide_operators(fused_for_cpu(mod), hardware, options or Options())


def fused_for_cpu(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with a PrimFunc for every group of operators that become one kernel; what is quantised is computed in
    integers."""
    return _fused(with_integers_on_cpu(straight(mod)), None)


def fused(mod: tvm.IRModule, alone: Callable[[tirx.PrimFunc], bool]) -> tvm.IRModule:
    """The same of a graph whose integers are settled. Operators that are to stay `alone` are in no group."""
    return _fused(straight(mod), alone)


def straight(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with the constants of its function "main" computed, without branches and operators that do nothing."""
    return simplify(roll_cells(without_empty(without_branches(mod))))


def _fused(mod: tvm.IRModule, alone: Callable[[tirx.PrimFunc], bool] | None) -> tvm.IRModule:
    # Batch norm is folded before: decomposed, it would be four operators that say nothing of each other.
    mod = relax.transform.DecomposeOpsForInference()(mod)
    refuse_unproved(mod)  # as the model has them: what later passes join fits where its parts do
    mod = join_views(simplify(channels_last(join_views(mod))))
    mod = with_known_functions(legalised(fuse_attention(mod)))
    return relax.transform.DeadCodeElimination()(fused_operators(mod, alone))
