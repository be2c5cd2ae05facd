"""Random products on random machines of page 01: bytes as decided, time as predicted where that can be."""

from __future__ import annotations

import pytest
from product_cases import cases


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


def test_utilisation_is_that_of_the_prediction_where_nothing_hinders(measured):
    """Where an operand that stays takes long to come, no order of loads reaches the prediction (`earliest`)."""
    many = [(case, report) for case, report in measured if case.partitions >= 8]
    assert len(many) >= 10
    reachable = [(c, r) for c, r in many if c.earliest() * c.decision.utilisation <= 1.03 * c.product.gemm_cycles]
    close = [r.utilisation >= 0.95 * c.decision.utilisation for c, r in reachable]
    assert sum(close) >= 0.9 * len(close)
