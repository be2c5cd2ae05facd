"""A few random cases of every family; tests/slow/test_random_cases_10k.py takes thousands."""

from __future__ import annotations

import pytest
from families import FAMILIES
from run_family import run

CASES = 6


@pytest.mark.parametrize("family", FAMILIES)
def test_random_cases_are_right(family):
    run(family, number=20, cases=CASES)
