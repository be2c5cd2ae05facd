"""MetaSchedule's design space of an operator: the neighbourhood of the decision, sampled choice by choice.

The kernels' loop nests are generated, not derived by primitives (schedules/gemm.py explains why), so a trace samples
choices and annotates the function with them (annotation.py); the loop nest is generated when the function is built
(lower_configs.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tvm import s_tir, tirx
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule, ScheduleRule

from ...decide.configs.neighbourhood import Space
from ...decide.configs.record import Value
from ...errors import HardwareError, TilingError, UnsupportedOperator
from ...runtime.threads import set_pool_once
from ...schedule import Target, hardware_of
from ...schedules.fold_rules import FoldStrides, FoldWidth
from ...schedules.product_rules import Partition, SplitK
from .annotation import PICK, SPACE, described, root_annotations
from .mutators import MutateConfig
from .operator_space import space_of
from .postprocs import VerifyConfig
from .tensor_intrinsics import load_tensor_intrinsics

if TYPE_CHECKING:
    from ...hardware.description import Hardware

_log = logging.getLogger(__name__)
# A value whose best configuration is predicted to be twice as slow as the overall best is sampled 2**PREFERENCE times
# less often.
PREFERENCE = 8.0


def schedule_rules(target: Target = "llvm") -> list[ScheduleRule]:
    """Return MetaSchedule schedule rules for `target`, as in tiling_schedule, for the space generator of any tuner.

    Operators that no rule of this package supports are left unchanged. Sets the number of cores of TVM's thread pool
    unless it has been set: the measuring processes inherit it. HardwareError for an unsupported target.
    """
    hardware = hardware_of(target)
    if hardware.cpu is not None:
        set_pool_once()
    load_tensor_intrinsics()
    return [TilingRule(hardware)]


def primitive_rules(target: Target = "llvm") -> list[ScheduleRule]:
    """Return rules of plain primitives for MetaSchedule, to be combined with TVM's own in any space generator: each
    adds to the space of an operator a variant transformed by this package.

    The transformations are stride-fold and W-fold of convolutions (transform_layout), and split-K (rfactor) and
    partitions (split, reorder) of matrix multiplications, in the sizes of the decision for `target`, which is as in
    tiling_schedule. HardwareError for a target that is not a CPU.
    """
    hardware = hardware_of(target)
    if hardware.cpu is None:
        raise HardwareError(f"{hardware.name} is not a CPU; expected CPU targets")
    load_tensor_intrinsics()
    return [FoldStrides(), FoldWidth(hardware.cpu.vector_bits // 32), SplitK(hardware), Partition(hardware)]


@derived_object
class TilingRule(PyScheduleRule):
    """Samples the choices of an operator's configuration, favouring those that are predicted to be fast."""

    def __init__(self, hardware: Hardware) -> None:
        super().__init__()
        self.hardware = hardware

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Do nothing: the rule has its own machine."""

    def apply(self, sch: s_tir.Schedule, block: s_tir.schedule.SBlockRV) -> list[s_tir.Schedule]:
        """Return the schedule with its choices sampled, once for all blocks of the operator."""
        name, func = _only_function(sch)
        if func is not None and SPACE not in root_annotations(func):
            space = self._space(func, name)
            if space is not None:
                sample(sch, space, name)
        return [sch]

    def _space(self, func: tirx.PrimFunc, name: str) -> Space | None:
        """Return the space of an operator; None if no rule supports it, or with a warning if only the machine does
        not."""
        try:
            return space_of(func, self.hardware, name)
        except UnsupportedOperator:
            return None
        except TilingError as error:
            _log.warning("%s: this package's rules do not apply: %s", name, error)
            return None

    def clone(self) -> ScheduleRule:
        """Return a rule for the same machine."""
        return TilingRule(self.hardware)


def sample(sch: s_tir.Schedule, space: Space, function: str = "main", picks: dict[str, int] | None = None) -> None:
    """Annotate the root block of the function with a sampled value for every choice of `space`, or with `picks`,
    indices into the values of the choices."""
    root = sch.get_sblock("root", func_name=function)
    sch.annotate(root, SPACE, described(space))
    likely = likelihoods(space)
    for name, values in space.options.items():
        if len(values) > 1:
            place = None if picks is None else picks.get(name, 0)
            sch.annotate(root, PICK + name, sch.sample_categorical(list(range(len(values))), likely[name], place))


def likelihoods(space: Space) -> dict[str, list[float]]:
    """Return the sampling probability of each value of each choice, based on the predicted cost of the best
    configuration that has it."""
    costs: dict[str, dict[Value, float]] = {name: {} for name in space.options}
    for config in space.configs():
        cost = space.predicted(config)
        for name, value in space.choices(config).items():
            costs[name].setdefault(value, cost)
    found = {}
    for name, values in space.options.items():
        least, most = min(costs[name].values()), max(costs[name].values())
        weights = [(least / costs[name].get(value, most)) ** PREFERENCE for value in values]
        found[name] = [weight / sum(weights) for weight in weights]
    return found


def _only_function(sch: s_tir.Schedule) -> tuple[str, tirx.PrimFunc | None]:
    functions = [(g.name_hint, f) for g, f in sch.mod.functions.items() if isinstance(f, tirx.PrimFunc)]
    return functions[0] if len(functions) == 1 else ("", None)


def space_generator(target: Target = "llvm") -> Any:
    """Return a space generator for `ms.tune_tir`, `relax_integration.tune_relax` and any other tuner:
    :func:`schedule_rules` with the matching mutator and the check for consistent choices. `target` is as in
    tiling_schedule."""
    from tvm.s_tir import meta_schedule as ms

    return ms.space_generator.PostOrderApply(
        sch_rules=schedule_rules(target),
        postprocs=[VerifyConfig(hardware_of(target))],
        mutator_probs={MutateConfig(): 1.0},
    )
