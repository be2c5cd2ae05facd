"""Every Relay operator compiled by this package instead of TVM alone, so that schedules and passes process the
result."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "frontend"))

from relay_cases import check, compiled_outputs
from relay_families import FAMILIES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family):
    check(FAMILIES[family], by=compiled_outputs)
