"""A Gaussian process over the features of configurations: smooth where trees are piecewise constant, and quick to adapt
to the first measurements of a workload.

    log of cost over prediction = a constant of the workload + f(features) + noise

f is similar for similar features, each scaled by its standard deviation. Constants are fitted exactly (generalised
least squares), so costs of different workloads are never compared.
"""

from __future__ import annotations

import math

import numpy as np

from .samples import Table

# Length scale in standard deviations of the features, and standard deviations of f and of the noise. Out of 5 values
# each, these ranked most pairs of unseen shapes correctly; factors of 2 cost less than 1 percent of the pairs.
REACH, WEIGHT, NOISE = 12.0, 0.2, 0.03
FURTHEST = 4.0  # limit of a scaled feature, in standard deviations
# The cost of a configuration relative to its prediction is limited to this factor around the median of its workload, so
# that the slowest configurations do not distort the fit of the others.
FAR = math.log(2)
MOST = 3000  # most samples used, which takes half a second


class Process:
    """A Gaussian process fitted to the newest samples of a table."""

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
        """Return what to add to the logarithms of predictions, up to a constant per workload."""
        found: np.ndarray = self._alike(self._scaled(np.nan_to_num(rows.astype(float)))) @ self._weights
        return found

    def _scaled(self, features: np.ndarray) -> np.ndarray:
        away = (features - self._middle)[:, self._told] / self._spread
        found: np.ndarray = np.clip(away, -FURTHEST, FURTHEST) / REACH
        return found

    def _alike(self, places: np.ndarray) -> np.ndarray:
        """Return the covariance of f between `places` and the samples (Matern 3/2)."""
        known = self._places
        squares = (places**2).sum(axis=1)[:, None] + (known**2).sum(axis=1) - 2 * places @ known.T
        away = np.sqrt(3 * np.maximum(squares, 0))
        found: np.ndarray = WEIGHT**2 * (1 + away) * np.exp(-away)
        return found
