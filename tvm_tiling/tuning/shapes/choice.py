"""Whether an entry's configuration is taken for a shape, or the formulas' own decision (page 02: a hit is a candidate).

Both are priced by the formulas, corrected by what was measured: where the entry's configuration cost c at its own
shape and is predicted p there and p' here, it is estimated at c * p' / p, which takes out what the formulas get wrong
of the machine, the operator and the configuration. The decision is priced likewise by what it cost at the entry's
shape. Where that was not measured, an initial entry was at least as cheap as the decision (that was one of those it
was chosen from), and a boundary entry corrects both by the same factor. For another shape than the entry's a CPU takes
the entry's configuration only if it is estimated to be clearly cheaper, the more clearly the larger the shape:
differences of a percent do not carry over from shape to shape, no gain is believed to be more than it was measured to
be at the entry's shape, and of equal estimates the decision is the one that was made for the shape. Nor is it taken
where its blocks, which may be as deep as the shape has channels, are held by another level of cache than at the entry's
shape: formulas do not know what makes a configuration faster than they predict, and caches often do. On a simulated
machine predictions are in the cycles that costs are: at another shape the decision is not corrected, and an entry is
not cheaper than it is predicted to be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...decide.configs.blocked_configs import blocked_product
from ...decide.configs.config import Config, config_of, rule_for, tiling_of
from ...decide.kinds import decided
from ...decide.options import Options
from ...decide.surroundings import Surroundings
from ...errors import TilingError
from ...hardware.cpu import Cpu
from ...hardware.description import Hardware
from .entries import Entry
from .kept_config import kept_config
from .key import Workload, extents_of

_EVEN = 1e-9  # relatively, costs that differ by less are equal
# On a CPU, how much cheaper an entry's configuration has to be for another shape, up to how many times as large, and
# how much more for each doubling beyond.
_CLEARLY, _NEAR, _FURTHER = 0.03, 2, 0.02


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
    margin, gain = -_EVEN, own / estimate
    if hardware.cpu is not None and entry.workload != workload:
        margin = _margin(entry.workload, workload)
        if entry.decided_cost is not None:
            gain = min(gain, entry.decided_cost / entry.cost)
        if gain >= 1 + margin and not price.held_alike(config, hardware.cpu):
            why = "the formulas' configuration is taken: the entry's blocks are held by other caches than at its shape"
            return Choice(config=config, estimate=estimate, decided=own, taken=False, why=why)
    taken = gain >= 1 + margin
    why = _why(gain, taken, margin)
    return Choice(config=config, estimate=estimate, decided=own, taken=taken, why=why)


def _margin(known: Workload, wanted: Workload) -> float:
    """How large an estimated gain of a CPU has to be for some of it to be left at another shape."""
    times = math.prod(extents_of(wanted)) / math.prod(extents_of(known))
    return _CLEARLY + _FURTHER * max(0.0, math.log2(times / _NEAR))


def _why(gain: float, taken: bool, margin: float) -> str:
    """What `Choice.why` says where the decision is believed to cost `gain` times as much as the entry's
    configuration."""
    first, second = ("the entry's", "the formulas'") if taken else ("the formulas'", "the entry's")
    if not taken and gain >= 1:
        more = f"{gain - 1:.1%} more, less than the {margin:.0%} that carry over"
        return f"{first} configuration is taken: it is estimated to cost {more}"
    return f"{first} configuration is taken: {second} is estimated to cost {max(gain, 1 / gain) - 1:.1%} more"


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

    def held_alike(self, config: Config, cpu: Cpu) -> bool:
        """Whether the same levels of cache hold what the entry's configuration reads again and again, here and at the
        entry's shape."""
        return self._held(config, self._workload, cpu) == self._held(self._entry.config, self._entry.workload, cpu)

    def _held(self, config: Config, workload: Workload, cpu: Cpu) -> list[int]:
        """The levels, by number from 0, that hold a register tile's rows, a panel and a block; none where a form has no
        such blocks."""
        tiling = tiling_of(config, workload, self._hardware, Surroundings(prepacked=self._prepacked))
        product = blocked_product(workload, tiling)
        held = () if product is None else product.held
        return [sum(size > cache.size for cache in cpu.caches) for size in held]

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
