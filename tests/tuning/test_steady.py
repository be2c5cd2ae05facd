"""Costs of shapes on a CPU: the minimum over several rounds, and configurations of one shape run alternately."""

from __future__ import annotations

import pytest
from shapes import CPU, config, gemm

from tvm_tiling.tuning.measuring.incumbents import TrialFailed
from tvm_tiling.tuning.measuring.measurer import Job, Measured
from tvm_tiling.tuning.measuring.steady import SteadyMeasurer


def job(tile=16, m=64):
    return Job(workload=gemm(m, 64, 64, dtype="float32"), config=config(tile), hardware=CPU)


class Local:
    """Costs as given; in further rounds `later`, one after the other."""

    def __init__(self, costs, later=()):
        self.costs, self.later = costs, list(later)
        self.bench, self.held, self.released, self.closed = self, [], [], False

    def measure(self, jobs):
        for own in jobs:
            cost = self.costs[own]
            yield Measured(job=own, cost=cost, reason=None if cost else "no")

    def alone(self, candidate):
        self.held.append(candidate)
        found = self.later.pop(0)
        if found is None:
            raise TrialFailed("lost")
        return found

    def release(self, own):
        self.released.append(own)

    def close(self):
        self.closed = True


def costs(local, *jobs, rounds=3):
    return [measured.cost for measured in SteadyMeasurer(local, rounds=rounds, pause=0).measure(jobs)]


@pytest.mark.parametrize(("later", "least"), [((3, 4), 2), ((1, 4), 1), ((4, 1.5), 1.5), ((1, None), 1), ((None,), 2)])
def test_the_least_of_the_rounds_counts(later, least):
    local = Local({job(): 2}, later)
    assert costs(local, job()) == [least]
    assert local.released == [job()] and local.later == []


def test_configs_of_a_shape_keep_their_ratios():
    slow, fast, wrong = job(8), job(16), job(32)
    local = Local({slow: 8, fast: 4, wrong: None}, (3, 2))
    assert costs(local, slow, fast, wrong) == [4, 2, None]
    assert local.held == [fast, fast]


def test_each_shape_by_itself():
    local = Local({job(m=64): 2, job(m=128): 4}, (1, 5))
    assert costs(local, job(m=64), job(m=128), rounds=2) == [1, 4]


def test_nothing_that_ran_is_nothing_to_repeat():
    local = Local({job(): None})
    assert costs(local, job()) == [None] and local.held == []


def test_it_closes_what_it_measures_with():
    local = Local({})
    SteadyMeasurer(local).close()
    assert local.closed
