"""MetaSchedule mutators in the neighbourhood of a decision: another value for one sampled choice of a configuration."""

from __future__ import annotations

import random
from typing import Any

from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.mutator import Mutator, PyMutator

from .annotation import PICK


@derived_object
class MutateConfig(PyMutator):
    """Resamples one of the configuration's choices, preferring values near the current one in the order of predicted
    cost."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Do nothing: mutations do not depend on the context."""

    def apply(self, trace: s_tir.schedule.Trace, _: Any) -> s_tir.schedule.Trace | None:
        """Return the trace with one choice changed; None if it has none."""
        picks = _picks(trace)
        if not picks:
            return None
        instruction = self._random.choice(picks)
        count, place = len(instruction.attrs[0]), int(trace.decisions[instruction])
        others = [other for other in range(count) if other != place]
        nearer = [1.0 / abs(other - place) for other in others]
        chosen = self._random.choices(others, nearer)[0]
        return trace.with_decision(instruction, chosen, remove_postproc=True)

    def clone(self) -> Mutator:
        """Return a mutator with a different seed, since clones run in parallel."""
        return MutateConfig(self._random.randrange(2**31))


def _picks(trace: s_tir.schedule.Trace) -> list[Any]:
    """Return the instructions that sample a configuration choice with several values."""
    sampled = [i for i in trace.insts if i.kind.name == "SampleCategorical"]
    used = {output: i for i in sampled for output in i.outputs if len(i.attrs[0]) > 1}
    found = []
    for i in trace.insts:
        if i.kind.name == "Annotate" and str(i.attrs[0]).startswith(PICK):
            found += [own for output, own in used.items() if output.same_as(i.inputs[1])]
    return found
