"""The tables of real machines: rows with few tiles, and single layers, are simulated."""

from __future__ import annotations

import pytest

from benchmarks import validation_vta
from benchmarks.validation import FITTED, fit_gemmini, gemmini, gemmini_rows, run_gemmini, summarise, with_parameters


@pytest.mark.parametrize("table", ["a", "b"])
def test_gemmini_beside_its_rtl(table):
    rows = [row for row in gemmini_rows(table) if row.rtl < 5e6]
    found = summarise([run_gemmini(row) for row in rows])
    assert found.mean_error < 0.12 < found.timeloop_error
    assert found.rank_correlation >= 0.95
    assert found.worst <= 1.05
    assert found.mean_ratio < 1


def test_the_fit_improves_what_it_starts_from():
    rows = gemmini_rows("a")[5:9]
    start = (7.0, 3.0, 1.0, 3.0, 300, 8.0, 4.0)
    values, error = fit_gemmini(rows, start, most=30)
    assert error <= fit_gemmini(rows, start, most=1)[1]
    tile = with_parameters(gemmini(), values).near_tile
    assert tile is not None
    assert tile.strip_least == values[FITTED.index("strip_least")]


def test_the_layers_that_are_given_to_vta():
    blocks = {
        network: sum(layer.workload.flops // 512 for layer in validation_vta.layers(network))
        for network in validation_vta.DEPTHS
    }
    # The published counts of both GEMM units differ by three cycles per block: 6.65, 13.9 and 15.4 million blocks.
    assert blocks == {"resnet18": 6623232, "resnet34": 13848576, "resnet50": 15504384}


def test_points_are_not_padded_and_shortcuts_do_not_wait_for_whole_blocks_of_the_image():
    machine = validation_vta.vta("pipelined")
    assert validation_vta.cycles(validation_vta.Layer(7, 512, 512, 3), machine) < 1.05 * 451584
    assert validation_vta.cycles(validation_vta.Layer(28, 128, 128, 3, shortcut=True), machine) < 1.2 * 451584
    assert validation_vta.cycles(validation_vta.Layer(7, 512, 512, 3), validation_vta.vta("before")) > 4 * 451584
