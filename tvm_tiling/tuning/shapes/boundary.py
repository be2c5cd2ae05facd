"""Boundary shapes: the smallest shapes, along reductions of a measured one, whose cost is still proportional to their
size (design page 02)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ...errors import DatabaseError

Extents: TypeAlias = tuple[int, ...]

FACTOR, TOLERANCE, LIMIT = 2, 0.05, 24


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """How shapes are reduced.

    An axis is divided by `factor`, or by its smallest prime factor if `factor` does not divide it. `tolerance` is the
    maximum relative difference between the ratio of costs and the ratio of sizes; `limit` is the maximum number of
    boundary shapes of one initial shape.
    """

    factor: int = FACTOR
    tolerance: float = TOLERANCE
    limit: int = LIMIT

    def __post_init__(self) -> None:
        if type(self.factor) is not int or self.factor < 2:
            raise DatabaseError(f"factor = {self.factor!r}; expected a whole number of at least 2")
        if (
            isinstance(self.tolerance, bool)
            or not isinstance(self.tolerance, int | float)
            or not 0 < self.tolerance < 1
        ):
            raise DatabaseError(f"tolerance = {self.tolerance!r}; expected a number above 0 and below 1")
        if type(self.limit) is not int or self.limit < 0:
            raise DatabaseError(f"limit = {self.limit!r}; expected a whole number of at least 0")


def boundary_shapes(
    initial: Extents, measure: Callable[[Extents], float | None], reduction: Reduction | None = None
) -> Iterator[tuple[Extents, float]]:
    """Yield the boundary shapes of `initial` with their costs, each once, as they are found, up to `reduction.limit`.

    `measure` returns the cost of a shape with the configuration of the initial one, or None if it cannot be computed or
    measured; it is called once per shape. The order is: each axis alone; sequences of axes, in every order, each
    reduced as far as possible; every axis after one step along another; steps along all axes in turn. Nothing is
    yielded if no axis is proportional at the first step.
    """
    reduction = reduction or Reduction()
    walk = _Walk(initial, measure, reduction)
    return itertools.islice(walk.boundary(), reduction.limit)


def reduced(extent: int, factor: int) -> int | None:
    """Return an axis after one step, or None if it is 1."""
    if extent == 1:
        return None
    return extent // (factor if extent % factor == 0 else smallest_prime_factor(extent))


def smallest_prime_factor(number: int) -> int:
    """Return the smallest prime factor of a number of at least 2."""
    return next((prime for prime in range(2, math.isqrt(number) + 1) if number % prime == 0), number)


@dataclass
class _Walk:
    initial: Extents
    measure: Callable[[Extents], float | None]
    reduction: Reduction
    costs: dict[Extents, float | None] = field(default_factory=dict)
    found: set[Extents] = field(default_factory=set)

    def boundary(self) -> Iterator[tuple[Extents, float]]:
        axes = range(len(self.initial))
        first = {axis: shape for axis in axes if (shape := self._step(self.initial, axis)) is not None}
        for axis in first:
            yield from self._new(self._run(self.initial, axis))
        for order in itertools.permutations(axes):
            yield from self._turns(order)
        for axis, shape in first.items():
            for other in axes:
                if other != axis and shape[other] > 1:
                    yield from self._new(self._run(shape, other))
        yield from self._new(self._in_turn())

    def _turns(self, order: tuple[int, ...]) -> Iterator[tuple[Extents, float]]:
        """Yield the ends of consecutive runs along the axes in the given order."""
        shape = self.initial
        for axis in order:
            shape = self._run(shape, axis)
            yield from self._new(shape)

    def _in_turn(self) -> Extents:
        """Return the end of repeatedly stepping along each axis in turn."""
        shape, moving = self.initial, True
        while moving:
            moving = False
            for axis in range(len(shape)):
                after = self._step(shape, axis)
                if after is not None:
                    shape, moving = after, True
        return shape

    def _run(self, shape: Extents, axis: int) -> Extents:
        """Return the last proportional shape along an axis; `shape` itself if the first step fails."""
        while (after := self._step(shape, axis)) is not None:
            shape = after
        return shape

    def _step(self, shape: Extents, axis: int) -> Extents | None:
        """Return the shape after a step along an axis, or None if there is none or its cost is not proportional, both
        to the previous shape and to the initial one, since tolerances add up."""
        extent = reduced(shape[axis], self.reduction.factor)
        if extent is None:
            return None
        after = (*shape[:axis], extent, *shape[axis + 1 :])
        return after if self._in_proportion(shape, after) and self._in_proportion(self.initial, after) else None

    def _in_proportion(self, before: Extents, after: Extents) -> bool:
        more, less = self._cost(before), self._cost(after)
        if more is None or less is None:
            return False
        sizes = math.prod(before) / math.prod(after)
        return abs(more / less / sizes - 1) <= self.reduction.tolerance

    def _cost(self, shape: Extents) -> float | None:
        if shape not in self.costs:
            self.costs[shape] = self.measure(shape)
        return self.costs[shape]

    def _new(self, shape: Extents) -> Iterator[tuple[Extents, float]]:
        cost = self.costs.get(shape)
        if shape == self.initial or shape in self.found or cost is None:
            return
        self.found.add(shape)
        yield shape, cost


def proportional_axes(growth: Mapping[str, float], tolerance: float, deviation: float = 0.0) -> set[str]:
    """Return the axes along which a measured shape may be extended with proportional cost: those that deviate least,
    such that the estimates stay within `tolerance` however far all of them are extended at once.

    Fixed costs along an axis, such as filling a pipeline, weigh less the longer it is: if doubling the axis costs less
    than twice as much by the fraction d, quadrupling costs less by another d / 2, and so on, to 2 d in total. Axes add
    to each other, and to the deviation of the shape itself from the one that it was reduced from.

    growth: by axis, the cost at double extent over twice the cost, minus 1. deviation: the cost per unit of size over
    that of the shape for which `growth` was measured, minus 1.
    """
    found: set[str] = set()
    limit = 1.0
    for axis, share in sorted(growth.items(), key=lambda item: abs(item[1])):
        limit += 2 * share
        if limit <= 0 or abs((1 + deviation) / limit - 1) > tolerance:
            break
        found.add(axis)
    return found
