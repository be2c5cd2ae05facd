"""Estimates with intervals: for multiples of entries and for unmatched shapes, on simulated machines and on artificial
ones with known costs."""

from __future__ import annotations

import math
import random

import pytest
from simulated_shapes import cycles

import tvm_tiling as tt
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.tuning.shapes.choice import decision_for, predicted_cost
from tvm_tiling.tuning.shapes.correction import Correction, Known
from tvm_tiling.tuning.shapes.estimate import NINETY, interval
from tvm_tiling.workload import ConvWorkload, GemmWorkload

CPU = Hardware.load("icelake-server-2c")
VTA = Hardware.load("vta")


def product(m, n, k, dtype="float32"):
    return GemmWorkload(m=m, n=n, k=k, dtype=dtype)


def drawn(rng, count, least=8, most=2048):
    side = lambda: round(math.exp(rng.uniform(math.log(least), math.log(most))))  # noqa: E731
    return [product(side(), side(), side()) for _ in range(count)]


def costed(workload, off, call=0.0):
    """A shape with the analytical configuration, whose cost is the prediction times `off`, plus the cost of a call."""
    config = decision_for(workload, CPU, prepacked=True)
    predicted = predicted_cost(config, workload, CPU, prepacked=True)
    return Known(workload, config, predicted, predicted * off(workload) + call)


def errors(correction, known):
    """For each cost the logarithm of the estimate's error, and its standard deviation."""
    found = []
    for one in known:
        cost, spread = correction.at(one.workload, one.config, one.predicted)
        found.append((abs(math.log(cost / one.cost)), spread))
    return found


def test_a_factor_and_a_call_are_learned_from_a_few_costs():
    rng = random.Random(1)
    off = lambda _: 1.7  # noqa: E731
    known = [costed(one, off, 4e-7) for one in drawn(rng, 30, least=1)]
    for error, spread in errors(
        Correction(known, processor=True), [costed(one, off, 4e-7) for one in drawn(rng, 30, 1)]
    ):
        assert error < 0.05 and spread < 0.1


