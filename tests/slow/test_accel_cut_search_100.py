"""100 random layers on three machines: the decision's cycles beside the best of all cuts of a small space."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "accel"))  # whose layers are used here

from cut_search import ratios


@pytest.mark.slow
def test_decisions_are_within_five_percent_of_the_best_cut():
    found = np.array([ratio for ratio, _ in ratios(100, 100, (1, 2, 4))])
    beyond = np.sort(found)[::-1][:8]
    print(f"decision over the best of the space: median {np.median(found):.3f}, largest {np.round(beyond, 3).tolist()}")
    assert (found <= 1.05).all()
