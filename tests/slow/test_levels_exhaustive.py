"""Cuts through storage levels against every cut there is, on many random machines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "decide"))  # whose cuts are used here

from level_cuts import compared


@pytest.mark.slow
def test_decisions_equal_the_best_of_all_cuts():
    ratios = compared(range(300), most=8000)
    assert len(ratios) > 200
    assert min(ratios) > 1 - 1e-9
    assert sum(ratio <= 1.005 for ratio in ratios) >= 0.93 * len(ratios)
    assert sum(ratio <= 1.05 for ratio in ratios) >= 0.98 * len(ratios)
