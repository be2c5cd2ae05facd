"""Which cases of a test with several parameters run by default, chosen greedily.

For tests marked `pairs`, those that together hold each pair of values: a fault that needs more than two specific values
is rare, and the number of all combinations is large. For tests marked `values`, those that hold each value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations, groupby

import pytest

TOGETHER = {"pairs": 2, "values": 1}  # marks, and how many values are covered together


def beside_covering(items: list[pytest.Function]) -> Iterator[pytest.Function]:
    """For each test with one of the marks, the cases that are left out."""
    for mark, together in TOGETHER.items():
        marked = (item for item in items if item.get_closest_marker(mark) and not item.get_closest_marker("slow"))
        for _, cases in groupby(marked, lambda item: item.nodeid.partition("[")[0]):
            some = list(cases)
            kept = covering([values_of(case, joined=together == 1) for case in some], together)
            yield from (case for number, case in enumerate(some) if number not in kept)


def values_of(case: pytest.Function, *, joined: bool) -> dict[str, Hashable]:
    """Return what identifies the values of a case: cases that have one in common share the same object. If `joined`,
    what one mark parametrises together is one value."""
    params = {name: id(value) for name, value in case.callspec.params.items()}
    values: dict[str, Hashable] = dict(params)
    for mark in case.iter_markers("parametrize") if joined else ():
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        if len(names) > 1:
            values[",".join(names)] = tuple(params[name.strip()] for name in names)
    return values


def covering(cases: Sequence[Mapping[str, Hashable]], together: int) -> list[int]:
    """Return the numbers of cases that cover every combination of `together` values; of equally good cases,
    the first whose values are in the fewest others."""
    held = [set(combinations(sorted(case.items()), together)) for case in cases]
    missing = set().union(*held)
    uses = Counter[tuple[tuple[str, Hashable], ...]]()
    kept: list[int] = []
    while missing:
        best = max(range(len(cases)), key=lambda n: (len(held[n] & missing), -sum(uses[each] for each in held[n])))
        kept.append(best)
        missing -= held[best]
        uses.update(held[best])
    return kept
