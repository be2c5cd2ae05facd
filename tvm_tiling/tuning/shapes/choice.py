"""Whether an entry's configuration is taken for a shape, or the formulas' own decision (page 02: a hit is a candidate).

Both are priced by the formulas, corrected by what was measured: where the entry's configuration cost c at its own shape
and is predicted p there and p' here, it is estimated at c * p' / p, which takes out what the formulas get wrong of the
machine, the operator and the configuration. The decision is priced likewise by what it cost at the entry's shape. Where
that was not measured, an initial entry was at least as cheap as the decision (that was one of those it was chosen
from), and a boundary entry corrects both by the same factor. On a simulated machine predictions are in the cycles that
costs are: at another shape the decision is not corrected, and an entry is not cheaper than it is predicted to be.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...decide.configs.config import Config, config_of, rule_for
from ...decide.kinds import decided
from ...decide.options import Options
from ...decide.surroundings import Surroundings
from ...errors import TilingError
from ...hardware.description import Hardware
from .entries import Entry
from .kept_config import kept_config
from .key import Workload

_EVEN = 1e-9  # relatively, costs that differ by less are equal


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The configuration of an entry for a shape, `config`, None where the machine cannot do it; its `estimate` and that
    of the formulas' own decision, in the unit of the entry's cost; whether it is `taken`, and `why`."""

    config: Config | None
    estimate: float | None
    decided: float | None
    taken: bool
    why: str


def choice_of(entry: Entry, workload: Workload, hardware: Hardware, *, prepacked: bool = False) -> Choice:
    """Whether `entry`, which serves `workload`, is taken for it on `hardware`."""
    config = kept_config(entry, workload, hardware, prepacked=prepacked)
    if config is None:
        why = "the machine cannot do the entry's configuration for this shape; the formulas decide"
        return Choice(config=None, estimate=None, decided=None, taken=False, why=why)
    try:
        price = _Prices(entry, workload, hardware, prepacked)
        estimate, own = price.kept(config), price.decided()
    except TilingError as error:
        why = f"the formulas have no decision to compare it with: {error}"
        return Choice(config=config, estimate=None, decided=None, taken=True, why=why)
    if config == price.here:
        return Choice(config=config, estimate=estimate, decided=own, taken=True, why="the formulas decide the same")
    taken = estimate <= own * (1 + _EVEN)
    first, second = ("the entry's", "the formulas'") if taken else ("the formulas'", "the entry's")
    more = abs(own - estimate) / min(own, estimate)
    why = f"{first} configuration is taken: {second} is estimated to cost {more:.1%} more"
    return Choice(config=config, estimate=estimate, decided=own, taken=taken, why=why)


class _Prices:
    """Costs of configurations at a shape, corrected by what was measured at an entry's; `here` is the decision for the
    shape. TilingError where there is none."""

    def __init__(self, entry: Entry, workload: Workload, hardware: Hardware, prepacked: bool) -> None:
        self._entry, self._workload, self._hardware, self._prepacked = entry, workload, hardware, prepacked
        self.here = decision_for(workload, hardware, prepacked=prepacked)

    def kept(self, config: Config) -> float:
        """The cost of the entry's configuration here."""
        entry = self._entry
        here = self._predicted(config, self._workload)
        found = entry.cost * here / self._predicted(entry.config, entry.workload)
        if self._hardware.cpu is None and entry.workload != self._workload:
            return max(found, here)
        return found

    def decided(self) -> float:
        """The cost of the decision here."""
        entry = self._entry
        here = self._predicted(self.here, self._workload)
        if self._hardware.cpu is None and (entry.decided_cost is None or entry.workload != self._workload):
            return here
        if entry.decided_cost is None and entry.kind == "boundary":
            return entry.cost * here / self._predicted(entry.config, entry.workload)
        decision = decision_for(entry.workload, self._hardware, prepacked=self._prepacked)
        there = self._predicted(decision, entry.workload)
        return (entry.decided_cost or entry.cost) * here / there

    def _predicted(self, config: Config, workload: Workload) -> float:
        return predicted_cost(config, workload, self._hardware, prepacked=self._prepacked)


def decision_for(workload: Workload, hardware: Hardware, *, prepacked: bool) -> Config:
    """The configuration of the formulas' own decision. TilingError where there is none."""
    around = Surroundings(prepacked=prepacked)
    found = decided(workload, hardware, Options(prepacked=prepacked), around)
    return config_of(found, workload, hardware, around)  # type: ignore[arg-type]


def predicted_cost(config: Config, workload: Workload, hardware: Hardware, *, prepacked: bool) -> float:
    """What formulas put a configuration of a shape at: seconds, on an accelerator cycles. TilingError where the machine
    cannot do it."""
    return rule_for(config.form, workload, hardware, Surroundings(prepacked=prepacked)).cost(config)
