"""Executables with dynamic dimensions, compared with fixed-size ones and onnxruntime: results, times, report."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime")


def test_an_lstm_is_compared_and_timed(capsys):
    from benchmarks import open_sizes

    assert open_sizes.main(["lstm", "--count", "3", "--most", "8"]) == 0
    printed = capsys.readouterr().out
    assert "LSTM 256" in printed
    assert "compiled in" in printed


def test_sizes_lie_in_the_range_of_their_case():
    from benchmarks import open_sizes

    (case,) = open_sizes.cases_of("pixels", 4, 512)
    sizes = open_sizes.sizes_of(case, 50)
    assert sizes == sorted(set(sizes))
    assert all(size % 8 == 0 and 160 <= size <= 320 for size in sizes)
