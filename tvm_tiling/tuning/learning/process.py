"""A Gaussian process over the features of configurations: smooth where trees step, and quick to take in a workload's
own first measurements.

    log of cost over prediction = a constant of the workload + f(features) + noise

f is alike where features are near each other, each counted in its own standard deviations. Constants are fitted exactly
(generalised least squares), so costs of different workloads are never compared.
"""

from __future__ import annotations

import math

import numpy as np

from .samples import Table

# How far apart configurations are alike, in standard deviations of features; f's own, and that of the noise. Of 5
# values of each these ordered most pairs of unseen shapes; factors of 2 cost less than 1 percent of them.
REACH, WEIGHT, NOISE = 12.0, 0.2, 0.03
FURTHEST = 4.0  # standard deviations that a feature counts at most
# A configuration that is slower or quicker beside its prediction than the workload's median one is taken for no more
# than this: how far behind the last ones are does not bend what is said of the others.
FAR = math.log(2)
MOST = 3000  # of the samples: what takes half a second


class Process:
    """What a table's last samples say of any configuration."""

    def __init__(self, table: Table) -> None:
        features, groups = np.nan_to_num(table.features[-MOST:].astype(float)), table.groups[-MOST:]
        self._middle, spread = features.mean(axis=0), features.std(axis=0)
        self._told = spread > 1e-6
        self._spread = spread[self._told]
        self._places = self._scaled(features)
        ratios = (table.costs - table.predicted)[-MOST:]
        member = groups[:, None] == np.unique(groups)
        for own in member.T:
            ratios[own] = np.clip(ratios[own] - np.median(ratios[own]), -FAR, FAR)
        covariance = self._alike(self._places) + NOISE**2 * np.eye(len(ratios))
        solved = np.linalg.solve(covariance, np.column_stack([ratios, member]))
        constants = np.linalg.solve(member.T @ solved[:, 1:], member.T @ solved[:, 0])
        self._weights = solved[:, 0] - solved[:, 1:] @ constants

    def corrections(self, rows: np.ndarray) -> np.ndarray:
        """What to add to the logarithms of predictions, up to a constant of the workload."""
        found: np.ndarray = self._alike(self._scaled(np.nan_to_num(rows.astype(float)))) @ self._weights
        return found

    def _scaled(self, features: np.ndarray) -> np.ndarray:
        away = (features - self._middle)[:, self._told] / self._spread
        found: np.ndarray = np.clip(away, -FURTHEST, FURTHEST) / REACH
        return found

    def _alike(self, places: np.ndarray) -> np.ndarray:
        """The covariance of f between `places` and those of the samples (Matern 3/2)."""
        known = self._places
        squares = (places**2).sum(axis=1)[:, None] + (known**2).sum(axis=1) - 2 * places @ known.T
        away = np.sqrt(3 * np.maximum(squares, 0))
        found: np.ndarray = WEIGHT**2 * (1 + away) * np.exp(-away)
        return found
