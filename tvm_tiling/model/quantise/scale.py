"""Arithmetic of quantised tensors: scales from ranges, and a real factor as an integer multiplier between two shifts.

An 8-bit tensor represents scale * (q - zero). An integer x becomes round(x * factor) by integer operations that every
vector engine has: a right shift by `before`, a multiplication, and a right shift by `after`, each shift rounding halves
upwards:

    (((x + 2^(before - 1)) >> before) * multiplier + 2^(after - 1)) >> after

Nothing exceeds int32 as long as |x| is at most the bound for which the values were chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

LOW, HIGH = -128, 127
MULTIPLIER_BITS = 15
# The error of the first shift is at most this fraction of a step of the result.
DROPPED = 1 / 16


@dataclass(frozen=True)
class Requantisation:
    """`multipliers`: int32, one for all channels or one per channel; shifts in bits."""

    before: int
    multipliers: np.ndarray
    after: int

    def apply(self, x: np.ndarray) -> np.ndarray:
        """The results for integers whose last axis, if any, is the channel axis."""
        wide = _shifted(np.asarray(x, dtype=np.int64), self.before)
        return _shifted(wide * self.multipliers, self.after)


def _shifted(x: np.ndarray, bits: int) -> np.ndarray:
    return (x + (1 << (bits - 1))) >> bits if bits else x


def requantisation(factors: np.ndarray | float, bound: int) -> Requantisation:
    """The shifts and multipliers for x * factor with |x| at most `bound`; factors are positive."""
    values = np.atleast_1d(np.asarray(factors, dtype=np.float64))
    largest = float(values.max())
    fraction, exponent = math.frexp(largest)
    if fraction == 0.5 and (values == largest).all() and -30 < exponent <= 1:
        return Requantisation(0, np.ones(values.shape, np.int32), 1 - exponent)  # a power of two, 1 or less
    bits_of_x = max(1, int(bound)).bit_length()
    spare = math.floor(math.log2(DROPPED / largest))
    before = max(0, min(bits_of_x + MULTIPLIER_BITS - 30, spare))
    reached = int(_shifted(np.asarray(bound, dtype=np.int64), before)).bit_length()
    bits = min(MULTIPLIER_BITS, 30 - reached)
    # largest * 2^shift is below 2^bits, and no shift exceeds 32 bits.
    shift = min(max(bits - exponent, before), before + 30)
    multipliers = np.rint(values * 2.0**shift).astype(np.int64)
    return Requantisation(before, np.minimum(multipliers, (1 << bits) - 1).astype(np.int32), shift - before)


@dataclass(frozen=True)
class Scale:
    """The real numbers represented by an int8 tensor: scale * (q - zero)."""

    scale: float
    zero: int = 0

    def quantised(self, values: np.ndarray | float) -> np.ndarray:
        """The nearest 8-bit values, halves to even, in int32."""
        rounded = np.rint(np.asarray(values, dtype=np.float64) / self.scale) + self.zero
        return np.clip(rounded, LOW, HIGH).astype(np.int32)

    @property
    def reals(self) -> np.ndarray:
        """The real numbers represented by -128 to 127."""
        return self.scale * (np.arange(LOW, HIGH + 1, dtype=np.float64) - self.zero)


def scale_of(low: float, high: float, symmetric: bool) -> Scale:
    """The scale for values from `low` to `high`; a symmetric one has its zero point at 0."""
    low, high = min(low, 0.0), max(high, 0.0)
    if symmetric:
        return Scale(_positive(max(-low, high) / HIGH))
    step = _positive((high - low) / (HIGH - LOW))
    return Scale(step, int(np.clip(np.rint(LOW - low / step), LOW, HIGH)))


def _positive(step: float) -> float:
    """A step representable in float32; for a tensor that is 0 throughout, any step is correct."""
    found = float(np.float32(step))
    return found if found > 0 and math.isfinite(found) else 1.0


def quantised_weights(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights as int8 in -127 .. 127, and the scale of each channel along `axis` in float32; zero points are 0."""
    others = tuple(a for a in range(values.ndim) if a != axis % values.ndim)
    largest = np.abs(values).max(axis=others).astype(np.float64)
    scales = np.array([_positive(value / HIGH) for value in largest], dtype=np.float32)
    along = [-1 if a == axis % values.ndim else 1 for a in range(values.ndim)]
    q = np.clip(np.rint(values / scales.reshape(along).astype(np.float64)), -HIGH, HIGH)
    return q.astype(np.int8), scales
