"""The tables of real machines: rows of few tiles are run."""

from __future__ import annotations

import pytest

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
