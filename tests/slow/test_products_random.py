"""2,000 GEMMs of random sizes, types, layouts, epilogues, kernel variants and machines against NumPy."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "numeric"))  # whose products are used here

from products import check
from random_products import random_case


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_50_random_gemms(seed):
    rng = random.Random(f"products {seed}")
    for number in range(50):
        p, hardware, options = random_case(rng, most=400)
        check(p, hardware, seed=number, **options)
