"""Sweeps of machine fields: points, refusals, the table, and the Pareto front."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from accel_programs import MACHINE, product
from hypothesis import given
from hypothesis import strategies as st

from tvm_tiling.accel.report.sweep import OBJECTIVES, SweepPoint, pareto, sweep, sweep_table
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.errors import HardwareError


def test_each_point_is_the_program_on_that_machine():
    program = product(m=64)
    points = list(sweep(program, MACHINE, {"near_tile.bw_a": (4, 8, 16, 32)}))
    for point in points:
        tile = replace(MACHINE.near_tile, bw_a=point.value)
        assert point.report == simulate(program, replace(MACHINE, near_tile=tile))
    cycles = [point.report.cycles for point in points]
    # 1536 bytes of A; then multiplications of 12 cycles per block after the first load (of A or of B, 24 cycles).
    assert cycles == [1536 // 4 + 13, 1536 // 8 + 13, 24 + 96 + 1, 24 + 96 + 1]


def test_a_function_is_asked_for_the_program_of_each_machine():
    asked = []

    def program(machine):
        asked.append(machine.near_tile.buf_a)
        return product(slots=1 if machine.near_tile.buf_a < 300 else 2)

    slow, fast = sweep(program, MACHINE, {"near_tile.buf_a": (200, 400)})
    assert asked == [200, 400]
    assert slow.report.cycles > fast.report.cycles


def test_a_machine_without_the_room_is_a_point_without_report():
    points = list(sweep(product(), MACHINE, {"near_tile.buf_a": (64, 4096)}))
    assert points[0].report is None and "memory 'a'" in points[0].refused
    assert points[1].report is not None
    rows = sweep_table(points).rows
    assert rows[0][0] == 64 and "memory 'a'" in rows[0][-1] and rows[1][1] == points[1].report.cycles
    assert json.loads(json.dumps([point.to_dict() for point in points]))[0]["report"] is None


def test_every_combination_of_several_fields_is_a_point_and_bad_ones_say_why():
    fields = {"near_tile.bw_a": (8, -1), "near_tile.buf_a": (256, 4096)}
    points = list(sweep(product(), MACHINE, fields))
    assert [tuple(point.values.values()) for point in points] == [(8, 256), (8, 4096), (-1, 256), (-1, 4096)]
    assert all("bw_a = -1" in point.refused and point.area_mm2 is None for point in points[2:])
    assert points[0].report.cycles == points[1].report.cycles and points[0].area_mm2 < points[1].area_mm2
    with pytest.raises(HardwareError, match="did you mean 'bw_a'"):
        next(sweep(product(), MACHINE, {"near_tile.buf_a": (256,), "near_tile.bwa": (1, 2)}))
    for nothing in ({}, {"near_tile.bw_a": ()}):
        with pytest.raises(HardwareError, match="0 combinations of values; expected 1 to 100000"):
            next(sweep(product(), MACHINE, nothing))


POINTS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5), st.booleans()), max_size=12)


@given(POINTS, st.lists(st.sampled_from(list(OBJECTIVES)), min_size=1, max_size=3, unique=True))
def test_the_front_are_those_that_no_other_one_beats(drawn, objectives):
    report = simulate(product())
    points = [
        SweepPoint({"n": n}, replace(report, cycles=cycles, energy={"mac": float(energy)}) if runs else None, "", area)
        for n, (cycles, energy, area, runs) in enumerate(drawn)
    ]

    def beats(one, other):
        pairs = [(one.cost(name), other.cost(name)) for name in objectives]
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    running = [point for point in points if point.report is not None]
    wanted = [point for point in running if not any(beats(other, point) for other in running)]
    found = pareto(points, objectives)
    assert [point.value for point in found] == [point.value for point in wanted]
    assert bool(found) == bool(running)


def test_areas_that_differ_by_rounding_are_equal():
    report = simulate(product())
    points = [SweepPoint({"n": n}, report, "", area) for n, area in enumerate((0.1 + 0.2, 0.3))]
    assert pareto(points, ["cycles", "area"]) == points


def test_a_field_that_is_not_there_is_an_error_before_anything_is_timed():
    with pytest.raises(HardwareError, match="did you mean 'bw_a'"):
        next(sweep(product(), MACHINE, {"near_tile.bwa": (1, 2)}))
    with pytest.raises(HardwareError, match=r"bw_a = -1"):
        next(sweep(product(), MACHINE, {"near_tile.bw_a": (1, -1)}))
