"""A few random cases of every family; tests/slow/test_random_cases_10k.py runs thousands."""

from __future__ import annotations

import pytest
from families import FAMILIES, WALLED
from run_family import run

CASES = 2


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in WALLED])
def test_random_cases_are_right(family):
    run(family, number=20, cases=CASES)
