"""Configurations for several storage levels against an exhaustive search, on many random machines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "decide"))  # whose configurations are used here

from level_configs import compared, compared_convolutions


@pytest.mark.slow
def test_decisions_equal_the_best_of_all_configs():
    ratios = compared(range(300), most=8000)
    near = [sum(ratio <= 1 + share for ratio in ratios) / len(ratios) for share in (0.005, 0.05)]
    print(f"decision over the best of all, {len(ratios)} products: largest {max(ratios):.3f}, within 0.5 percent")
    print(f"in {near[0]:.1%}, within 5 percent in {near[1]:.1%}")
    assert len(ratios) > 200
    assert min(ratios) > 1 - 1e-9
    assert near[0] >= 0.93 and near[1] >= 0.98


@pytest.mark.slow
def test_decisions_for_convolutions_are_near_the_best_of_all_configs():
    ratios = compared_convolutions(range(1000, 1240), most=20000)
    assert len(ratios) > 120
    assert min(ratios) > 1 - 1e-9
    assert sum(ratio <= 1.05 for ratio in ratios) >= 0.95 * len(ratios)
