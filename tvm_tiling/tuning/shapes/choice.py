"""The choice between an entry's configuration and the analytical decision for a shape: a database hit is only a
candidate.

Both are priced by the analytical prediction, corrected by measurements: if the entry's configuration cost c at its own
shape, with the prediction p there and p' here, its estimate is c * p' / p, which cancels systematic errors for the
machine, the operator and the configuration. The decision is corrected in the same way by its cost at the entry's shape.
If that was not measured, an initial entry was at least as cheap as the decision (one of its candidates), and a boundary
entry corrects both by the same factor.

For a shape other than the entry's, a CPU takes the entry's configuration only if it is estimated to be clearly cheaper,
by a margin that grows with the shape: differences of a percent do not carry over between shapes, no gain is assumed to
exceed the one measured at the entry's shape, and of equal estimates the decision is the one made for the shape. It is
also not taken if its blocks, which may be as deep as the shape has channels, would be held by another cache level than
at the entry's shape: predictions do not capture why a configuration is faster than predicted, and caches are often the
reason. On a simulated machine, predictions are in cycles, as are costs: at another shape the decision is not corrected,
and an entry is not cheaper than its prediction.
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

_EVEN = 1e-9  # costs with a smaller relative difference are equal
# On a CPU, by how much an entry's configuration must be cheaper for another shape, up to how many times as large, and
# how much more for each doubling beyond.
_CLEARLY, _NEAR, _FURTHER = 0.03, 2, 0.02


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The configuration of an entry for a shape: `config`, None if the machine does not support it; its `estimate` and
    that of the analytical decision, in the unit of the entry's cost; whether it is `taken`, and `why`."""

    config: Config | None
    estimate: float | None
    decided: float | None
    taken: bool
    why: str


def choice_of(entry: Entry, workload: Workload, hardware: Hardware, *, prepacked: bool = False) -> Choice:
    """Return whether `entry`, which applies to `workload`, is taken for it on `hardware`."""
    config = kept_config(entry, workload, hardware, prepacked=prepacked)
    if config is None:
        why = "the machine does not support the entry's configuration for this shape; the analytical one is used"
        return Choice(config=None, estimate=None, decided=None, taken=False, why=why)
    try:
        price = _Prices(entry, workload, hardware, prepacked)
        estimate, own = price.kept(config), price.decided()
    except TilingError as error:
        why = f"there is no analytical configuration to compare it with: {error}"
        return Choice(config=config, estimate=None, decided=None, taken=True, why=why)
    if config == price.here:
        why = "the analytical configuration is the same"
        return Choice(config=config, estimate=estimate, decided=own, taken=True, why=why)
    margin, gain = -_EVEN, own / estimate
    if hardware.cpu is not None and entry.workload != workload:
        margin = _margin(entry.workload, workload)
        if entry.decided_cost is not None:
            gain = min(gain, entry.decided_cost / entry.cost)
        if gain >= 1 + margin and not price.held_alike(config, hardware.cpu):
            why = (
                "the analytical configuration is taken: the entry's blocks would be held by other cache levels "
                "than at its own shape"
            )
            return Choice(config=config, estimate=estimate, decided=own, taken=False, why=why)
    taken = gain >= 1 + margin
    why = _why(gain, taken, margin)
    return Choice(config=config, estimate=estimate, decided=own, taken=taken, why=why)


def _margin(known: Workload, wanted: Workload) -> float:
    """Return the minimum estimated gain on a CPU for part of it to remain at another shape."""
    times = math.prod(extents_of(wanted)) / math.prod(extents_of(known))
    return _CLEARLY + _FURTHER * max(0.0, math.log2(times / _NEAR))


def _why(gain: float, taken: bool, margin: float) -> str:
    """Return the text of `Choice.why`, given that the decision is estimated to cost `gain` times as much as the entry's
    configuration."""
    first, second = ("the entry's", "the analytical one") if taken else ("the analytical", "the entry's")
    if not taken and gain >= 1:
        more = f"{gain - 1:.1%} more, less than the {margin:.0%} that carry over"
        return f"{first} configuration is taken: it is estimated to cost {more}"
    return f"{first} configuration is taken: {second} is estimated to cost {max(gain, 1 / gain) - 1:.1%} more"


class _Prices:
    """Costs of configurations at a shape, corrected by measurements at an entry's; `here` is the decision for the
    shape. TilingError if there is none."""

    def __init__(self, entry: Entry, workload: Workload, hardware: Hardware, prepacked: bool) -> None:
        self._entry, self._workload, self._hardware, self._prepacked = entry, workload, hardware, prepacked
        self.here = decision_for(workload, hardware, prepacked=prepacked)

    def kept(self, config: Config) -> float:
        """Return the cost of the entry's configuration here."""
        entry = self._entry
        here = self._predicted(config, self._workload)
        found = entry.cost * here / self._predicted(entry.config, entry.workload)
        if self._hardware.cpu is None and entry.workload != self._workload:
            return max(found, here)
        return found

    def decided(self) -> float:
        """Return the cost of the decision here."""
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
        """Return whether the same cache levels hold the data that the entry's configuration reuses, here and at the
        entry's shape."""
        return self._held(config, self._workload, cpu) == self._held(self._entry.config, self._entry.workload, cpu)

    def _held(self, config: Config, workload: Workload, cpu: Cpu) -> list[int]:
        """Return the levels, from 0, that hold the rows of a register tile, a panel and a block; empty if the algorithm
        has no such blocks."""
        tiling = tiling_of(config, workload, self._hardware, Surroundings(prepacked=self._prepacked))
        product = blocked_product(workload, tiling)
        held = () if product is None else product.held
        return [sum(size > cache.size for cache in cpu.caches) for size in held]

    def _predicted(self, config: Config, workload: Workload) -> float:
        return predicted_cost(config, workload, self._hardware, prepacked=self._prepacked)


def decision_for(workload: Workload, hardware: Hardware, *, prepacked: bool) -> Config:
    """Return the configuration of the analytical decision. TilingError if there is none."""
    around = Surroundings(prepacked=prepacked)
    found = decided(workload, hardware, Options(prepacked=prepacked), around)
    return config_of(found, workload, hardware, around)  # type: ignore[arg-type]


def predicted_cost(config: Config, workload: Workload, hardware: Hardware, *, prepacked: bool) -> float:
    """Return the predicted cost of a configuration for a shape: seconds, or cycles on an accelerator. TilingError if
    the machine does not support it."""
    return rule_for(config.form, workload, hardware, Surroundings(prepacked=prepacked)).cost(config)
