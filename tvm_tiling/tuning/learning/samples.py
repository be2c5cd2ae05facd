"""Measured configurations as models of the formulas' error learn from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sample:
    """One measured configuration: `group` is its workload and machine, costs in one unit within a group."""

    group: str
    features: Mapping[str, float]
    predicted: float
    cost: float


class Table:
    """Samples as arrays, those of a group one after the other, groups as they are met first: `features` has a row for
    each, nan where a sample has no feature of that name."""

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
        """Features of other configurations, in the columns of the table's."""
        nan = float("nan")
        return np.array([[row.get(name, nan) for name in self.names] for row in features], dtype=np.float32)
