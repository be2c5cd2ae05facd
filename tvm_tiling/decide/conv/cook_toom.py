"""Winograd's minimal filtering F(m, r) by the Cook-Toom construction, exact and with few operations.

m outputs of a filter with r taps are the product of two polynomials. Its a = m + r - 1 coefficients follow from its
values at a points: transform the taps (G) and the a inputs (B'), multiply value by value, and transform back (A'):

    y = A' ((G g) * (B' d))        one dimension; in two, every transform T becomes T . T', applied to each axis

With the points 0, +-p, ..., infinity, every transform splits into an even and an odd part, so a pair of rows costs
about as much as one: a sum and a difference. :class:`LinearProgram` is a transform in this form.

The points only affect the rounding error, since a multiply-add takes any constant. They were chosen by
:func:`amplification` among the multiples of 1/8: 3/4 and 3/2 have a quarter of the error of the usual 1 and 2.

Sources: A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks; B. Barabasz et al., Error Analysis and
Improving the Accuracy of Winograd Convolution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

from ...errors import WorkloadError

# Points by the number of pairs.
PAIRS = {
    1: (Fraction(1),),
    2: (Fraction(3, 4), Fraction(3, 2)),
    3: (Fraction(1), Fraction(2), Fraction(1, 2)),
}

Term = tuple[Fraction, int]  # coefficient, index of a value
Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class LinearProgram:
    """A linear map of vectors as a sequence of steps: values 0 .. inputs - 1 are given, and each step appends a sum of
    terms."""

    inputs: int
    steps: tuple[tuple[Term, ...], ...]
    outputs: tuple[int, ...]

    @property
    def operations(self) -> int:
        """Number of additions and multiply-adds; a step that starts with a factor has one more multiplication."""
        return sum(len(step) - (step[0][0] == 1) for step in self.steps)

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Return the outputs for `values` of any type that supports addition and multiplication by fractions."""
        known = list(values)
        for step in self.steps:
            known.append(sum((c * known[at] for c, at in step[1:]), step[0][0] * known[step[0][1]]))
        return [known[at] for at in self.outputs]

    def matrix(self) -> Matrix:
        """Return the map as a matrix with one row per output."""
        units = [[Fraction(int(i == j)) for i in range(self.inputs)] for j in range(self.inputs)]
        columns = [self.run(unit) for unit in units]
        return tuple(zip(*columns, strict=True))


class _Writer:
    """Collects the steps of a LinearProgram; terms with factor 1 come first, so that they are free."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.steps: list[tuple[Term, ...]] = []

    def sum(self, terms: Sequence[Term]) -> int:
        """Return the index of a value that is the sum of `terms`."""
        used = tuple(sorted((t for t in terms if t[0]), key=lambda t: t[0] != 1))
        if len(used) == 1 and used[0][0] == 1:
            return used[0][1]
        self.steps.append(used)
        return self.inputs + len(self.steps) - 1

    def program(self, outputs: Sequence[int]) -> LinearProgram:
        return LinearProgram(self.inputs, tuple(self.steps), tuple(outputs))


@dataclass(frozen=True)
class CookToom:
    """F(m, r): `m` outputs of a filter of `r` taps from m + r - 1 multiplications."""

    m: int
    r: int
    points: tuple[Fraction, ...]  # positive ones; 0, their negatives and infinity are implied

    @property
    def a(self) -> int:
        """Number of multiplications, and of inputs, in one dimension."""
        return self.m + self.r - 1

    @cached_property
    def input(self) -> LinearProgram:
        """B': a inputs to a values. The row of a point holds the coefficients of the product of the other points'
        factors."""
        out = _Writer(self.a)
        outputs = [out.sum([(c, i) for i, c in enumerate(self._monic(self.points))])]
        for p in self.points:
            rest = self._monic([q for q in self.points if q != p])
            odd = out.sum([(c, i + 1) for i, c in enumerate(rest)])
            even = out.sum([(c, i + 2) for i, c in enumerate(rest)])
            outputs += [out.sum([(Fraction(1), even), (sign * p, odd)]) for sign in (1, -1)]
        outputs.append(out.sum([(c, i + 1) for i, c in enumerate(self._monic(self.points))]))
        return out.program(outputs)

    @cached_property
    def weights(self) -> LinearProgram:
        """G: r taps to a values, each row divided by the product of its point's distances to the others."""
        out = _Writer(self.r)
        at_zero = Fraction(1)
        for p in self.points:
            at_zero *= -p * p
        outputs = [out.sum([(1 / at_zero, 0)])]
        for p in self.points:
            scale = 1 / (2 * p * p * math.prod((p * p - q * q for q in self.points if q != p), start=Fraction(1)))
            even = out.sum([(scale * p**k, k) for k in range(0, self.r, 2)])
            odd = out.sum([(scale * p**k, k) for k in range(1, self.r, 2)])
            outputs += [out.sum([(Fraction(1), even), (Fraction(sign), odd)]) for sign in (1, -1)]
        outputs.append(self.r - 1)
        return out.program(outputs)

    @cached_property
    def output(self) -> LinearProgram:
        """A': a values to m outputs, sums of the values weighted by powers of the points."""
        out = _Writer(self.a)
        one = Fraction(1)
        pairs = [(1 + 2 * n, 2 + 2 * n) for n in range(len(self.points))]
        sums = [out.sum([(one, plus), (one, minus)]) for plus, minus in pairs]
        differences = [out.sum([(one, plus), (-one, minus)]) for plus, minus in pairs]
        outputs = []
        for i in range(self.m):
            halves = differences if i % 2 else sums
            terms = [(p**i, half) for p, half in zip(self.points, halves, strict=True)]
            terms += [(one, 0)] if i == 0 else []
            terms += [(one, self.a - 1)] if i == self.m - 1 else []
            outputs.append(out.sum(terms))
        return out.program(outputs)

    @cached_property
    def amplification(self) -> float:
        """Mean amplification of the rounding error by the two-dimensional transform, relative to a direct sum.

        For the largest output: the root of the sum over points of A'^2 |G|^2 |B'|^2, squared for two dimensions.
        """
        weights = [float(sum(c * c for c in row)) for row in self.weights.matrix()]
        inputs = [float(sum(c * c for c in row)) for row in self.input.matrix()]
        products = [g * b for g, b in zip(weights, inputs, strict=True)]
        return max(sum(float(c) ** 2 * p for c, p in zip(row, products, strict=True)) for row in self.output.matrix())

    def _monic(self, points: Sequence[Fraction]) -> list[Fraction]:
        """Return the coefficients of the product of (x^2 - p^2), lowest power first, including zeros."""
        poly = [Fraction(1)]
        for p in points:
            longer = [Fraction(0), Fraction(0), *poly]
            poly = [high - p * p * low for high, low in zip(longer, [*poly, Fraction(0), Fraction(0)], strict=True)]
        return poly


@cache
def cook_toom(m: int, r: int) -> CookToom:
    """Return F(m, r) with the points of `PAIRS`. Raises WorkloadError if m + r - 1 is not 4, 6 or 8, or m or r is below
    2."""
    pairs, odd = divmod(m + r - 3, 2)
    if odd or pairs not in PAIRS or min(m, r) < 2:
        raise WorkloadError(f"F({m}, {r}) is not supported; expected m and r of at least 2 with m + r - 1 = 4, 6 or 8")
    return CookToom(m, r, PAIRS[pairs])
