"""500 random products on random machines of page 01: the simulator beside the decision (pages 01 and 06)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "accel"))  # whose cases are used here

from product_cases import cases, other_cuts


@pytest.fixture(scope="module")
def measured():
    return [(case, case.simulate()) for case in cases(500, seed=2)]


@pytest.mark.slow
def test_executed_loads_are_those_decided(measured):
    for case, report in measured:
        assert (report.bytes["a"], report.bytes["b"]) == case.bytes_decided(), case


@pytest.mark.slow
def test_utilisation_is_within_5_percent_of_what_any_order_of_loads_can_reach(measured):
    """Of the prediction itself where the operand that stays is a small part of the time; see Case.earliest."""
    many = [(case, report) for case, report in measured if case.partitions >= 8]
    as_predicted = [report.utilisation >= 0.95 * case.decision.utilisation for case, report in many]
    as_possible = [case.earliest() >= 0.95 * report.cycles for case, report in many]
    assert sum(as_predicted) >= 0.8 * len(many)
    assert sum(as_possible) >= 0.9 * len(many)


@pytest.mark.slow
def test_splitting_is_as_fast_where_it_is_decided(measured):
    """And not splitting nearly so where it is not: a split cut of the same prediction has no operand to wait for before
    all multipliers have work, which is a part of the time that the prediction leaves out."""
    split, unsplit = [], []
    for case, report in measured:
        others = [case.simulate(cut).cycles for cut in other_cuts(case)]
        if others:
            (split if case.decision.split_k else unsplit).append(report.cycles / min(others))
    assert len(split) > 20
    assert len(unsplit) > 100
    assert sum(ratio <= 1 for ratio in split) >= 0.98 * len(split)
    assert sum(ratio <= 1.05 for ratio in unsplit) >= 0.8 * len(unsplit)
