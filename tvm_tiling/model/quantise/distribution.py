"""How the numbers of a tensor are distributed, and the 8-bit scale that keeps them best.

A range that holds every number spends steps on a few far ones. So narrower ranges are tried as well, and the one with
the least mean square error is taken: what is cut off weighs more the further away it lies, what is within gets finer
steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .scale import Scale, scale_of

BINS = 4096
# Parts of the whole range that are tried.
PARTS = tuple(part / 32 for part in range(32, 7, -1))


@dataclass(frozen=True)
class Distribution:
    """Numbers from `low` to `high`, 0 between them, as `counts` of equal bins."""

    low: float
    high: float
    counts: np.ndarray

    @classmethod
    def of(cls, arrays: Sequence[np.ndarray]) -> Distribution:
        """That of all numbers in some arrays."""
        low = min(0.0, *(float(array.min(initial=0.0)) for array in arrays))
        high = max(0.0, *(float(array.max(initial=0.0)) for array in arrays))
        counts = np.zeros(BINS, np.int64)
        for array in arrays if high > low else ():
            counts += np.histogram(array, BINS, (low, high))[0]
        return cls(low, high, counts)

    @property
    def centres(self) -> np.ndarray:
        """A number for each bin: its middle, and 0 for the one that holds it, where many of them are."""
        width = (self.high - self.low) / BINS
        found = self.low + width * (np.arange(BINS) + 0.5)
        if width > 0:
            found[min(BINS - 1, int(-self.low / width))] = 0.0
        return found

    def best_scale(self) -> Scale:
        """The scale of least mean square error."""
        scales = [scale_of(part * self.low, part * self.high, symmetric=False) for part in PARTS]
        return min(scales, key=self.error)

    def error(self, scale: Scale) -> float:
        """The mean square error of the numbers once they are quantised."""
        reals = scale.scale * (scale.quantised(self.centres) - scale.zero)
        total = int(self.counts.sum())
        return float(self.counts @ np.square(reals - self.centres)) / total if total else 0.0
