"""Selection of shapes to measure such that few entries serve many shapes, before anything is measured.

An entry serves shapes that are whole multiples of it, and shapes nearby, since the measurement of a neighbour corrects
their predictions. The quality decreases with distance, half as fast along multiples. Shapes are selected greedily to
maximise the sum over all wanted shapes of the quality of their best entry (facility location: greedy selection reaches
at least 63 percent of the optimum). Candidates are the wanted shapes, and the axis-wise greatest common divisors of
pairs with the same key.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import DatabaseError, WorkloadError
from .key import ShapeKey, Workload, extents_of, key_of
from .nearness import comparable, distances, place

REACH = 2.5  # distance within which an entry serves a shape
MULTIPLES = 0.5  # factor on the distance to an entry that a shape is a multiple of
MOST_PAIRS = 400  # per key, whose common divisors are candidates


@dataclass(frozen=True, kw_only=True)
class Cover:
    """Shapes to measure, in order of the number served. Of the `wanted` shapes, they are expected to serve `served`,
    `multiples` of them as multiples, the rest as neighbours."""

    shapes: tuple[Workload, ...]
    wanted: int
    served: int
    multiples: int


def cover(wanted: Iterable[Workload], budget: int) -> Cover:
    """Return at most `budget` shapes that together serve most of the wanted ones."""
    if type(budget) is not int or budget < 1:
        raise DatabaseError(f"budget = {budget!r}; expected a whole number of shapes of at least 1")
    asked = list(dict.fromkeys(wanted))
    groups: dict[tuple[object, ...], list[Workload]] = {}
    for shape in asked:
        groups.setdefault(comparable(key_of(shape)), []).append(shape)
    found = [_Group(shapes) for shapes in groups.values()]
    chosen: list[Workload] = []
    while len(chosen) < budget:
        gains = [group.best() for group in found]
        most = max(gains, default=0.0)
        if most <= 0:
            break
        chosen.append(found[gains.index(most)].take())
    return Cover(
        shapes=tuple(chosen),
        wanted=len(asked),
        served=sum(group.served() for group in found),
        multiples=sum(group.served_as_multiples() for group in found),
    )


class _Group:
    """The wanted shapes of one operator and type, and how well candidates serve them."""

    def __init__(self, wanted: list[Workload]) -> None:
        self._candidates = list(dict.fromkeys([*wanted, *_common_divisors(wanted)]))
        keys, own = list(map(key_of, self._candidates)), list(map(key_of, wanted))
        here, there = (np.array(list(map(place, shapes))) for shapes in (self._candidates, wanted))
        away = distances(here, keys, there, own)
        candidates, asked = list(zip(self._candidates, keys, strict=True)), list(zip(wanted, own, strict=True))
        self._divides = np.array([[_divides(one, other) for other in asked] for one in candidates])
        self._serves = np.exp(-np.where(self._divides, MULTIPLES * away, away) / REACH)
        self._taken: list[int] = []
        self._best = np.zeros(len(wanted))

    def best(self) -> float:
        """Return the largest gain of a further candidate."""
        self._gains = np.maximum(self._serves - self._best, 0).sum(axis=1)
        return float(self._gains.max())

    def take(self) -> Workload:
        """Take and return the candidate with the largest gain."""
        number = int(self._gains.argmax())
        self._taken.append(number)
        self._best = np.maximum(self._best, self._serves[number])
        return self._candidates[number]

    def served(self) -> int:
        """Return how many of the wanted shapes are within reach."""
        return int((self._best >= math.exp(-1)).sum())

    def served_as_multiples(self) -> int:
        """Return how many of these are multiples of a shape within reach."""
        near = self._serves[self._taken] >= math.exp(-1)
        return int((self._divides[self._taken] & near).any(axis=0).sum())


def _divides(one: tuple[Workload, ShapeKey], other: tuple[Workload, ShapeKey]) -> bool:
    """Return whether the other shape has the same key and is a whole multiple along every axis."""
    (short, key), (long, other_key) = one, other
    return key == other_key and all(
        more % less == 0 for less, more in zip(extents_of(short), extents_of(long), strict=True)
    )


def _common_divisors(wanted: Sequence[Workload]) -> list[Workload]:
    """Return the greatest common divisors of the axes of pairs with the same key, if they form a valid shape."""
    of_key: dict[ShapeKey, list[Workload]] = {}
    for shape in wanted:
        of_key.setdefault(key_of(shape), []).append(shape)
    found = []
    for key, shapes in of_key.items():
        pairs = list(itertools.combinations(shapes, 2))
        if len(pairs) > MOST_PAIRS:
            pairs = random.Random(0).sample(pairs, MOST_PAIRS)
        for one, other in pairs:
            extents = tuple(map(math.gcd, extents_of(one), extents_of(other)))
            try:
                found.append(key.workload(extents))
            except WorkloadError:  # an image smaller than the kernel
                continue
    return found
