"""The choice of configurations to measure next, and the stop criterion. No measuring and no TVM here."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..decide.configs.config import Config
from ..figures import quantity
from ..workload import ConvWorkload, GemmWorkload
from .measuring.measurer import Measured

LEAST_RESIDUALS = 8  # measured configurations needed to estimate the prediction error
ASSUMED_DEVIATION = 0.1  # of the logarithm of cost over prediction, with fewer


class SearchSpace(Protocol):
    """The configurations of one operator on one machine; `start` is that of the decision."""

    @property
    def start(self) -> Config: ...

    @property
    def workload(self) -> GemmWorkload | ConvWorkload: ...

    def configs(self, limit: int | None = None) -> Iterable[Config]:
        """Yield up to `limit` configurations, cheapest by prediction first."""
        ...

    def predicted(self, config: Config) -> float:
        """Return the predicted cost: seconds, or cycles on an accelerator."""
        ...

    def features(self, config: Config) -> dict[str, float]:
        """Return the features that a cost model may learn from."""
        ...


class CostModel(Protocol):
    """Ranks configurations by cost, and learns from measurements."""

    def rank(self, space: SearchSpace, configs: Sequence[Config]) -> Sequence[Config]:
        """Return `configs` with the cheapest first."""
        ...

    def update(self, space: SearchSpace, measured: Sequence[Measured]) -> None:
        """Learn from the measurements since the last call."""
        ...


class Formulas:
    """The CostModel that uses the analytical predictions alone."""

    def rank(self, space: SearchSpace, configs: Sequence[Config]) -> Sequence[Config]:
        """Return `configs` in the order of their predicted costs."""
        return sorted(configs, key=space.predicted)

    def update(self, space: SearchSpace, measured: Sequence[Measured]) -> None:
        """Do nothing: analytical predictions do not learn."""


@dataclass(frozen=True, kw_only=True)
class SearchRules:
    """The limits of a search. `trials`: most configurations to measure, including those of earlier sessions. `explore`:
    fraction of them that are not the model's first choices. A search ends earlier if the best configuration is within
    `enough` of the lower bound, if no remaining configuration could save the fraction `worth`, or if the last
    `patience` ones did not."""

    trials: int = 64
    explore: float = 0.25
    worth: float = 0.01
    enough: float = 0.97
    patience: int = 24
    pool: int = 2000


class Search:
    """Proposes configurations of `space`, each once: first the seeds, then the model's first choices and some others.

    `past`: previously measured configurations with their costs, None for failures. `least`: a lower bound on the cost
    of the operator, 0 if unknown.
    """

    def __init__(
        self,
        space: SearchSpace,
        seeds: Sequence[Config],
        rules: SearchRules,
        *,
        model: CostModel | None = None,
        least: float = 0.0,
        past: Mapping[Config, float | None] | None = None,
        seed: int = 0,
    ) -> None:
        self.space, self.rules, self.model, self.least = space, rules, model or Formulas(), least
        self.best: Config | None = None
        self.cost = math.inf
        self._random = random.Random(seed)
        self._pool = list(dict.fromkeys([space.start, *seeds, *space.configs(rules.pool)]))
        self._left = dict.fromkeys(self._pool)
        self._seeds = [config for config in dict.fromkeys([space.start, *seeds]) if config not in (past or {})]
        self._residuals: list[float] = []
        self.since = 0  # trials since the last gain
        self.done = 0
        for config, cost in (past or {}).items():
            self._take(config, cost)
        self.since = 0

    @property
    def stopped(self) -> str:
        """Why the search has ended, or an empty string."""
        if self.done >= self.rules.trials:
            return f"{quantity(self.rules.trials, 'trial')} done"
        if self._seeds:
            return ""
        if not self._left:
            return "every configuration was measured"
        if self.least and self.cost * self.rules.enough <= self.least:
            return f"within {1 - self.rules.enough:.0%} of the lower bound on the cost"
        if self.since >= self.rules.patience:
            return f"the last {quantity(self.since, 'trial')} gained less than {self.rules.worth:.0%}"
        if self._nothing_left():
            return (
                f"no remaining configuration could gain {self.rules.worth:.0%}, given its prediction and the "
                "prediction error"
            )
        return ""

    def propose(self, count: int) -> tuple[Config, ...]:
        """Return up to `count` configurations to be measured; none when the search has ended."""
        if self.stopped:
            return ()
        count = min(count, self.rules.trials - self.done)
        found, self._seeds = self._seeds[:count], self._seeds[count:]
        for config in found:
            self._left.pop(config, None)
        ranked = list(self.model.rank(self.space, list(self._left))) if len(found) < count else []
        while len(found) < count and ranked:
            place = 0
            if self._random.random() < self.rules.explore:
                place = int(len(ranked) * self._random.random() ** 2)  # favours those near the front
            found.append(ranked.pop(place))
            del self._left[found[-1]]
        return tuple(found)

    def learn(self, measured: Sequence[Measured]) -> None:
        """Learn the results of proposed configurations."""
        for result in measured:
            self._take(result.job.config, result.cost)
        self.model.update(self.space, measured)

    def again(self, measured: Measured) -> None:
        """Record a new cost of a configuration that was measured in an earlier session, for comparison with new
        ones."""
        config, cost = measured.job.config, measured.cost
        if cost is not None and (config == self.best or cost < self.cost):
            self.best, self.cost = config, cost

    def _take(self, config: Config, cost: float | None) -> None:
        self._left.pop(config, None)
        self.done += 1
        self.since += 1
        if cost is None:
            return
        predicted = self.space.predicted(config)
        if predicted > 0:
            self._residuals.append(math.log(cost / predicted))
        if cost < self.cost:
            if cost < self.cost * (1 - self.rules.worth):
                self.since = 0
            self.best, self.cost = config, cost

    def _nothing_left(self) -> bool:
        return len(self._residuals) >= LEAST_RESIDUALS and self.hope < self.cost * self.rules.worth

    @property
    def hope(self) -> float:
        """The saving over the best so far that the luckiest of the remaining configurations could bring; 0 at the end
        of the search.

        The logarithm of cost over prediction is assumed normal, with the mean and deviation of the measurements, or
        ASSUMED_DEVIATION if there are too few. The minimum of n draws is expected sqrt(2 ln n) deviations below the
        mean (the bound for large n): the more configurations remain, the better the best of them may be. Nothing costs
        less than `least`.
        """
        if not self._left or self.best is None:
            return 0.0
        known = len(self._residuals) >= LEAST_RESIDUALS
        deviation = statistics.stdev(self._residuals) if known else ASSUMED_DEVIATION
        luck = math.sqrt(2 * math.log(len(self._left) + 1)) * deviation
        lowest = min(self.space.predicted(config) for config in self._left)
        return max(0.0, self.cost - max(self.least, lowest * math.exp(statistics.fmean(self._residuals) - luck)))
