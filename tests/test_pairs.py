"""For tests marked `pairs`, the default suite runs the cases that cover each pair of values, and no others."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from pairs import covering


@pytest.mark.parametrize("sizes, most", [((2, 3), 6), ((2, 2, 2), 4), ((3, 3, 5), 17), ((3, 2, 5, 3), 20)])
def test_each_pair_of_values_is_in_a_case(sizes, most):
    cases = [dict(zip("abcd", values, strict=False)) for values in product(*map(range, sizes))]
    kept = [cases[number] for number in covering(cases)]
    for (one, m), (other, n) in combinations(zip("abcd", sizes, strict=False), 2):
        assert {(case[one], case[other]) for case in kept} == set(product(range(m), range(n)))
    assert len(kept) <= most


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
