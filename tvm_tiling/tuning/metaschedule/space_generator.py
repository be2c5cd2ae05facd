"""All of MetaSchedule's plug-ins together, as one design space."""

from __future__ import annotations

from typing import Any

from ...schedule import Target, hardware_of
from .mutators import MutateCut
from .postprocs import VerifyCut
from .rules import schedule_rules


def space_generator(target: Target = "llvm") -> Any:
    """A space generator for `ms.tune_tir`, `relax_integration.tune_relax` and any other tuner: :func:`schedule_rules`
    with the move among their choices, and the check that choices go together. Target as in tiling_schedule."""
    from tvm.s_tir import meta_schedule as ms

    return ms.space_generator.PostOrderApply(
        sch_rules=schedule_rules(target),
        postprocs=[VerifyCut(hardware_of(target))],
        mutator_probs={MutateCut(): 1.0},
    )
