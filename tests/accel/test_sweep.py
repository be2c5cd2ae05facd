"""One field of a machine over values: points, refusals, the table and the page."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import replace

import pytest
from accel_programs import MACHINE, product

from tvm_tiling.accel.report.report import html as page_module
from tvm_tiling.accel.report.sweep import sweep, sweep_page, sweep_table
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


def figures(text):
    """The plots of a page; plotly itself refuses what it does not know."""
    from plotly.graph_objects import Figure

    found = json.loads(re.search(r"const figures = (\[.*\]);", text)[1])
    for figure in found:
        Figure(data=figure["data"], layout=figure["layout"])
    return found


def test_the_page_plots_cycles_utilisation_and_energy():
    if importlib.util.find_spec("plotly") is None:
        pytest.skip("plotly is not installed")
    points = list(sweep(product(), MACHINE, "near_tile.bw_a", (2, 64, 4096.0)))
    text = sweep_page(points, "a <product>", MACHINE, "near_tile.bw_a")
    found = figures(text)
    assert [figure["data"][0]["name"] for figure in found] == ["cycles", "utilisation", "energy_pj"]
    assert found[0]["data"][0]["x"] == [2, 64, 4096.0]
    assert found[0]["data"][0]["y"] == [point.report.cycles for point in points]
    assert found[0]["layout"]["xaxis"]["type"] == "log"
    assert "a &lt;product&gt;" in text and "<product>" not in text
    words = list(sweep(product(), MACHINE, "near_tile.partial_blocks", ("skipped", "padded")))
    assert figures(sweep_page(words, "", MACHINE, "x"))[0]["layout"]["xaxis"]["type"] == "category"


def test_the_reports_page_shows_each_engines_cycles(tmp_path):
    if importlib.util.find_spec("plotly") is None:
        pytest.skip("plotly is not installed")
    report = simulate(product())
    report.save_html(tmp_path / "r.html")
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]
    engines, roofline, energy = figures((tmp_path / "r.html").read_text())
    for place, name in enumerate(engines["data"][0]["y"]):
        assert sum(part["x"][place] for part in engines["data"]) == report.cycles, name
    assert energy["data"][0]["y"] == list(report.energy.values())
    roof, (spot,) = roofline["data"][0], roofline["data"][1:]
    assert spot["x"] == [report.intensity] and spot["y"] == [report.macs / report.cycles]
    assert max(roof["y"]) == pytest.approx(256) and spot["y"][0] <= 256


def test_without_plotly_the_tables_stand_alone(monkeypatch, tmp_path):
    monkeypatch.setattr(page_module.importlib.util, "find_spec", lambda name: None)
    report = simulate(product())
    report.save_html(tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "extra plots" in text and "<script" not in text and f"{report.cycles} cycles" in text
    assert len(text) < 20_000
