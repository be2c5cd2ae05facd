"""The distribution of a tensor's values, and the 8-bit scale that represents them best.

A range that covers every value spends steps on a few outliers. So narrower ranges are tried as well, and the one with
the least mean square error is used: clipped values weigh more the further out they are, values in range get finer
steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .scale import Scale, scale_of

BINS = 4096
# Fractions of the whole range that are tried.
PARTS = tuple(part / 32 for part in range(32, 7, -1))


@dataclass(frozen=True)
class Distribution:
    """A histogram of values from `low` to `high`, with 0 in between, with `counts` of equal bins."""

    low: float
    high: float
    counts: np.ndarray

    @classmethod
    def of(cls, arrays: Sequence[np.ndarray]) -> Distribution:
        """The histogram of all values in some arrays."""
        low = min(0.0, *(float(array.min(initial=0.0)) for array in arrays))
        high = max(0.0, *(float(array.max(initial=0.0)) for array in arrays))
        counts = np.zeros(BINS, np.int64)
        for array in arrays if high > low else ():
            counts += np.histogram(array, BINS, (low, high))[0]
        return cls(low, high, counts)

    @property
    def centres(self) -> np.ndarray:
        """A value for each bin: its centre, and 0 for the bin that contains it, which often has many."""
        width = (self.high - self.low) / BINS
        found = self.low + width * (np.arange(BINS) + 0.5)
        if width > 0:
            found[min(BINS - 1, int(-self.low / width))] = 0.0
        return found

    def best_scale(self) -> Scale:
        """The scale with the least mean square error."""
        scales = [scale_of(part * self.low, part * self.high, symmetric=False) for part in PARTS]
        return min(scales, key=self.error)

    def error(self, scale: Scale) -> float:
        """The mean square error after quantisation."""
        reals = scale.scale * (scale.quantised(self.centres) - scale.zero)
        total = int(self.counts.sum())
        return float(self.counts @ np.square(reals - self.centres)) / total if total else 0.0
