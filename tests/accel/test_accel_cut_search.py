"""The decision's cycles beside the best of a small space of cuts, all of them simulated."""

from __future__ import annotations

import pytest
from cut_search import ratios


@pytest.mark.parametrize("seed", range(5))
def test_no_cut_of_the_space_is_faster_than_the_decision_by_five_percent(seed):
    assert max(ratio for ratio, _ in ratios(2, seed, (1, 2))) <= 1.05
