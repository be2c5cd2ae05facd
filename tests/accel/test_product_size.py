"""Cost of GEMMs against their size: linear down to a boundary and not below, where the boundary follows from the
pipeline fill in the machine's description."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tvm_tiling as tt
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.accel.workload_program import workload_program

N = K = 256


def cycles(m: int, hardware: tt.Hardware) -> int:
    return simulate(workload_program(tt.GemmWorkload(m=m, n=N, k=K, dtype="int8"), hardware)).cycles


def test_on_neartile_rows_cost_nothing_until_they_hide_the_load_of_b():
    """Without latency and fill, only the load of B is independent of m: below the boundary cost is constant, above it
    proportional."""
    unit = replace(tt.Hardware.load("neartile").near_tile, bw_out=None, drain=0)
    hardware = tt.Hardware(name="neartile", near_tile=unit)
    load_b, row = N * K / unit.bandwidth["external"], N * K / unit.macs_per_cycle
    boundary = int(load_b / row)
    assert boundary == 64
    for m in (boundary // 4, boundary // 2, boundary):
        assert load_b <= cycles(m, hardware) <= 1.01 * load_b
    for m in (boundary, 3 * boundary // 2, 2 * boundary, 5 * boundary, 16 * boundary, 64 * boundary):
        assert m * row <= cycles(m, hardware) <= 1.01 * m * row


def test_on_vta_halving_the_rows_halves_the_cost_down_to_where_the_port_is_the_bound():
    """The port loads B independently of the rows, and for each row its operand and its results; above about 85 rows the
    multipliers take longer. Above, cost is proportional except for a fill, which is less than the load of B, because
    the first multiplication needs only a part of it; below, half of the rows cost more than half."""
    hardware, tolerance = tt.Hardware.load("vta"), 0.06
    unit, rate = hardware.near_tile, hardware.memories["external"].bytes_per_cycle
    cost = {m: cycles(m, hardware) for m in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)}
    slope = (cost[4096] - cost[2048]) / 2048
    assert slope == pytest.approx(N * K / unit.macs_per_cycle, rel=0.02)
    fill = cost[4096] - 4096 * slope
    assert 2 * hardware.memories["external"].latency < fill < N * K / rate
    for m in (256, 512, 1024, 2048, 4096):
        assert cost[m] / cost[m // 2] == pytest.approx(2, rel=tolerance), m
    for m in (32, 64):
        assert (N * K + m * (K + 4 * N)) / rate <= cost[m] < 1.5 * cost[m // 2], m
