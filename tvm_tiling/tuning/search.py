"""Which cuts to measure next, and when nothing is left to gain. No measuring and no TVM here."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..decide.configs.config import Config
from ..workload import ConvWorkload, GemmWorkload
from .measuring.measurer import Measured

LEAST_RESIDUALS = 8  # measured configurations from which the predictions' error is known
ASSUMED_DEVIATION = 0.1  # of the logarithm of cost over prediction, before that


class SearchSpace(Protocol):
    """The configurations of one operator on one machine: `start` is the decision's."""

    @property
    def start(self) -> Config: ...

    @property
    def workload(self) -> GemmWorkload | ConvWorkload: ...

    def configs(self, limit: int | None = None) -> Iterable[Config]:
        """Up to `limit` cuts, the cheapest by prediction first."""
        ...

    def predicted(self, config: Config) -> float:
        """Seconds, on an accelerator cycles."""
        ...

    def features(self, config: Config) -> dict[str, float]:
        """What a cost model may learn from."""
        ...


class CostModel(Protocol):
    """Says which configurations are the cheapest, and learns from what was measured."""

    def rank(self, space: SearchSpace, configs: Sequence[Config]) -> Sequence[Config]:
        """`configs`, the cheapest first."""
        ...

    def update(self, space: SearchSpace, measured: Sequence[Measured]) -> None:
        """Take in what was measured since the last call."""
        ...


class Formulas:
    """The CostModel that only knows the formulas' predictions."""

    def rank(self, space: SearchSpace, configs: Sequence[Config]) -> Sequence[Config]:
        """`configs` in the order of their predicted costs."""
        return sorted(configs, key=space.predicted)

    def update(self, space: SearchSpace, measured: Sequence[Measured]) -> None:
        """Formulas do not learn."""


@dataclass(frozen=True, kw_only=True)
class SearchRules:
    """`trials`: cuts to measure at most, those of earlier sessions included. `explore`: share of them that are not the
    model's first choices. A search ends before that where the best configuration is within `enough` of the least cost
    there is, where no configuration is left that could save the share `worth`, or where the last `patience` ones did
    not."""

    trials: int = 64
    explore: float = 0.25
    worth: float = 0.01
    enough: float = 0.97
    patience: int = 24
    pool: int = 2000


class Search:
    """Proposes cuts of `space`: first the seeds, then the model's first choices and some others, each once.

    `past`: cuts that were measured before with their costs, None for failures. `least`: what the operator costs at
    least, 0 where that is unknown.
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
        """Why the search is at its end, empty while it is not."""
        if self.done >= self.rules.trials:
            return f"{self.rules.trials} trials done"
        if self._seeds:
            return ""
        if not self._left:
            return "every configuration was measured"
        if self.least and self.cost * self.rules.enough <= self.least:
            return f"within {1 - self.rules.enough:.0%} of the least cost there is"
        if self.since >= self.rules.patience:
            return f"the last {self.since} trials gained less than {self.rules.worth:.0%}"
        if self._nothing_left():
            return f"no configuration left could gain {self.rules.worth:.0%} by its prediction and the error of those"
        return ""

    def propose(self, count: int) -> tuple[Config, ...]:
        """Up to `count` cuts to be measured; none when the search is at its end."""
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
                place = int(len(ranked) * self._random.random() ** 2)  # the nearer to the first, the likelier
            found.append(ranked.pop(place))
            del self._left[found[-1]]
        return tuple(found)

    def learn(self, measured: Sequence[Measured]) -> None:
        """Take in what became of proposed cuts."""
        for result in measured:
            self._take(result.job.config, result.cost)
        self.model.update(self.space, measured)

    def again(self, measured: Measured) -> None:
        """Take in a new cost of a configuration that was measured in an earlier session, beside which new ones are."""
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
        """What the luckiest of the configurations that are left would save beside the best so far; 0 at the end of the
        search.

        The logarithm of cost over prediction is taken for normal, with the mean and deviation of what was measured, of
        fewer cuts with ASSUMED_DEVIATION. The least of n draws is expected sqrt(2 ln n) deviations below the mean (the
        bound for large n): the more are left, the more may be hidden among them. Nothing costs less than `least`.
        """
        if not self._left or self.best is None:
            return 0.0
        known = len(self._residuals) >= LEAST_RESIDUALS
        deviation = statistics.stdev(self._residuals) if known else ASSUMED_DEVIATION
        luck = math.sqrt(2 * math.log(len(self._left) + 1)) * deviation
        lowest = min(self.space.predicted(config) for config in self._left)
        return max(0.0, self.cost - max(self.least, lowest * math.exp(statistics.fmean(self._residuals) - luck)))
