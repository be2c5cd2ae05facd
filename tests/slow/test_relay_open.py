"""Every Relay operator with dynamic dimensions, compiled once and run at five sizes: NumPy's results at the case's own
sizes, those of the fixed-size model at others, or refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "frontend"))

from relay_families import FAMILIES
from relay_open import judged

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("first_alone", [False, True], ids=["all", "first"])
@pytest.mark.parametrize("family", FAMILIES)
def test_family(family, first_alone):
    said = [(case.text, judged(case, 4, first_alone=first_alone)) for case in FAMILIES[family]]
    assert [pair for pair in said if pair[1].split(":")[0] not in ("right", "refused", "fixed")] == []
