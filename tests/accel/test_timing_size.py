"""Cost against size: linear down to a boundary and not below, where the pipeline fill dominates."""

from __future__ import annotations

import pytest

from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.accel.workload_program import workload_program
from tvm_tiling.hardware import Hardware
from tvm_tiling.workload import GemmWorkload


@pytest.mark.parametrize(("machine", "boundary"), [("neartile", 1024), ("vta", 1024)])
def test_cycles_are_linear_down_to_a_boundary_and_not_below(machine, boundary):
    hardware = Hardware.load(machine)

    def cycles(m):
        return simulate(workload_program(GemmWorkload(m=m, n=256, k=256, dtype="int8"), hardware)).cycles

    m, before = 4 * boundary, cycles(4 * boundary)
    while m > boundary:
        m, after = m // 2, cycles(m // 2)
        assert before / after == pytest.approx(2, rel=0.05), m
        before = after
    least = cycles(16)
    assert least > 2 * cycles(4 * boundary) * 16 / (4 * boundary)  # more than twice its share
