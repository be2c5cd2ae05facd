"""Analytical predictions corrected by measurements: the ranking by which tune() picks the configurations to try
next."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...decide.configs.config import rule_for
from ...decide.configs.features import features_of
from ...decide.configs.record import Config
from ...decide.configs.rule import ConfigRule
from ...decide.surroundings import Surroundings
from ...errors import TilingError
from ...hardware.description import Hardware
from ...workload import ConvWorkload, GemmWorkload
from ..measuring.measurer import Measured
from ..search import SearchSpace
from .past import PastTrial
from .residual import Residual
from .samples import Sample

# Only this many configurations, the best by the analytical prediction, are ranked with corrections; the others follow
# in analytical order. Extracting the features of a configuration takes a third of a millisecond, and configurations
# this far down were never the best.
MOST_ASKED = 300
# Operand type of the recorded trials; other types start from the analytical prediction.
RECORDED_TYPE = "float32"


class LearnedCosts:
    """Ranks configurations by predicted cost, corrected by measurements of any workload."""

    def __init__(self, residual: Residual | None = None) -> None:
        self.residual = residual or Residual()
        # Features by space. The space is kept alive next to them so that its id stays unique.
        self._features: dict[int, tuple[SearchSpace, dict[Config, Mapping[str, float]]]] = {}

    def costs(self, space: SearchSpace, configs: Sequence[Config]) -> np.ndarray:
        """Return the relative costs of configurations: predictions times corrections, up to a constant factor per
        workload."""
        predicted = np.array([space.predicted(config) for config in configs], dtype=float)
        recorded = space.workload.dtype == RECORDED_TYPE
        if not self.residual.ready(recorded=recorded):
            return predicted
        _, known = self._features.setdefault(id(space), (space, {}))
        for config in configs:
            if config not in known:
                known[config] = space.features(config)
        return predicted * self.residual.corrections([known[config] for config in configs], recorded=recorded)

    def rank(self, space: SearchSpace, configs: Sequence[Config]) -> Sequence[Config]:
        """Return `configs` with the cheapest first."""
        by_formulas = sorted(configs, key=space.predicted)
        asked, rest = by_formulas[:MOST_ASKED], by_formulas[MOST_ASKED:]
        return [*(asked[place] for place in np.argsort(self.costs(space, asked), kind="stable")), *rest]

    def update(self, space: SearchSpace, measured: Sequence[Measured]) -> None:
        """Learn from measurements; failed ones are ignored."""
        samples = []
        for result in measured:
            job = result.job
            if result.cost is not None:
                group = group_of(job.workload, job.hardware, prepacked=job.prepacked, epilogue=job.epilogue)
                samples.append(sample_of(space, job.config, result.cost, group))
        self.residual.learn(samples)

    def remember(self, trials: Iterable[PastTrial], hardware: Hardware) -> None:
        """Learn from trials of earlier sessions on `hardware`; configurations that are no longer possible are
        ignored."""
        self.residual.learn(samples_of(trials, hardware))


def samples_of(trials: Iterable[PastTrial], hardware: Hardware) -> list[Sample]:
    """Return the samples of trials on `hardware`; configurations that are no longer possible are omitted."""
    samples = []
    rules: dict[tuple[GemmWorkload | ConvWorkload, bool, str], ConfigRule] = {}
    for trial in trials:
        workload, config = trial.workload, trial.config
        with contextlib.suppress(TilingError):
            key = workload, trial.prepacked, config.form
            if key not in rules:
                rules[key] = rule_for(config.form, workload, hardware, Surroundings(prepacked=trial.prepacked))
            group = group_of(workload, hardware, prepacked=trial.prepacked, epilogue=trial.epilogue)
            predicted = rules[key].cost(config)
            features = features_of(workload, config, rules[key], predicted)
            samples.append(Sample(group, features, predicted, trial.cost))
    return samples


def group_of(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, *, prepacked: bool = False, epilogue: str = ""
) -> str:
    """Return the key that measured configurations must share for their costs to be comparable."""
    return " ".join(
        [hardware.name, str(workload), *(["ahead"] if prepacked else []), *([epilogue] if epilogue else [])]
    )


def sample_of(space: SearchSpace, config: Config, cost: float, group: str) -> Sample:
    """Return a measured configuration as a sample for the model."""
    return Sample(group, space.features(config), space.predicted(config), cost)
