"""Paired benchmarks with artificial noise: a slower candidate never replaces the incumbent, a clearly faster one nearly
always."""

from __future__ import annotations

import random

import pytest

from tvm_tiling.measure import Condition
from tvm_tiling.tuning.measuring.paired_benchmark import (
    QUICK,
    THOROUGH,
    PairedResult,
    PairError,
    interval,
    paired_benchmark,
    verdict,
)


class NoisyMachine:
    """A clock, and programs with these times without disturbances: the machine's speed drifts by tens of percent,
    single calls are delayed, and some for long."""

    def __init__(self, seed: int) -> None:
        self.random, self.now, self.speed = random.Random(seed), 0.0, 1.0

    def clock(self) -> float:
        return self.now

    def program(self, seconds: float):
        def run() -> None:
            self.speed = min(1.5, max(0.7, self.speed * self.random.uniform(0.97, 1.03)))
            taken = seconds * self.random.lognormvariate(0.0, 0.06) / self.speed
            if self.random.random() < 0.1:
                taken *= self.random.uniform(1.0, 4.0)
            self.now += taken

        return run

    def judge(self, candidate: float, incumbent: float):
        sides = self.program(candidate), self.program(incumbent)
        condition = Condition(clock=self.clock, switches=lambda: 0)
        first = paired_benchmark(*sides, QUICK, condition)
        second = paired_benchmark(*sides, THOROUGH, condition) if first.won else None
        return verdict(incumbent, first, second)


def test_a_loser_never_takes_the_place():
    found = [NoisyMachine(seed).judge(candidate=2.06e-3, incumbent=2e-3) for seed in range(400)]
    assert not any(verdict.replaces for verdict in found)
    assert min(verdict.cost for verdict in found) >= 2e-3


def test_the_least_of_as_many_noisy_times_would_choose_losers():
    """The purpose of pairs: with the same noise, single timings fail."""
    replaces = 0
    for seed in range(400):
        machine = NoisyMachine(seed)
        times = []
        for seconds in (2.06e-3, 2e-3):
            start = machine.now
            machine.program(seconds)()
            times.append(machine.now - start)
        replaces += times[0] < times[1]
    assert replaces > 100


def test_a_clear_winner_takes_the_place():
    found = [NoisyMachine(seed).judge(candidate=1.8e-3, incumbent=2e-3) for seed in range(100)]
    assert sum(verdict.replaces for verdict in found) > 90
    assert all(verdict.cost == pytest.approx(1.8e-3, rel=0.1) for verdict in found if verdict.replaces)


def test_a_sure_loser_is_let_go_early():
    machine = NoisyMachine(1)
    condition = Condition(clock=machine.clock, switches=lambda: 0)
    assert paired_benchmark(machine.program(4e-3), machine.program(2e-3), QUICK, condition).pairs < 12


def test_what_raises_is_not_a_result():
    def broken() -> None:
        raise ValueError("no")

    with pytest.raises(PairError, match="ours: ValueError: no"):
        paired_benchmark(broken, lambda: None)


def test_the_second_benchmark_alone_says_by_how_much():
    lucky = PairedResult(ratio=1.5, uncertainty=0.1, seconds=1.0, pairs=5)
    sober = PairedResult(ratio=1.1, uncertainty=0.02, seconds=1.0, pairs=20)
    draw = PairedResult(ratio=1.01, uncertainty=0.02, seconds=1.0, pairs=20)
    assert verdict(1.1, lucky, sober).cost == pytest.approx(1.0)
    assert (verdict(1.1, lucky, draw).cost, verdict(1.1, lucky, draw).replaces) == (1.1, False)
    assert (verdict(1.1, lucky, None).cost, verdict(1.1, lucky, None).replaces) == (1.1, False)


def test_too_few_ratios_say_nothing():
    assert interval([1.2]) == (0.0, float("inf"))
