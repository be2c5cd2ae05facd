"""The configuration of a matrix multiplication against an exhaustive search, 100,000 times."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "decide"))  # whose search and cases are used here

from gemm_cases import BRANCHES, check_random_gemms


@pytest.mark.slow
def test_100_000_random_gemms_equal_an_exhaustive_search_and_take_every_branch():
    taken = check_random_gemms(100_000, seed=12)
    assert set(taken) == set(BRANCHES)
    assert min(taken.values()) >= 100, taken
