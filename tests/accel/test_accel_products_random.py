"""Random GEMMs on random near-tile machines: bytes and time as decided and predicted.

The default suite's part of the 500 cases in tests/slow/test_accel_products_500.py.
"""

from __future__ import annotations

import pytest
from product_cases import cases, other_configs


@pytest.fixture(scope="module")
def measured():
    return [(case, case.simulate()) for case in cases(25, seed=1)]


def test_the_machine_loads_what_was_decided(measured):
    for case, report in measured:
        assert (report.bytes["a"], report.bytes["b"]) == case.bytes_decided(), case
        w = case.workload
        assert report.macs == w.m * w.n * w.k


def test_cycles_lie_between_the_bounds(measured):
    for case, report in measured:
        assert report.lower_bound <= report.cycles <= report.upper_bound
        assert case.earliest() <= report.cycles, case


def test_utilisation_is_within_5_percent_of_the_prediction(measured):
    many = [(case, report) for case, report in measured if case.partitions >= 8]
    assert len(many) >= 10
    close = [report.utilisation >= 0.95 * case.decision.utilisation for case, report in many]
    assert sum(close) >= 0.9 * len(close)


def test_the_decision_to_split_or_not_is_as_fast_as_the_other(measured):
    ratios = []
    for case, report in measured:
        others = [case.simulate(config).cycles for config in other_configs(case)]
        if others:
            ratios.append(report.cycles / min(others))
    assert len(ratios) >= 12
    assert sum(ratio <= 1.001 for ratio in ratios) >= 0.9 * len(ratios)
    assert max(ratios) <= 1.02
