"""Correction of predicted costs by measurements of other shapes: a Gaussian process over logarithms.

    log cost = log(scale * predicted + call) + f(shape) + g(shape), a g for each configuration, + noise

`call` is the overhead of a call, which the prediction omits. f is similar for nearby shapes; g is similar if the
configuration is also the same, as along a row of multiples. The weights of f, g and the noise, and the length scale,
are selected from a few values to maximise the leave-one-out likelihood of the measured costs. If the leave-one-out
errors of an algorithm, such as Winograd, are larger than those of others, its intervals are widened accordingly. So a
deterministic simulator gets narrow intervals and a noisy shared computer wide ones, without machine-specific constants.
With few measurements, the values stay near their defaults.
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

# Distance added to that of the shapes: for another algorithm, and for a prediction larger by a factor of e.
OTHER_FORM, PREDICTION = 2.0, 0.7
UNSURE = 1.0  # factor of e from its default that costs a weight half a unit of log likelihood
SWEEPS = 4
CALLS = 32  # candidate values of `call`


@dataclass(frozen=True)
class Known:
    """A measured cost of a shape with a configuration, and its `predicted` cost, both in seconds or in cycles."""

    workload: Workload
    config: Config
    predicted: float
    cost: float


@dataclass(frozen=True)
class Weights:
    """The length scale of similarity (`reach`, in doublings of an axis), and the standard deviations of f, g and
    noise."""

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
    """Corrects predictions for one operator on one machine by at least one cost measured there."""

    def __init__(self, known: Sequence[Known], *, processor: bool) -> None:
        """`processor`: costs were measured on a CPU, where a call has overhead."""
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
        # Weights fitted to few costs underestimate the spread: leave-one-out errors are larger.
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
        """Number of costs that it was fitted to."""
        return len(self._keys)

    def at(self, workload: Workload, config: Config, predicted: float) -> tuple[float, float]:
        """Return the cost of a shape with a configuration, and the standard deviation of its logarithm."""
        away = self._distances(np.array([_place(workload, predicted)]), [key_of(workload)], [config.form])[0]
        same = self._config == self._configs.get(config, -1)
        weights = self.weights
        mean = _kernel(away, same, weights) @ self._inverse @ self._left
        # Rows of multiples were stored because they were proportional: their similarity says little about shapes beyond
        # them, and only narrows the interval of the shape itself.
        near = _kernel(away, same & (away == 0), weights)
        variance = weights.shape**2 + weights.config**2 + weights.noise**2 - near @ self._inverse @ near
        # On a CPU, the costs of a configuration diverge from the predictions as shapes grow. Measured shapes, whose
        # configurations were made for them, do not show by how much; assume the noise level per doubling.
        kept = float(away[same].min()) if self._processor and same.any() else 0.0
        variance = max(variance, weights.noise**2) + (weights.noise * kept) ** 2
        cost = (self._scale * predicted + self._call) * math.exp(mean)
        scatter = self._scatter.get(config.form, max(1.0, *self._scatter.values()))
        return cost, self._widening * scatter * math.sqrt(variance)

    def _distances(self, places: np.ndarray, keys: Sequence[ShapeKey], forms: Sequence[str]) -> np.ndarray:
        """Return the distances from some shapes to each known one."""
        form = np.array([[one != two for two in self._forms] for one in forms])
        found: np.ndarray = np.hypot(distances(places, keys, self._places, self._keys), OTHER_FORM * form)
        return found

    def _covariance(self, weights: Weights) -> np.ndarray:
        found: np.ndarray = _kernel(self._away, self._same, weights) + weights.noise**2 * np.eye(len(self._left))
        return found

    def _left_out(self, inverse: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each known cost, the error of the others' prediction of its logarithm, and the standard deviation
        that they give."""
        diagonal = np.diag(inverse)
        return inverse @ self._left / diagonal, np.sqrt(1 / diagonal)

    def _fitted(self) -> Weights:
        """Return the weights, optimised one at a time until none changes."""
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
        """Return the log likelihood of every known cost given the others, plus the prior of the weights."""
        errors, spreads = self._left_out(np.linalg.inv(self._covariance(weights)))
        told = -0.5 * (errors / spreads) ** 2 - np.log(spreads)
        unusual = sum(math.log(getattr(weights, own.name) / own.default) ** 2 for own in fields(Weights))  # type: ignore[operator]
        return float(told.sum()) - 0.5 * unusual / UNSURE**2


def _scatter(away: np.ndarray, forms: Sequence[str]) -> dict[str, float]:
    """Return, by algorithm, a factor on the common standard deviation from its leave-one-out errors `away`, in standard
    deviations. An algorithm with few known costs has a factor near 1."""
    found = {}
    for form in dict.fromkeys(forms):
        own = away[[one == form for one in forms]]
        found[form] = math.sqrt((len(TRIED) + float((own**2).sum())) / (len(TRIED) + len(own)))
    return found


def _kernel(away: np.ndarray, same: np.ndarray, weights: Weights) -> np.ndarray:
    """Return the covariance of f + g at the given distances (Matern 3/2)."""
    scaled = math.sqrt(3) * away / weights.reach
    found: np.ndarray = (1 + scaled) * np.exp(-scaled) * (weights.shape**2 + weights.config**2 * same)
    return found


def _line(predicted: np.ndarray, cost: np.ndarray) -> tuple[float, float]:
    """Return the `scale` and `call` for which scale * predicted + call is nearest to the costs, by their logarithms."""
    best = (math.inf, 1.0, 0.0)
    for call in (0.0, *np.geomspace(cost.min() / 100, cost.min(), CALLS).tolist()):
        scale = float(np.exp(np.median(np.log(np.maximum(cost - call, cost / 20) / predicted))))
        off = float(np.abs(np.log(cost / (scale * predicted + call))).mean())
        best = min(best, (off, scale, call))
    return best[1], best[2]


def _place(one: Workload, predicted: float) -> list[float]:
    """Return the coordinates of a shape, with its predicted cost as one of them."""
    return [*place(one), PREDICTION * math.log(predicted)]
