"""Measured configurations as training samples for models of the prediction error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sample:
    """One measured configuration. `group` identifies its workload and machine; costs within a group share a unit."""

    group: str
    features: Mapping[str, float]
    predicted: float
    cost: float


class Table:
    """Samples as arrays, grouped, with groups in order of appearance. `features` has a row for each sample, nan where
    it lacks a feature."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        numbers: dict[str, int] = {}
        for sample in samples:
            numbers.setdefault(sample.group, len(numbers))
        ordered = sorted(samples, key=lambda sample: numbers[sample.group])
        self.names = tuple(sorted({name for sample in samples for name in sample.features}))
        self.groups = np.array([numbers[sample.group] for sample in ordered])
        self.costs = np.log([sample.cost for sample in ordered])
        self.predicted = np.log([sample.predicted for sample in ordered])
        self.features = self.rows([sample.features for sample in ordered])

    def rows(self, features: Sequence[Mapping[str, float]]) -> np.ndarray:
        """Return features of other configurations, in the columns of the table."""
        nan = float("nan")
        return np.array([[row.get(name, nan) for name in self.names] for row in features], dtype=np.float32)
