"""Configurations run in turn: a temporary slowdown affects all of them and does not change their order."""

from __future__ import annotations

import pytest

from benchmarks.side_by_side import LEAST_ROUNDS, in_turn
from tvm_tiling.measure import Condition, Side


class Machine:
    """A clock that calls advance, three times as fast between two moments."""

    def __init__(self, slow: tuple[float, float]) -> None:
        self.now, self.slow, self.calls = 0.0, slow, 0

    def side(self, seconds: float) -> Side:
        def run() -> None:
            self.calls += 1
            self.now += seconds * (3 if self.slow[0] <= self.now < self.slow[1] else 1)

        return Side(run)

    @property
    def condition(self) -> Condition:
        return Condition(clock=lambda: self.now, switches=lambda: 0)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("slow", [(0.0, 0.0), (0.3, 1.5), (0.0, 0.9)])
def test_what_is_slow_for_a_while_changes_no_ratio(slow, relative):
    machine = Machine(slow)
    costs = [0.004, 0.005, 0.0041]
    found = in_turn([machine.side(cost) for cost in costs], 60, 100.0, machine.condition, relative=relative)
    assert [seconds / found[0] for seconds in found] == pytest.approx([cost / costs[0] for cost in costs], rel=0.01)


def test_time_ends_it_but_not_before_a_few_rounds():
    machine = Machine((0.0, 0.0))
    in_turn([machine.side(1.0)], 60, 0.5, machine.condition)
    assert machine.calls <= 20 + 2 * LEAST_ROUNDS
    machine = Machine((0.0, 0.0))
    assert in_turn([machine.side(1.0)], 3, 100.0, machine.condition) == pytest.approx([1.0])
