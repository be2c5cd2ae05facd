"""Randomness as a list of integers: a random case is determined by them, so that it can be repeated, or shrunk."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """The numbers `given` and, after them, those of `rng`, or 0 without one; `taken` is what was chosen so far."""

    def __init__(self, given: Sequence[int] = (), rng: random.Random | None = None) -> None:
        self.given, self.rng, self.taken = list(given), rng, list[int]()

    def below(self, count: int) -> int:
        """Return a number from 0 on, below `count`; smaller numbers stand for simpler choices."""
        place = len(self.taken)
        if place < len(self.given):
            number = self.given[place] % count
        else:
            number = self.rng.randrange(count) if self.rng is not None else 0
        self.taken.append(number)
        return number

    def one(self, options: Sequence[T]) -> T:
        """Return one of the options, the simplest of which is first."""
        return options[self.below(len(options))]

    def often(self, percent: int) -> bool:
        """Return True with this percentage; the simple case is False."""
        return self.below(100) >= 100 - percent


def smaller(taken: Sequence[int], fails: Callable[[list[int]], bool], attempts: int) -> list[int]:
    """Return fewer and smaller numbers that still fail, after at most `attempts` attempts."""
    best = list(taken)
    left = attempts

    def better(candidate: list[int]) -> bool:
        nonlocal best, left
        if left <= 0 or candidate == best:
            return False
        left -= 1
        if not fails(candidate):
            return False
        best = candidate
        return True

    size = max(1, len(best) // 2)
    while left > 0:
        changed = False
        at = len(best)
        while at > 0 and left > 0:
            start = max(0, at - size)
            changed |= better(best[:start] + best[at:])
            at = min(start, len(best))
        for place in range(len(best)):
            if size == 1 and place < len(best) and best[place] and left > 0:
                changed |= better([*best[:place], 0, *best[place + 1 :]])
        if size == 1 and not changed:
            break
        size = max(1, size // 2)
    return best
