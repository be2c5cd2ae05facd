"""What measured costs say of the costs that formulas predict for other shapes: a Gaussian process over logarithms.

    log cost = log(scale * predicted + call) + f(shape) + g(shape), a g for each configuration, + noise

`call` is what a call takes beside its work, which formulas leave out. f is alike for shapes that are near each other; g
is alike where the configuration is the same as well, as along a row of multiples. How much f, g and the noise weigh,
and how far shapes are alike, are those of a few values under which every measured cost is told best by all the others
(leave-one-out likelihood). Where the left-out costs of a form, such as Winograd's, lie further away than those of other
forms, its intervals are wider by as much. So predictions that a simulator repeats get narrow intervals, and those that
a shared computer scatters get wide ones, without a constant of the machine. With few measurements the values stay near
usual ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from ...decide.configs.config import Config
from .estimate import NINETY
from .key import ShapeKey, Workload, key_of
from .nearness import distances, place

# How far apart costs are, beside shapes: of another form, and for a prediction that is e times as much.
OTHER_FORM, PREDICTION = 2.0, 0.7
UNSURE = 1.0  # factor of e from its usual value that costs a weight half a unit of log likelihood
SWEEPS = 4
CALLS = 32  # values of `call` that are tried


@dataclass(frozen=True)
class Known:
    """A measured cost: of a shape, computed by a configuration, which formulas put at `predicted`. Both in seconds, or
    in cycles."""

    workload: Workload
    config: Config
    predicted: float
    cost: float


@dataclass(frozen=True)
class Weights:
    """How far shapes are alike (`reach`, in doublings of an axis), and the standard deviations of f, g and noise."""

    reach: float = 4.0
    shape: float = 0.2
    config: float = 0.05
    noise: float = 0.02


TRIED = {
    "reach": (1.0, 2.0, 4.0, 8.0, 16.0),
    "shape": (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8),
    "config": (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.4),
    "noise": (1e-3, 3e-3, 0.01, 0.02, 0.05, 0.1, 0.2),
}


class Correction:
    """Corrects predictions of one operator on one machine by what was measured there, at least one cost."""

    def __init__(self, known: Sequence[Known], *, processor: bool) -> None:
        """`processor`: costs are measured on one, where a call takes something beside its work."""
        self._processor = processor
        self._forms = [one.config.form for one in known]
        self._configs = {config: number for number, config in enumerate(dict.fromkeys(one.config for one in known))}
        self._keys = [key_of(one.workload) for one in known]
        self._places = np.array([_place(one.workload, one.predicted) for one in known])
        self._config = np.array([self._configs[one.config] for one in known])
        predicted, cost = (np.array([getattr(one, name) for one in known]) for name in ("predicted", "cost"))
        self._scale, self._call = _line(predicted, cost) if processor else (1.0, 0.0)
        self._left = np.log(cost) - np.log(self._scale * predicted + self._call)
        self._away = self._distances(self._places, self._keys, self._forms)
        self._same = self._config[:, None] == self._config[None, :]
        self.weights = self._fitted()
        self._inverse = np.linalg.inv(self._covariance(self.weights))
        # Weights that were fitted to few costs are too sure of themselves: left-out ones lie further away.
        self._widening = math.sqrt(1 + len(TRIED) / len(known))
        errors, spreads = self._left_out(self._inverse)
        away = np.abs(errors) / spreads
        self._scatter = _scatter(away, self._forms)
        rank = math.ceil(0.9 * (len(known) + 1)) - 1
        if rank < len(known):
            away /= np.array([self._scatter[form] for form in self._forms])
            self._widening *= max(1.0, float(np.sort(away)[rank]) / NINETY)

    @property
    def known(self) -> int:
        """How many costs it was made from."""
        return len(self._keys)

    def at(self, workload: Workload, config: Config, predicted: float) -> tuple[float, float]:
        """The cost of a shape computed by a configuration, and the standard deviation of its logarithm."""
        away = self._distances(np.array([_place(workload, predicted)]), [key_of(workload)], [config.form])[0]
        same = self._config == self._configs.get(config, -1)
        weights = self.weights
        mean = _kernel(away, same, weights) @ self._inverse @ self._left
        # Rows of multiples are kept because they were in proportion: how alike they are says little of those that go on
        # from them, and narrows no interval but the one of the shape itself.
        near = _kernel(away, same & (away == 0), weights)
        variance = weights.shape**2 + weights.config**2 + weights.noise**2 - near @ self._inverse @ near
        # On a processor a configuration's costs depart from the predictions as shapes grow, and measured shapes, which
        # have configurations that were made for them, do not show how far: by what shapes scatter, each doubling.
        kept = float(away[same].min()) if self._processor and same.any() else 0.0
        variance = max(variance, weights.noise**2) + (weights.noise * kept) ** 2
        cost = (self._scale * predicted + self._call) * math.exp(mean)
        scatter = self._scatter.get(config.form, max(1.0, *self._scatter.values()))
        return cost, self._widening * scatter * math.sqrt(variance)

    def _distances(self, places: np.ndarray, keys: Sequence[ShapeKey], forms: Sequence[str]) -> np.ndarray:
        """From each of some shapes to each known one."""
        form = np.array([[one != two for two in self._forms] for one in forms])
        found: np.ndarray = np.hypot(distances(places, keys, self._places, self._keys), OTHER_FORM * form)
        return found

    def _covariance(self, weights: Weights) -> np.ndarray:
        found: np.ndarray = _kernel(self._away, self._same, weights) + weights.noise**2 * np.eye(len(self._left))
        return found

    def _left_out(self, inverse: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each known cost, how far the others' word is from its logarithm, and the standard deviation they give."""
        diagonal = np.diag(inverse)
        return inverse @ self._left / diagonal, np.sqrt(1 / diagonal)

    def _fitted(self) -> Weights:
        """One weight after the other, the best of its values, until none changes."""
        found, best = Weights(), self._likelihood(Weights())
        for _ in range(SWEEPS):
            before = found
            for name, values in TRIED.items():
                for value in values:
                    other = replace(found, **{name: value})
                    likelihood = self._likelihood(other)
                    if likelihood > best:
                        found, best = other, likelihood
            if found == before:
                break
        return found

    def _likelihood(self, weights: Weights) -> float:
        """Of every known cost given the others, and of the weights themselves."""
        errors, spreads = self._left_out(np.linalg.inv(self._covariance(weights)))
        told = -0.5 * (errors / spreads) ** 2 - np.log(spreads)
        unusual = sum(math.log(getattr(weights, own.name) / own.default) ** 2 for own in fields(Weights))  # type: ignore[operator]
        return float(told.sum()) - 0.5 * unusual / UNSURE**2


