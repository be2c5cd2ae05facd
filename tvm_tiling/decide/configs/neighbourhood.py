"""The cuts around a decision: what a search may change, by name, and in which order it had best try.

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
from ...workload import ConvWorkload, GemmWorkload
from ..surroundings import Surroundings
from .config import Tiling, rules_for
from .features import features_of
from .record import Cut, Value
from .rule import CutRule

FORM = "form"
# Cuts of each rule whose neighbours are looked at.
MOST_WITH_NEIGHBOURS = 24


@dataclass(frozen=True, kw_only=True)
class Space:
    """Cuts of one workload on one machine.

    `start` is the decision's cut. `options` are named choices and their values, the decision's value first, then by the
    predicted cost of the best cut that has it: "form", and the choices of each form, with the form's name in front
    where several forms have choices of their own ("direct.band").
    """

    workload: GemmWorkload | ConvWorkload
    hardware: Hardware
    start: Cut
    options: Mapping[str, tuple[Value, ...]]
    _rules: Mapping[str, CutRule] = field(repr=False)
    _priced: Mapping[Cut, float] = field(repr=False)  # in order of cost

    def cut(self, choices: Mapping[str, Value]) -> Cut | None:
        """The cut of these choices; what is left out is as in `start`, or the best cut of another form.

        None where the combination is impossible, or its blocks do not stay where they are made for. DatabaseError for a
        form that is none.
        """
        form = choices.get(FORM, self.start.form)
        if form not in self._rules:
            raise DatabaseError(f"form = {form!r}, accepted: {', '.join(self._rules)}")
        rule = self._rules[str(form)]
        own = dict(self._best(str(form)).choices)
        own.update({name: choices[_full(rule, name)] for name in own if _full(rule, name) in choices})
        return self._settled(Cut.of(self.start.op, str(form), own))

    def choices(self, cut: Cut) -> dict[str, Value]:
        """The choices of a cut by their names in `options`."""
        rule = self._rules[cut.form]
        return {FORM: cut.form, **{_full(rule, name): value for name, value in cut.choices}}

    def cuts(self, limit: int | None = None) -> Iterator[Cut]:
        """The candidates and what is near, in order of predicted cost; `limit` of them at most."""
        return islice(self._priced, limit)

    def __len__(self) -> int:
        return len(self._priced)

    def __contains__(self, cut: object) -> bool:
        return cut in self._priced

    def predicted(self, cut: Cut) -> float:
        """The predicted cost: seconds on a CPU, cycles on an accelerator."""
        known = self._priced.get(cut)
        return self._rules[cut.form].cost(cut) if known is None else known

    def tiling(self, cut: Cut) -> Tiling:
        """The decision that a cut stands for."""
        return self._rules[cut.form].tiling_of(cut)

    def features(self, cut: Cut) -> dict[str, float]:
        """What a cost model is told of a cut; see configs/features.py."""
        return features_of(self.workload, cut, self._rules[cut.form], self.predicted(cut))

    def _best(self, form: str) -> Cut:
        if form == self.start.form:
            return self.start
        return next(cut for cut in self._priced if cut.form == form)

    def _settled(self, cut: Cut) -> Cut | None:
        rule = self._rules[cut.form]
        found = settled(rule, cut)
        return found if found in self._priced or (found is not None and rule.fits(found)) else None


def neighbourhood(
    workload: GemmWorkload | ConvWorkload,
    hardware: Hardware,
    *,
    ahead: bool = False,
    around: Surroundings | None = None,
) -> Space:
    """The cuts around the decision for a workload on `hardware`; `ahead`: weights arrive packed. `around` says more of
    the operator's place and then also that.

    HardwareError where the machine has no unit for it or nothing fits, UnsupportedOperator for what no form serves.
    """
    around = around or Surroundings(ahead=ahead)
    rules = rules_for(workload, hardware, around)
    compared: dict[Cut, float] = {}
    further: dict[Cut, float] = {}
    by_form: dict[str, CutRule] = {}
    for rule in rules:
        candidates: dict[Cut, float] = {}
        for candidate in rule.candidates():
            cut = settled(rule, candidate)  # some leave a core without work
            if cut is not None and cut not in candidates:
                candidates[cut] = rule.cost(cut)
        near = _near(rule, candidates)
        by_form.update((cut.form, rule) for cut in (*candidates, *near))
        compared.update(candidates)
        further.update(near)
    if not compared:
        raise HardwareError(f"hardware {hardware.name!r}: no cut of the {type(workload).__name__} fits")
    decided = [cut for rule in rules if (cut := rule.decided()) is not None and cut in compared]
    start = min(decided or compared, key=lambda cut: compared[cut])
    ranked = dict(sorted((compared | further).items(), key=lambda item: (item[1], item[0] != start)))
    options: dict[str, dict[Value, None]] = {FORM: {}}
    for cut in (start, *ranked):
        rule = by_form[cut.form]
        options[FORM].setdefault(cut.form)
        for name, value in cut.choices:
            options.setdefault(_full(rule, name), {}).setdefault(value)
    return Space(
        workload=workload,
        hardware=hardware,
        start=start,
        options=MappingProxyType({name: tuple(values) for name, values in options.items()}),
        _rules=MappingProxyType(by_form),
        _priced=MappingProxyType(ranked),
    )


def settled(rule: CutRule, cut: Cut) -> Cut | None:
    """The cut as the shape has it, blocks clipped; None where it is impossible."""
    try:
        return rule.cut_of(rule.tiling_of(cut))
    except TilingError:
        return None


def _near(rule: CutRule, candidates: Mapping[Cut, float]) -> dict[Cut, float]:
    """What is near the best, of the candidates and of what was found near them, with its costs."""
    costs: dict[Cut, float] = {}
    queue = [(cost, number, cut) for number, (cut, cost) in enumerate(candidates.items())]
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


def _full(rule: CutRule, name: str) -> str:
    return f"{rule.name}.{name}" if rule.name else name
