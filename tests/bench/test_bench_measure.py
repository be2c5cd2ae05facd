"""Paired timing on a simulated clock."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest

from benchmarks import cache_flush
from tvm_tiling.measure import (
    Condition,
    Paired,
    Side,
    Status,
    StopRule,
    Timing,
    inner_repetitions,
    interquartile_range,
    machine_record,
    paired,
    percentile,
    throughput,
    timed,
    uncertainty,
)


class Clock:
    """A clock that advances only when a run advances it. `log` is the order of runs."""

    def __init__(self):
        self.now = 0.0
        self.log = []
        self.switched = 0

    def run(self, name, *seconds):
        """Return a callable that takes these seconds in turn, and the last of them from then on."""
        left = list(seconds)

        def call():
            self.log.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call

    def condition(self, **fields):
        def sleep(seconds):
            self.log.append("sleep")
            self.now += seconds

        return Condition(clock=lambda: self.now, sleep=sleep, switches=lambda: self.switched, **fields)


RULE = StopRule(least_pairs=5, most_pairs=9, most_seconds=1e9)


def test_sides_alternate_and_the_ratio_is_the_peers_time_over_ours():
    clock = Clock()
    result = paired(clock.run("a", 0.1), clock.run("b", 0.3), RULE, clock.condition())
    assert result.ratio == pytest.approx(3)
    assert (result.ours.median, result.peer.median) == (pytest.approx(0.1), pytest.approx(0.3))
    assert clock.log[-10:] == ["a", "b"] * 5


def test_ratio_is_the_median_of_pairs_and_survives_drift_and_an_outlier():
    # Both sides slow down tenfold half-way; one of our runs is disturbed alone.
    ours = (0.1,) * 4 + (10.0,) + (1.0,) * 20
    theirs = (0.2,) * 5 + (2.0,) * 20
    clock = Clock()
    rule = StopRule(least_pairs=9, most_pairs=9, most_seconds=1e9)
    result = paired(clock.run("a", *ours), clock.run("b", *theirs), rule, clock.condition())
    assert len(result.ratios) == 9
    assert result.ratio == pytest.approx(2)


def test_short_calls_are_repeated_equally_on_both_sides():
    clock = Clock()
    result = paired(clock.run("a", 11e-6), clock.run("b", 25e-6), RULE, clock.condition())
    assert result.ours.inner == result.peer.inner == 91
    assert clock.log[-182:] == ["a"] * 91 + ["b"] * 91
    assert result.ours.median == pytest.approx(11e-6)


@pytest.mark.parametrize(("seconds", "calls"), [(1.0, 1), (1e-3, 1), (999e-6, 2), (3e-6, 334)])
def test_inner_repetitions_fill_a_sample(seconds, calls):
    assert inner_repetitions(seconds) == calls


@pytest.mark.parametrize(("seconds", "untimed"), [(0.01, 1), (0.0011, 1), (0.0006, 2)])
def test_a_warm_sample_waits_then_calls_untimed_for_a_millisecond(seconds, untimed):
    clock = Clock()
    result = timed(clock.run("a", seconds), StopRule(least_pairs=3, most_pairs=3), clock.condition(settle=1.0))
    timed_calls = result.inner
    assert clock.log[-1 - untimed - timed_calls :] == ["sleep", *["a"] * (untimed + timed_calls)]
    assert result.median == pytest.approx(seconds)


def test_a_cold_sample_is_one_call_after_a_flush():
    clock = Clock()
    condition = clock.condition(flush=clock.run("flush", 5.0))
    result = paired(clock.run("a", 1e-6), clock.run("b", 2e-6), RULE, condition)
    assert clock.log == ["flush", "a", "flush", "b"] * 5
    assert result.ours.inner == 1
    assert result.ratio == pytest.approx(2)


def test_calls_are_made_inside_the_sides_context():
    clock = Clock()

    @contextlib.contextmanager
    def around():
        clock.log.append("in")
        yield
        clock.log.append("out")

    timed(Side(clock.run("a", 0.01), around), StopRule(least_pairs=3, most_pairs=3), clock.condition())
    assert clock.log[-3:] == ["in", "a", "out"]


def test_a_disturbed_short_sample_is_taken_again():
    clock = Clock()
    calls = []

    def run():
        calls.append(clock.now)
        lost = len(calls) == 25  # after the first calls, which determine the duration of a call
        clock.now += 0.016 if lost else 0.003
        clock.switched += lost

    result = timed(run, StopRule(least_pairs=10, most_pairs=10, most_seconds=1e9, spread=0), clock.condition())
    assert set(map(lambda s: round(s, 6), result.seconds)) == {0.003}
    assert result.disturbed == 0


def test_samples_that_stay_disturbed_are_counted_and_make_a_pair_doubtful():
    clock = Clock()

    def run():
        clock.now += 0.003
        clock.switched += 1

    result = paired(run, clock.run("b", 0.003), RULE, clock.condition())
    assert result.ours.disturbed == len(result.ours.seconds)
    assert result.doubtful
    assert not Paired(ours=Timing(seconds=(1, 1), disturbed=1), peer=Timing(seconds=(1, 1))).doubtful


def test_a_long_sample_is_not_taken_again():
    clock = Clock()

    def run():
        clock.log.append("a")
        clock.now += 1.0
        clock.switched += 1

    result = timed(run, StopRule(least_pairs=3, most_pairs=3, most_seconds=1e9), clock.condition())
    assert len(clock.log) == 1 + 3
    assert result.disturbed == 0


class TestStopRule:
    RULE = StopRule(least_pairs=5, most_pairs=50, most_seconds=10, spread=0.01)

    def test_a_settled_median_stops_after_the_least_pairs(self):
        assert not self.RULE.reached([1.0] * 4, 0.1)
        assert self.RULE.reached([1.0] * 5, 0.1)

    def test_scatter_goes_on(self):
        assert not self.RULE.reached([1.0, 1.5] * 10, 0.1)

    def test_time_stops_before_the_pair_that_would_exceed_it(self):
        assert not self.RULE.reached([1.0, 1.5, 1.0, 1.5], 7.9)
        assert self.RULE.reached([1.0, 1.5, 1.0, 1.5], 8.1)

    def test_three_pairs_are_run_however_long_they_take(self):
        assert not self.RULE.reached([], 100.0)
        assert not self.RULE.reached([1.0, 1.0], 100.0)
        assert self.RULE.reached([1.0, 1.0, 1.0], 100.0)

    def test_pairs_stop(self):
        assert self.RULE.reached([1.0, 2.0] * 25, 0.1)


def test_a_run_that_raises_is_a_failed_result_with_its_side():
    def broken():
        raise ValueError("no such shape\nsecond line")

    clock = Clock()
    ours = paired(broken, clock.run("b", 0.1), RULE, clock.condition())
    theirs = paired(clock.run("a", 0.1), broken, RULE, clock.condition())
    assert (ours.status, ours.reason) == (Status.FAILED, "ours: ValueError: no such shape")
    assert theirs.reason == "the peer: ValueError: no such shape"
    assert timed(broken, RULE, clock.condition()).status is Status.FAILED
    assert ours.to_dict()["ratio"] is None
    assert math.isnan(ours.ratio)


def test_quartiles_and_uncertainty():
    assert interquartile_range([1.0, 2.0, 3.0, 4.0, 5.0]) == 2.0
    assert interquartile_range([7.0]) == 0.0
    assert uncertainty([7.0]) == math.inf
    assert uncertainty([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(1.57 * 2 / math.sqrt(5) / 3)


def test_collection_is_off_while_timing_and_on_afterwards():
    import gc

    seen = []
    timed(lambda: seen.append(gc.isenabled()), StopRule(most_pairs=3, least_pairs=3))
    assert not any(seen)
    assert gc.isenabled()


def test_machine_record_names_what_a_result_depends_on():
    record = machine_record()
    assert {"cpu", "caches", "cores", "versions", "date", "commit", "load"} <= record.keys()
    assert record["cores"] >= 1
    assert record["versions"]["python"].startswith("3.")


def test_flush_reads_more_than_the_last_level(monkeypatch):
    read = []
    monkeypatch.setattr(cache_flush, "usable_processors", lambda: (0, 1, 2))
    flush = cache_flush.CacheFlush(last_level_bytes=1 << 16)
    monkeypatch.setattr(flush, "_stream", lambda cpu: read.append((cpu, flush._buffer.nbytes)))
    flush()
    assert sorted(read) == [(cpu, 1 << 17) for cpu in (0, 1, 2)]


@pytest.mark.parametrize("count", [2, 3, 7, 100, 1001])
def test_percentiles_are_numpys(count):
    values = list(np.random.default_rng(count).exponential(size=count))
    for percent in (50, 90, 99):
        assert percentile(values, percent) == pytest.approx(np.percentile(values, percent))


def test_percentiles_of_few_and_throughput():
    assert percentile([2.0], 99) == 2.0 and math.isnan(percentile([], 50))
    assert throughput([0.25, 0.75]) == 2.0 and throughput([]) == 0.0
    figures = Timing(seconds=(0.1, 0.2, 0.3)).to_dict()
    assert (figures["p50"], figures["throughput"]) == (0.2, pytest.approx(5))
    assert figures["p90"] == pytest.approx(0.28) and figures["p99"] == pytest.approx(0.298)
    assert {Timing().to_dict()[name] for name in ("p50", "p90", "p99", "throughput")} == {None}