def test_what_depends_on_the_shape_is_told_by_shapes_nearby_and_the_interval_is_as_wide_as_it_has_to_be():
    """Costs whose ratio to the predictions varies by a factor of two over the shapes, with a scatter of a twentieth."""
    rng = random.Random(2)

    def off(one):
        return math.exp(0.35 * math.sin(math.log2(one.m * one.k) / 3) + rng.gauss(0, 0.05))

    known = [costed(one, off) for one in drawn(rng, 60)]
    found = errors(Correction(known, processor=True), [costed(one, off) for one in drawn(rng, 200)])
    inside = sum(error <= NINETY * spread for error, spread in found)
    assert 0.85 * len(found) <= inside
    assert sorted(error for error, _ in found)[len(found) // 2] < 0.1
    assert sorted(spread for _, spread in found)[len(found) // 2] < 0.2
    scattered = max(error for error, _ in found)
    assert scattered < math.log(2)


def test_predictions_that_are_exact_have_narrow_intervals_and_one_cost_alone_a_wide_one():
    rng = random.Random(3)
    exact = [costed(one, lambda _: 1.0) for one in drawn(rng, 20)]
    for error, spread in errors(
        Correction(exact, processor=False), [costed(one, lambda _: 1.0) for one in drawn(rng, 20)]
    ):
        assert error < 1e-6 and spread < 0.02
    (far,) = errors(Correction(exact[:1], processor=False), exact[1:2])
    assert far[1] > 0.2


def test_a_configuration_far_from_where_it_was_measured_is_less_certain_than_a_decision_of_that_size():
    """Decisions scatter by a fiftieth; a kept configuration costs more by as much for each doubling of k."""
    rng = random.Random(5)
    scatter = lambda _: math.exp(rng.gauss(0, 0.02))  # noqa: E731
    known = [costed(one, scatter) for one in drawn(rng, 40)]
    correction, inside, asked = Correction(known, processor=True), 0, 0
    for one in known:
        for times in (2, 4, 8):
            w = product(one.workload.m, one.workload.n, times * one.workload.k)
            predicted = predicted_cost(one.config, w, CPU, prepacked=True)
            cost, spread = correction.at(w, one.config, predicted)
            true = predicted * math.exp(0.02 * math.log2(times) + rng.gauss(0, 0.02))
            inside += abs(math.log(cost / true)) <= NINETY * spread
            asked += 1
    assert inside >= 0.9 * asked
    decision = costed(w, lambda _: 1.0)
    assert decision.config not in [one.config for one in known]
    assert correction.at(w, decision.config, decision.predicted)[1] < 0.6 * spread


def test_an_algorithm_whose_costs_scatter_does_not_widen_the_intervals_of_another():
    rng = random.Random(6)

    def layers(count, stride, width):
        size = lambda: 16 * rng.randint(2, 16)  # noqa: E731
        more = {"kh": 3, "kw": 3, "stride": (stride, stride), "padding": (1, 1, 1, 1)}
        shapes = [ConvWorkload(n=1, h=28, w=28, ci=size(), co=size(), **more) for _ in range(count)]
        return [costed(shape, lambda _: math.exp(rng.gauss(0, width))) for shape in shapes]

    even, scattered = layers(20, 2, 0.01), layers(20, 1, 0.1)
    forms = [{one.config.form for one in own} for own in (even, scattered)]
    assert forms == [{"direct"}, {"winograd"}]
    correction = Correction([*even[5:], *scattered[5:]], processor=True)
    narrow, wide = (max(spread for _, spread in errors(correction, own[:5])) for own in (even, scattered))
    assert narrow < 0.7 * wide


def test_an_interval_holds_its_cost_in_the_middle_by_ratio():
    low, high = interval(100.0, 0.1)
    assert low * high == pytest.approx(1e4) and high / low == pytest.approx(math.exp(2 * NINETY * 0.1))


def test_shapes_that_nothing_serves_are_estimated_from_their_neighbours():
    rng = random.Random(4)
    with tt.ShapeDatabase("sqlite://") as db:
        assert db.estimate(product(8, 8, 8, "int8"), target=VTA) is None
        shapes = [product(*(rng.choice((16, 48, 64, 96)) for _ in range(3)), "int8") for _ in range(6)]
        db.generate(target=VTA, shapes=shapes, limit=2, candidates=2, threshold=None)
        inside, asked_of = 0, 0
        while asked_of < 20:
            asked = product(rng.randint(5, 199), rng.randint(5, 199), rng.randint(5, 199), "int8")
            found = db.estimate(asked, target=VTA)
            if found.basis != "neighbours":
                assert db.match(asked, target=VTA).chosen == "entry"
                continue
            asked_of += 1
            assert found.known >= 6
            low, high = found.interval
            assert low < found.cost < high < 1.2 * low
            inside += low <= cycles(asked, found.config, VTA) <= high
        assert inside >= 18
        assert db.estimate(product(8, 8, 8, "float16"), target=VTA) is None
        assert db.estimate(ConvWorkload(n=1, h=8, w=8, ci=16, co=16, kh=3, kw=3, dtype="int8"), target=VTA) is None


def test_the_estimate_of_an_entrys_shape_is_its_cost_and_that_of_a_multiple_has_an_interval():
    with tt.ShapeDatabase("sqlite://") as db:
        db.generate(target=VTA, shapes=[product(64, 64, 64, "int8")], limit=2, candidates=2, threshold=None)
        same = db.estimate(product(64, 64, 64, "int8"), target=VTA)
        hit = db.match(product(64, 64, 64, "int8"), target=VTA)
        assert (same.basis, same.cost, hit.chosen) == ("entry", hit.entry.cost, "entry")
        assert same.interval[0] < same.cost < same.interval[1]
        hit = db.match(product(128, 192, 64, "int8"), target=VTA)
        assert hit.estimated.basis == "multiple" and hit.interval[0] < hit.estimate < hit.interval[1]
        assert hit.scaled == pytest.approx(6 * hit.entry.cost * 64**3 / hit.entry.workload.macs)
        (listed, *_) = db.matches(product(128, 192, 64, "int8"), target=VTA)
        assert (listed.chosen, listed.interval, listed.estimate) == (None, None, listed.scaled)
