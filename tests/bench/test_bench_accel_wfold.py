"""The plot of W-fold's utilisation: figures and page."""

from __future__ import annotations

from benchmarks import accel_wfold


def test_folding_gains_where_channels_do_not_fill_a_row(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(accel_wfold, "CHANNELS", (3, 16, 48, 64))
    accel_wfold.main(["-o", str(tmp_path / "plot.html")])
    assert "channels" in capsys.readouterr().out
    assert "W-fold, padding rule" in (tmp_path / "plot.html").read_text(encoding="utf-8")
    rows = {row["channels"]: row for row in accel_wfold.measure((3, 16, 48, 64))}
    # A quarter and three quarters of a row; results take equally long to leave.
    assert rows[16]["best"] / 4 < rows[16]["padded"] < rows[16]["best"] / 1.5
    # A piece of 12 steps uses 6 rows of one column, and 2 rows of the next wait for space; of four columns, 5 and 1.
    waits = (12 + 1) / (12 + 2)
    assert rows[48]["best"] * 3 / 4 * waits < rows[48]["padded"] < rows[48]["best"]
    assert rows[64]["best"] * waits < rows[64]["padded"] < rows[64]["best"]
    assert rows[3]["best"] > rows[3]["seed"] > rows[3]["padded"]
