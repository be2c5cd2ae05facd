"""Pairwise testing: choose the cases of a test with several parameters that cover each pair of values, greedily.

A fault that needs more than two specific values is rare, and the number of all combinations is large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, groupby

import pytest


def beside_pairs(items: list[pytest.Function]) -> Iterator[pytest.Function]:
    """For each test marked `pairs`, the cases that are left out."""
    marked = (item for item in items if item.get_closest_marker("pairs"))
    for _, cases in groupby(marked, lambda item: item.nodeid.partition("[")[0]):
        some = list(cases)
        kept = covering([case.callspec.params for case in some])
        yield from (case for number, case in enumerate(some) if number not in kept)


def covering(cases: Sequence[Mapping[str, object]]) -> list[int]:
    """Return the numbers of cases that cover every pair of values; among equally good ones the first. Cases that have a
    value in common share the same object."""
    pairs = [set(combinations(sorted((name, id(value)) for name, value in case.items()), 2)) for case in cases]
    missing = set().union(*pairs)
    kept: list[int] = []
    while missing:
        kept.append(max(range(len(cases)), key=lambda number: len(pairs[number] & missing)))
        missing -= pairs[kept[-1]]
    return kept