def _scatter(away: np.ndarray, forms: Sequence[str]) -> dict[str, float]:
    """By form, beside the one standard deviation that all have: how far its left-out costs lie away, `away` in standard
    deviations. A form of which few costs are known has nearly 1."""
    found = {}
    for form in dict.fromkeys(forms):
        own = away[[one == form for one in forms]]
        found[form] = math.sqrt((len(TRIED) + float((own**2).sum())) / (len(TRIED) + len(own)))
    return found


def _kernel(away: np.ndarray, same: np.ndarray, weights: Weights) -> np.ndarray:
    """How far f + g are alike at such distances (Matern 3/2)."""
    scaled = math.sqrt(3) * away / weights.reach
    found: np.ndarray = (1 + scaled) * np.exp(-scaled) * (weights.shape**2 + weights.config**2 * same)
    return found


def _line(predicted: np.ndarray, cost: np.ndarray) -> tuple[float, float]:
    """`scale` and `call` under which scale * predicted + call is nearest to the costs, by their logarithms."""
    best = (math.inf, 1.0, 0.0)
    for call in (0.0, *np.geomspace(cost.min() / 100, cost.min(), CALLS).tolist()):
        scale = float(np.exp(np.median(np.log(np.maximum(cost - call, cost / 20) / predicted))))
        off = float(np.abs(np.log(cost / (scale * predicted + call))).mean())
        best = min(best, (off, scale, call))
    return best[1], best[2]


def _place(one: Workload, predicted: float) -> list[float]:
    """Where a shape is, what formulas predict of it being a length too."""
    return [*place(one), PREDICTION * math.log(predicted)]
