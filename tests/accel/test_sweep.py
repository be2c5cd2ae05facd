"""One field of a machine over values: points, refusals and the table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from accel_programs import MACHINE, product

from tvm_tiling.accel.report.sweep import sweep, sweep_table
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.errors import HardwareError


def test_each_point_is_the_program_on_that_machine():
    program = product(m=64)
    points = list(sweep(program, MACHINE, "near_tile.bw_a", (4, 8, 16, 32)))
    for point in points:
        tile = replace(MACHINE.near_tile, bw_a=point.value)
        assert point.report == simulate(program, replace(MACHINE, near_tile=tile))
    cycles = [point.report.cycles for point in points]
    # 1536 bytes of A; then products of 12 cycles a block behind the first load (of A or of B, 24 cycles).
    assert cycles == [1536 // 4 + 13, 1536 // 8 + 13, 24 + 96 + 1, 24 + 96 + 1]


def test_a_function_is_asked_for_the_program_of_each_machine():
    asked = []

    def program(machine):
        asked.append(machine.near_tile.buf_a)
        return product(slots=1 if machine.near_tile.buf_a < 300 else 2)

    slow, fast = sweep(program, MACHINE, "near_tile.buf_a", (200, 400))
    assert asked == [200, 400]
    assert slow.report.cycles > fast.report.cycles


def test_a_machine_without_the_room_is_a_point_without_report():
    points = list(sweep(product(), MACHINE, "near_tile.buf_a", (64, 4096)))
    assert points[0].report is None and "memory 'a'" in points[0].refused
    assert points[1].report is not None
    rows = sweep_table(points, "near_tile.buf_a").rows
    assert rows[0][0] == 64 and "memory 'a'" in rows[0][-1] and rows[1][1] == points[1].report.cycles
    assert json.loads(json.dumps([point.to_dict() for point in points]))[0]["report"] is None


def test_a_field_that_is_not_there_is_an_error_before_anything_is_timed():
    with pytest.raises(HardwareError, match="did you mean 'bw_a'"):
        next(sweep(product(), MACHINE, "near_tile.bwa", (1, 2)))
    with pytest.raises(HardwareError, match=r"bw_a = -1"):
        next(sweep(product(), MACHINE, "near_tile.bw_a", (1, -1)))
