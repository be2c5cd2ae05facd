"""The configurations around a decision: what a search may change, by name, and in which order it had best try.

All candidates that the decision itself compares are in it, of every form that the workload admits, and of those that
are predicted best also what is near: blocks of half and twice the size, the other order of two loops, packing or not.
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
# Configurations of each rule whose neighbours are looked at.
MOST_WITH_NEIGHBOURS = 24


@dataclass(frozen=True, kw_only=True)
class Space:
    """Configurations of one workload on one machine.

    `start` is the decision's cut. `options` are named choices and their values, the decision's value first, then by the
    predicted cost of the best configuration that has it: "form", and the choices of each form, with the form's name in
    front where several forms have choices of their own ("direct.band").
    """

    workload: GemmWorkload | ConvWorkload
    hardware: Hardware
    start: Config
    options: Mapping[str, tuple[Value, ...]]
    _rules: Mapping[str, ConfigRule] = field(repr=False)
    _priced: Mapping[Config, float] = field(repr=False)  # in order of cost

    def config(self, choices: Mapping[str, Value]) -> Config | None:
        """The configuration of these choices; what is left out is as in `start`, or the best configuration of another
        form.

        None where the combination is impossible, or its blocks do not stay where they are made for. DatabaseError for a
        form that is none.
        """
        form = choices.get(FORM, self.start.form)
        if form not in self._rules:
            raise DatabaseError(f"algorithm = {form!r}; expected {', '.join(self._rules)}")
        rule = self._rules[str(form)]
        own = dict(self._best(str(form)).choices)
        own.update({name: choices[_full(rule, name)] for name in own if _full(rule, name) in choices})
        return self._settled(Config.of(self.start.op, str(form), own))

    def choices(self, config: Config) -> dict[str, Value]:
        """The choices of a cut by their names in `options`."""
        rule = self._rules[config.form]
        return {FORM: config.form, **{_full(rule, name): value for name, value in config.choices}}

    def configs(self, limit: int | None = None) -> Iterator[Config]:
        """The candidates and what is near, in order of predicted cost; `limit` of them at most."""
        return islice(self._priced, limit)

    def __len__(self) -> int:
        return len(self._priced)

    def __contains__(self, config: object) -> bool:
        return config in self._priced

    def predicted(self, config: Config) -> float:
        """The predicted cost: seconds on a CPU, cycles on an accelerator."""
        known = self._priced.get(config)
        return self._rules[config.form].cost(config) if known is None else known

    def tiling(self, config: Config) -> Tiling:
        """The decision that a configuration stands for."""
        return self._rules[config.form].tiling_of(config)

    def features(self, config: Config) -> dict[str, float]:
        """What a cost model is told of a configuration; see configs/features.py."""
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
    """The configurations around the decision for a workload on `hardware`; `prepacked`: weights arrive packed. `around`
    says more of the operator's place and then also that.

    HardwareError where the machine has no unit for it or nothing fits, UnsupportedOperator for what no form serves.
    """
    around = around or Surroundings(prepacked=prepacked)
    rules = rules_for(workload, hardware, around)
    compared: dict[Config, float] = {}
    further: dict[Config, float] = {}
    by_form: dict[str, ConfigRule] = {}
    for rule in rules:
        candidates: dict[Config, float] = {}
        for candidate in rule.candidates():
            config = settled(rule, candidate)  # some leave a core without work
            if config is not None and config not in candidates:
                candidates[config] = rule.cost(config)
        near = _near(rule, candidates)
        by_form.update((config.form, rule) for config in (*candidates, *near))
        compared.update(candidates)
        further.update(near)
    if not compared:
        raise HardwareError(f"hardware {hardware.name!r}: no configuration of the {type(workload).__name__} fits")
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
    """The configuration as the shape has it, blocks clipped; None where it is impossible."""
    try:
        return rule.config_of(rule.tiling_of(config))
    except TilingError:
        return None


def _near(rule: ConfigRule, candidates: Mapping[Config, float]) -> dict[Config, float]:
    """What is near the best, of the candidates and of what was found near them, with its costs."""
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
