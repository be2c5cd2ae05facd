"""Twenty thousand damaged Relay files: each is refused with an error of this package, or still reads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "frontend"))

from relay_damage import damages, read

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(1, 11))
def test_random_damage(seed):
    survived = sum(read(model, params) for _, model, params in damages(2000, seed))
    assert 0 < survived < 1400
