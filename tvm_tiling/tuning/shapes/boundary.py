"""Boundary shapes: the smallest shapes along reductions of a measured one whose cost is still proportional to their
size (page 02)."""

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

    An axis is divided by `factor`, or by its smallest prime factor where `factor` does not divide it. `tolerance` is
    how far the ratio of costs may be from that of sizes, relatively; `limit` is the most boundary shapes of one initial
    shape.
    """

    factor: int = FACTOR
    tolerance: float = TOLERANCE
    limit: int = LIMIT

    def __post_init__(self) -> None:
        if type(self.factor) is not int or self.factor < 2:
            raise DatabaseError(f"factor = {self.factor!r}, accepted: a whole number of at least 2")
        if (
            isinstance(self.tolerance, bool)
            or not isinstance(self.tolerance, int | float)
            or not 0 < self.tolerance < 1
        ):
            raise DatabaseError(f"tolerance = {self.tolerance!r}, accepted: a number above 0 and below 1")
        if type(self.limit) is not int or self.limit < 0:
            raise DatabaseError(f"limit = {self.limit!r}, accepted: a whole number of at least 0")


def boundary_shapes(
    initial: Extents, measure: Callable[[Extents], float | None], reduction: Reduction | None = None
) -> Iterator[tuple[Extents, float]]:
    """The boundary shapes of `initial` with their costs, each once, as they are found, up to `reduction.limit`.

    `measure` gives the cost of a shape with the initial one's cut, None where it cannot be computed or measured; it is
    asked for each shape once. In this order: each axis by itself; axes one behind the other, in every order, each as
    far as it goes; every axis behind one step along another; steps along all axes in turn. None if no axis holds at the
    first step.
    """
    reduction = reduction or Reduction()
    walk = _Walk(initial, measure, reduction)
    return itertools.islice(walk.boundary(), reduction.limit)


def reduced(extent: int, factor: int) -> int | None:
    """An axis after one step, None where it is 1."""
    if extent == 1:
        return None
    return extent // (factor if extent % factor == 0 else smallest_prime_factor(extent))


def smallest_prime_factor(number: int) -> int:
    """Of a number of at least 2."""
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
        """The ends along one axis after the other."""
        shape = self.initial
        for axis in order:
            shape = self._run(shape, axis)
            yield from self._new(shape)

    def _in_turn(self) -> Extents:
        """The end of a step along each axis, again and again."""
        shape, moving = self.initial, True
        while moving:
            moving = False
            for axis in range(len(shape)):
                after = self._step(shape, axis)
                if after is not None:
                    shape, moving = after, True
        return shape

    def _run(self, shape: Extents, axis: int) -> Extents:
        """The last shape along an axis that still holds: `shape` itself where the first step does not."""
        while (after := self._step(shape, axis)) is not None:
            shape = after
        return shape

    def _step(self, shape: Extents, axis: int) -> Extents | None:
        """The shape after a step along an axis, None where there is none or its cost is not in proportion: to the shape
        before it, and to the initial one, since tolerances add up."""
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
    """The axes along which a measured shape may be made longer and its cost with it: those that deviate least, along
    all of which at once the estimates stay within `tolerance` however much longer they become.

    What does not grow with an axis, such as a pipeline to be filled, weighs less the longer it is: if twice the axis
    costs less than twice as much by the share d, four times costs less by d / 2 more, and so on to 2 d in all. Axes add
    to each other, and to how far the shape itself is from proportion to the one that it was reduced from.

    growth: by axis, the cost with twice of it over twice the cost, less 1. deviation: the cost for each unit of size
    over that of the shape for which `growth` was measured, less 1.
    """
    found: set[str] = set()
    limit = 1.0
    for axis, share in sorted(growth.items(), key=lambda item: abs(item[1])):
        limit += 2 * share
        if limit <= 0 or abs((1 + deviation) / limit - 1) > tolerance:
            break
        found.add(axis)
    return found
