"""Cycles of the decision compared with the best of a small space of configurations, all of them simulated."""

from __future__ import annotations

import pytest
from config_search import found_of


@pytest.mark.parametrize("seed", range(2))
def test_no_config_of_the_space_is_faster_than_the_decision_by_five_percent(seed):
    for found in found_of(2, seed, (1, 2)):
        assert found.ratio_as_loaded <= 1.05, found
        assert found.walked in ((), found.cycles), found  # cycles are known without a program
