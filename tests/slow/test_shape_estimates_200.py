"""Estimates of 200 held-out multiples of each operator on the simulator: within 5 percent for 95 percent of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "tuning"))  # whose databases are used here

from simulated_shapes import errors_of_held_out, generated, share_within

from tvm_tiling.hardware import Hardware

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("op", ["gemm", "conv"])
def test_held_out_multiples_are_within_five_percent(op):
    hardware = Hardware.load("vta")
    with generated(hardware, op, 12) as db:
        errors = errors_of_held_out(db, hardware, op, 200)
    assert len(errors) == 200
    assert share_within(errors, 0.05) >= 0.95
