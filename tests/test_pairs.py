"""The default suite runs the cases that cover each pair of values of tests marked `pairs`, each value of those marked
`values`, and no others."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import pytest
from pairs import covering


@pytest.mark.parametrize("sizes, most", [((2, 3), 6), ((2, 2, 2), 4), ((3, 3, 5), 17), ((3, 2, 5, 3), 20)])
def test_each_pair_of_values_is_in_a_case(sizes, most):
    cases = [dict(zip("abcd", values, strict=False)) for values in product(*map(range, sizes))]
    kept = [cases[number] for number in covering(cases, 2)]
    for (one, m), (other, n) in combinations(zip("abcd", sizes, strict=False), 2):
        assert {(case[one], case[other]) for case in kept} == set(product(range(m), range(n)))
    assert len(kept) <= most


@pytest.mark.parametrize("sizes, most", [((2, 3), 3), ((1, 4), 4), ((3, 3, 5), 5), ((3, 2, 5, 3), 5)])
def test_each_value_is_in_a_case_and_in_as_many_as_others(sizes, most):
    cases = [dict(zip("abcd", values, strict=False)) for values in product(*map(range, sizes))]
    kept = [cases[number] for number in covering(cases, 1)]
    assert len(kept) == most
    for name, size in zip("abcd", sizes, strict=False):
        uses = Counter(case[name] for case in kept)
        assert set(uses) == set(range(size)) and max(uses.values()) - min(uses.values()) <= 1


@pytest.mark.pairs
@pytest.mark.parametrize("a", range(3))
@pytest.mark.parametrize("b", range(3))
@pytest.mark.parametrize("c", range(3))
def test_the_others_are_slow(a, b, c, request):
    del a, b, c
    cases = [item for item in request.session.items if item.name.startswith(f"{request.node.originalname}[")]
    slow = [item for item in cases if item.get_closest_marker("slow")]
    assert not slow or "not slow" not in request.config.getoption("markexpr")
    assert len(cases) - len(slow) < 14


@pytest.mark.values
@pytest.mark.parametrize("a", range(3))
@pytest.mark.parametrize("b", range(4))
def test_cases_beside_each_value_are_slow(a, b, request):
    del a, b
    cases = [item for item in request.session.items if item.name.startswith(f"{request.node.originalname}[")]
    assert "not slow" not in request.config.getoption("markexpr") or len(cases) == 4
