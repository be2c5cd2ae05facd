"""Which cases of a test of several parameters hold each pair of their values, by a greedy choice.

A fault that more than two parameters have to meet for is rare, and the cases of all combinations are many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, groupby

import pytest


def beside_pairs(items: list[pytest.Function]) -> Iterator[pytest.Function]:
    """Of each test that is marked `pairs`, the cases that are left out."""
    marked = (item for item in items if item.get_closest_marker("pairs"))
    for _, cases in groupby(marked, lambda item: item.nodeid.partition("[")[0]):
        some = list(cases)
        kept = covering([case.callspec.params for case in some])
        yield from (case for number, case in enumerate(some) if number not in kept)


def covering(cases: Sequence[Mapping[str, object]]) -> list[int]:
    """Numbers of cases that hold every pair of values that any case holds, of equally good ones the first; cases that
    have a value in common have the same object."""
    pairs = [set(combinations(sorted((name, id(value)) for name, value in case.items()), 2)) for case in cases]
    missing = set().union(*pairs)
    kept: list[int] = []
    while missing:
        kept.append(max(range(len(cases)), key=lambda number: len(pairs[number] & missing)))
        missing -= pairs[kept[-1]]
    return kept
