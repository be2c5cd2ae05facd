"""Cost against size through three storage levels: linear down to a boundary, below which the pipeline fill
dominates."""

from __future__ import annotations

import pytest

import tvm_tiling as tt
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.accel.workload_program import workload_program


def test_cycles_on_dla3_are_linear_down_to_a_boundary_and_not_below():
    hardware = tt.Hardware.load("dla3")

    def cycles(m):
        return simulate(workload_program(tt.GemmWorkload(m=m, n=256, k=256, dtype="int8"), hardware)).cycles

    boundary = 1024
    before = cycles(4 * boundary)
    for m in (2 * boundary, boundary):
        after = cycles(m)
        assert before / after == pytest.approx(2, rel=0.1), m
        before = after
    below = [cycles(m) / m for m in (16, 64, 256, boundary)]
    assert below == sorted(below, reverse=True)  # the smaller, the more expensive each row
    assert below[0] > 4 * below[-1]
