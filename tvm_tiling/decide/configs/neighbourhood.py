"""The search space around a decision: named choices, in the order in which a search should try them.

It contains all candidates that the decision compares, for every algorithm that the workload allows, and the neighbours
of those with the best predictions: blocks of half and twice the size, exchanged loops, and alternatives of packing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType

from ...errors import DatabaseError, HardwareError, TilingError
from ...hardware.description import Hardware
from ...old_names import old_arguments
from ...workload import ConvWorkload, GemmWorkload
from ..surroundings import Surroundings
from .config import Tiling, rules_for
from .features import features_of
from .record import Config, Value
from .rule import ConfigRule

FORM = "form"
# Configurations per rule whose neighbours are included.
MOST_WITH_NEIGHBOURS = 24


@dataclass(frozen=True, kw_only=True)
class Space:
    """Configurations of one workload on one machine.

    `start` is the decision's configuration. `options` maps each choice to its values, the decision's value first, then
    in the order of the predicted cost of the best configuration with that value. The choices are "form" and those of
    each algorithm, prefixed by the algorithm's name if several algorithms have choices of their own ("direct.band").
    """

    workload: GemmWorkload | ConvWorkload
    hardware: Hardware
    start: Config
    options: Mapping[str, tuple[Value, ...]]
    _rules: Mapping[str, ConfigRule] = field(repr=False)
    _priced: Mapping[Config, float] = field(repr=False)  # in order of cost

    def config(self, choices: Mapping[str, Value]) -> Config | None:
        """Return the configuration with these choices; the others are taken from `start`, or from the best
        configuration of another algorithm.

        Returns None if the combination is impossible or its blocks exceed their storage levels. Raises DatabaseError
        for an unknown algorithm.
        """
        form = choices.get(FORM, self.start.form)
        if form not in self._rules:
            raise DatabaseError(f"algorithm = {form!r}; expected {', '.join(self._rules)}")
        rule = self._rules[str(form)]
        own = dict(self._best(str(form)).choices)
        own.update({name: choices[_full(rule, name)] for name in own if _full(rule, name) in choices})
        return self._settled(Config.of(self.start.op, str(form), own))

    def choices(self, config: Config) -> dict[str, Value]:
        """Return the choices of a configuration under their names in `options`."""
        rule = self._rules[config.form]
        return {FORM: config.form, **{_full(rule, name): value for name, value in config.choices}}

    def configs(self, limit: int | None = None) -> Iterator[Config]:
        """Yield the configurations in order of predicted cost, at most `limit`."""
        return islice(self._priced, limit)

    def __len__(self) -> int:
        return len(self._priced)

    def __contains__(self, config: object) -> bool:
        return config in self._priced

    def predicted(self, config: Config) -> float:
        """Return the predicted cost: seconds on a CPU, cycles on an accelerator."""
        known = self._priced.get(config)
        return self._rules[config.form].cost(config) if known is None else known

    def tiling(self, config: Config) -> Tiling:
        """Return the decision of a configuration."""
        return self._rules[config.form].tiling_of(config)

    def features(self, config: Config) -> dict[str, float]:
        """Return the features of a configuration for the cost model; see configs/features.py."""
        return features_of(self.workload, config, self._rules[config.form], self.predicted(config))

    def _best(self, form: str) -> Config:
        if form == self.start.form:
            return self.start
        return next(config for config in self._priced if config.form == form)

    def _settled(self, config: Config) -> Config | None:
        rule = self._rules[config.form]
        found = settled(rule, config)
        return found if found in self._priced or (found is not None and rule.fits(found)) else None


@old_arguments(ahead="prepacked")
def neighbourhood(
    workload: GemmWorkload | ConvWorkload,
    hardware: Hardware,
    *,
    prepacked: bool = False,
    around: Surroundings | None = None,
) -> Space:
    """Return the configurations around the decision for a workload on `hardware`.

    prepacked: whether the weights are prepacked; around: the complete context of the operator, which replaces
    `prepacked`. Raises HardwareError if the machine has no unit for the workload or nothing fits, and
    UnsupportedOperator if no algorithm supports it.
    """
    around = around or Surroundings(prepacked=prepacked)
    rules = rules_for(workload, hardware, around)
    compared: dict[Config, float] = {}
    further: dict[Config, float] = {}
    by_form: dict[str, ConfigRule] = {}
    for rule in rules:
        candidates: dict[Config, float] = {}
        for candidate in rule.candidates():
            config = settled(rule, candidate)  # some leave a core idle
            if config is not None and config not in candidates:
                candidates[config] = rule.cost(config)
        near = _near(rule, candidates)
        by_form.update((config.form, rule) for config in (*candidates, *near))
        compared.update(candidates)
        further.update(near)
    if not compared:
        raise HardwareError(f"hardware {hardware.name!r}: no configuration of the {workload.op} fits")
    decided = [config for rule in rules if (config := rule.decided()) is not None and config in compared]
    start = min(decided or compared, key=lambda config: compared[config])
    ranked = dict(sorted((compared | further).items(), key=lambda item: (item[1], item[0] != start)))
    options: dict[str, dict[Value, None]] = {FORM: {}}
    for config in (start, *ranked):
        rule = by_form[config.form]
        options[FORM].setdefault(config.form)
        for name, value in config.choices:
            options.setdefault(_full(rule, name), {}).setdefault(value)
    return Space(
        workload=workload,
        hardware=hardware,
        start=start,
        options=MappingProxyType({name: tuple(values) for name, values in options.items()}),
        _rules=MappingProxyType(by_form),
        _priced=MappingProxyType(ranked),
    )


def settled(rule: ConfigRule, config: Config) -> Config | None:
    """Return the configuration clipped to the shape; None if it is impossible."""
    try:
        return rule.config_of(rule.tiling_of(config))
    except TilingError:
        return None


def _near(rule: ConfigRule, candidates: Mapping[Config, float]) -> dict[Config, float]:
    """Return the neighbours of the best candidates, and of the best neighbours found, with their costs."""
    costs: dict[Config, float] = {}
    queue = [(cost, number, config) for number, (config, cost) in enumerate(candidates.items())]
    heapq.heapify(queue)
    for _ in range(MOST_WITH_NEIGHBOURS):
        if not queue:
            break
        _, _, best = heapq.heappop(queue)
        for near in rule.near(best):
            found = settled(rule, near)
            if found is not None and found not in candidates and found not in costs and rule.fits(found):
                costs[found] = rule.cost(found)
                heapq.heappush(queue, (costs[found], len(candidates) + len(costs), found))
    return costs


def _full(rule: ConfigRule, name: str) -> str:
    return f"{rule.name}.{name}" if rule.name else name
