"""The accelerator's benchmark on very small cases."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.accel import measure_functional, table
from benchmarks.accel_cases import convolution, product, recorded
from benchmarks.accel_timing import measure_timing, network, timing_table
from benchmarks.least_time import least_seconds
from tvm_tiling.accel.checks.hazards import check


@pytest.mark.parametrize(
    "made",
    [
        lambda: product(32, 16, 48, 16, 8, 24),
        lambda: convolution(9, 8, 3, 3),
        lambda: recorded(40, 24, 36, "vta"),
    ],
    ids=["product", "convolution", "recorded"],
)
def test_a_case_is_checked_measured_and_shown(made):
    case = made()
    check(case.program)
    row = measure_functional(case, 0)
    assert row["instructions"] == len(case.program)
    assert row["gmacs_unchecked"] * row["microseconds_unchecked"] * len(case.program) == pytest.approx(case.macs / 1e3)
    text = table([row | {"gmacs_unchecked": 5.5}, row | {"gmacs_unchecked": 4.5}])
    assert case.name in text and "1 of 2 reach 5 GMAC/s" in text


def test_a_wrong_result_is_not_measured():
    case = product(32, 16, 48, 16, 8, 24)
    with pytest.raises(AssertionError):
        measure_functional(dataclasses.replace(case, output=case.output + np.int32(1)), 0)


def test_the_least_time_of_two_calls_and_more():
    calls = []
    assert least_seconds(lambda: calls.append(1), 0) >= 0 and len(calls) == 2


def test_timing_is_measured_and_shown():
    figures = measure_timing(0, instructions=2000, descriptions=3)
    assert figures["instructions"] == len(network(2000)) > 1000
    assert figures["plain"] > 0 and figures["sweep_seconds"] > 0 and figures["descriptions"] == 3
    assert f"{figures['plain']:.2f}" in timing_table(figures)
    assert "numba is not installed" in timing_table(figures | {"compiled": None})
