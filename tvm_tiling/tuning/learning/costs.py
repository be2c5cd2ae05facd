"""The formulas, corrected by what was measured: what tune() asks which cuts to try next."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...decide.configs.config import rule_for
from ...decide.configs.features import features_of
from ...decide.configs.record import Cut
from ...decide.configs.rule import CutRule
from ...decide.surroundings import Surroundings
from ...errors import TilingError
from ...hardware.description import Hardware
from ...workload import ConvWorkload, GemmWorkload
from ..measuring.measurer import Measured
from ..search import SearchSpace
from .past import PastTrial
from .residual import Residual, Sample

# Cuts, those first by the formulas, that the corrections are asked for; others stay behind them in the formulas' order.
# A cut's features take a third of a millisecond, and what formulas put so far behind was never the best.
MOST_ASKED = 300


class LearnedCosts:
    """Ranks cuts by their predicted cost, corrected by what was measured of any workload."""

    def __init__(self, residual: Residual | None = None) -> None:
        self.residual = residual or Residual()
        # Of every space that was asked about; the space stays alive beside them, so that its id stays its own.
        self._features: dict[int, tuple[SearchSpace, dict[Cut, Mapping[str, float]]]] = {}

    def costs(self, space: SearchSpace, cuts: Sequence[Cut]) -> np.ndarray:
        """The costs of cuts beside each other: formulas times corrections, a constant of the workload left out."""
        predicted = np.array([space.predicted(cut) for cut in cuts], dtype=float)
        if not self.residual.ready:
            return predicted
        _, known = self._features.setdefault(id(space), (space, {}))
        for cut in cuts:
            if cut not in known:
                known[cut] = space.features(cut)
        return predicted * self.residual.corrections([known[cut] for cut in cuts])

    def rank(self, space: SearchSpace, cuts: Sequence[Cut]) -> Sequence[Cut]:
        """`cuts`, the cheapest first."""
        by_formulas = sorted(cuts, key=space.predicted)
        asked, rest = by_formulas[:MOST_ASKED], by_formulas[MOST_ASKED:]
        return [*(asked[place] for place in np.argsort(self.costs(space, asked), kind="stable")), *rest]

    def update(self, space: SearchSpace, measured: Sequence[Measured]) -> None:
        """Learn from what was measured; failures teach nothing."""
        samples = []
        for result in measured:
            job = result.job
            if result.cost is not None:
                group = group_of(job.workload, job.hardware, ahead=job.ahead, epilogue=job.epilogue)
                samples.append(sample_of(space, job.cut, result.cost, group))
        self.residual.learn(samples)

    def remember(self, trials: Iterable[PastTrial], hardware: Hardware) -> None:
        """Learn from trials of earlier sessions on `hardware`; cuts that are not possible any more teach nothing."""
        samples = []
        rules: dict[tuple[GemmWorkload | ConvWorkload, bool, str], CutRule] = {}
        for trial in trials:
            workload, cut = trial.workload, trial.cut
            with contextlib.suppress(TilingError):
                key = workload, trial.ahead, cut.form
                if key not in rules:
                    rules[key] = rule_for(cut.form, workload, hardware, Surroundings(ahead=trial.ahead))
                group = group_of(workload, hardware, ahead=trial.ahead, epilogue=trial.epilogue)
                predicted = rules[key].cost(cut)
                features = features_of(workload, cut, rules[key], predicted)
                samples.append(Sample(group, features, predicted, trial.cost))
        self.residual.learn(samples)


def group_of(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, *, ahead: bool = False, epilogue: str = ""
) -> str:
    """What measured cuts must have in common for their costs to be compared."""
    return " ".join([hardware.name, str(workload), *(["ahead"] if ahead else []), *([epilogue] if epilogue else [])])


def sample_of(space: SearchSpace, cut: Cut, cost: float, group: str) -> Sample:
    """A measured cut as the model learns from it."""
    return Sample(group, space.features(cut), space.predicted(cut), cost)
