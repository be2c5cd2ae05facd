"""Generating a database: candidates, threshold, boundary shapes, progress, resuming; with artificial costs."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import pytest
from shapes import CPU, VTA, conv, gemm

from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.errors import DatabaseError
from tvm_tiling.hardware import Hardware
from tvm_tiling.tuning.least_cost import least_cost
from tvm_tiling.tuning.measuring.measurer import Job, Measured
from tvm_tiling.tuning.shapes.candidates import LIMITS, candidates, refused_by
from tvm_tiling.tuning.shapes.choice import decision_for
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.random_shapes import RANGES, RandomShapes


class MadeUp:
    """Costs by a formula: a start-up of `fill` multiply-accumulates, with simple configurations slightly cheaper."""

    def __init__(self, fill=0.0, fails=lambda job: None, ends_after=10**9, size=lambda workload: workload.macs):
        self.fill, self.fails, self.ends_after, self.size, self.asked = fill, fails, ends_after, size, []

    def measure(self, jobs):
        for job in jobs:
            if len(self.asked) == self.ends_after:
                raise KeyboardInterrupt
            self.asked.append(job)
            reason = self.fails(job)
            if reason:
                yield Measured(job=job, reason=reason)
            else:
                tiles = (
                    math.prod(job.config.choice("microkernel")) if dict(job.config.choices).get("microkernel") else 1
                )
                cost = (self.size(job.workload) + self.fill) * 1e-10 * (1 + 1 / (1 + tiles))
                yield Measured(job=job, cost=cost, energy_pj=float(job.workload.macs))

    def close(self):
        pass


SHAPE = gemm(64, 128, 256, dtype="float32")


@pytest.fixture
def db(tmp_path):
    with ShapeDatabase(tmp_path / "x.db") as opened:
        yield opened


def generate(db, measurer, shapes=(SHAPE,), **settings):
    return db.generate(target=CPU, shapes=shapes, measurer=measurer, **{"threshold": None, **settings})


def test_the_cheapest_measured_config_is_kept_with_its_cost(db):
    measurer = MadeUp()
    generate(db, measurer, limit=0, candidates=6)
    assert len({job.config for job in measurer.asked}) == 6 and all(job.workload == SHAPE for job in measurer.asked)
    costs = {measured.job.config: measured.cost for measured in MadeUp().measure(measurer.asked)}
    found = db.match(SHAPE, target=CPU).entry
    assert found.cost == min(costs.values()) == costs[found.config] and found.kind == "initial"
    assert found.energy_pj == SHAPE.macs


def test_a_proportional_cost_reaches_the_smallest_shapes(db):
    report = generate(db, MadeUp(), limit=40, candidates=2)
    shapes = {entry.workload for _, entry in db.entries(kind="boundary")}
    assert gemm(1, 1, 1, dtype="float32") in shapes and gemm(1, 128, 256, dtype="float32") in shapes
    assert report.initial == 1 and report.boundary == len(shapes) and db.check().ok
    hit = db.match(gemm(7, 11, 13, dtype="float32"), target=CPU)
    assert hit.step == 4 and hit.estimate == pytest.approx(7 * 11 * 13 * 1e-10, rel=0.5)


def test_boundary_shapes_keep_the_initial_config_and_their_own_costs(db):
    generate(db, MadeUp(fill=10_000.0), limit=40, candidates=2)
    initial = db.match(SHAPE, target=CPU).entry
    entries = [entry for _, entry in db.entries(kind="boundary")]
    assert entries
    for entry in entries:
        assert entry.config == initial.config and entry.energy_pj == entry.workload.macs
        assert initial.cost / entry.cost == pytest.approx(SHAPE.macs / entry.workload.macs, rel=0.05)
        assert entry.workload.macs > 10_000 / 0.06  # smaller ones are far from proportional


class Drifting(MadeUp):
    """A machine that becomes slower with each measurement."""

    calls = 0

    def measure(self, jobs):
        self.calls += 1
        for measured in super().measure(jobs):
            yield dataclasses.replace(measured, cost=measured.cost * 1.003**self.calls)


def test_a_boundary_entry_and_the_decision_are_compared_at_one_moment(db):
    generate(db, Drifting(), limit=8, candidates=6)
    differ = 0
    for _, entry in db.entries(kind="boundary"):
        decision = decision_for(entry.workload, CPU, prepacked=False)
        jobs = [Job(workload=entry.workload, config=own, hardware=CPU) for own in (entry.config, decision)]
        kept, decided = (measured.cost for measured in MadeUp().measure(jobs))
        assert entry.decided_cost / entry.cost == pytest.approx(decided / kept, rel=1e-9)
        differ += decision != entry.config
    assert differ


def test_the_proportional_range_is_told_of_hits(db):
    """Along k cost is constant below 256, so that nothing is known about larger ones."""
    measurer = MadeUp(size=lambda workload: workload.m * workload.n * max(workload.k, 256))
    generate(db, measurer, limit=40, candidates=1)
    hit = db.match(gemm(128, 384, 256, dtype="float32"), target=CPU)
    assert (hit.step, set(hit.longer), hit.proportional) == (3, {"m", "n"}, True)
    hit = db.match(gemm(64, 256, 512, dtype="float32"), target=CPU)
    assert (hit.step, set(hit.longer), hit.proportional) == (3, {"n", "k"}, False)
    assert db.match(SHAPE, target=CPU).proportional  # the same shape, for any axes
    for _, entry in db.entries(kind="boundary"):
        shorter = {axis for axis in ("m", "n", "k") if getattr(entry.workload, axis) < getattr(SHAPE, axis)}
        assert set(entry.proportional) == shorter


def test_an_axis_that_cannot_grow_is_not_in_the_proportional_range(db):
    """Above 64 rows something no longer fits: twice as many cost three times as much."""
    measurer = MadeUp(size=lambda workload: workload.macs * (1.5 if workload.m > 64 else 1))
    generate(db, measurer, limit=40, candidates=1)
    assert "m" not in {axis for _, entry in db.entries() for axis in entry.proportional}
    assert db.match(gemm(64, 256, 256, dtype="float32"), target=CPU).proportional
    assert not db.match(gemm(128, 128, 256, dtype="float32"), target=CPU).proportional


def test_no_boundary_shape_where_nothing_is_proportional(db):
    report = generate(db, MadeUp(fill=1e9))
    assert (report.initial, report.boundary) == (1, 0)
    assert db.match(SHAPE, target=CPU).step == 1


def test_the_threshold_is_beside_the_roofline(db):
    least = least_cost(SHAPE, CPU)
    cost = min(measured.cost for measured in MadeUp().measure([_first_job()]))
    report = generate(db, MadeUp(), threshold=cost / least * 0.9, candidates=1)
    assert (report.dear, report.initial) == (1, 0) and db.match(SHAPE, target=CPU) is None
    report = generate(db, MadeUp(), threshold=cost / least * 1.1, candidates=1, limit=0)
    assert (report.dear, report.initial) == (0, 1)


def _first_job():
    return Job(workload=SHAPE, config=neighbourhood(SHAPE, CPU).start, hardware=CPU)


def test_settings_reach_the_reduction(db):
    generate(db, MadeUp(), factor=4, limit=3, candidates=1)
    shapes = [entry.workload for _, entry in db.entries(kind="boundary")]
    assert len(shapes) == 3
    for wrong in ({"factor": 1}, {"tolerance": 2}, {"limit": -1}, {"threshold": 0}, {"candidates": 0}):
        with pytest.raises(DatabaseError, match=f"{next(iter(wrong))} = "):
            generate(db, MadeUp(), **wrong)


def test_what_cannot_be_measured_is_reported_with_its_reason(db):
    other = gemm(32, 32, 32, dtype="float32")
    measurer = MadeUp(fails=lambda job: "it crashed" if job.workload == other else None)
    report = generate(db, measurer, shapes=[other, SHAPE], limit=0)
    assert report.initial == 1 and report.failed == (("gemm k=32 m=32 n=32 float32", "it crashed"),)
    report = db.generate(target=VTA, shapes=[SHAPE], measurer=measurer)  # which supports int8 only
    assert report.initial == 0 and report.failed[0][0].endswith("float32") and "vta" in report.failed[0][1]


def test_a_failed_reduction_ends_its_axis(db):
    measurer = MadeUp(fails=lambda job: "it crashed" if job.workload.n < 64 else None)
    generate(db, measurer, limit=40, candidates=1)
    assert {entry.workload.n for _, entry in db.entries(kind="boundary")} == {64, 128}


def test_a_reduced_image_smaller_than_its_kernel_ends_the_axis(db):
    shape = conv(14, 32, 32, dtype="float32", kh=5)
    measurer = MadeUp(size=lambda workload: workload.h * workload.w * workload.ci * workload.co)
    generate(db, measurer, shapes=[shape], limit=40, candidates=1)
    found = {(entry.workload.h, entry.workload.w) for _, entry in db.entries(kind="boundary")}
    assert min(h for h, _ in found) == 7 and min(w for _, w in found) == 1


def test_progress_is_reported(db):
    told = []
    generate(
        db, MadeUp(), shapes=[SHAPE, conv(14, 32, 32, dtype="float32")], limit=2, candidates=2, progress=told.append
    )
    assert (told[0].done, told[0].of) == (0, 2) and told[-1].done == 1
    assert [progress.measured for progress in told] == sorted(progress.measured for progress in told)
    assert "conv" in told[-1].shape and "kh=3" in told[-1].shape


def test_what_is_ended_goes_on_where_it_was(db):
    shapes = [SHAPE, gemm(96, 96, 96, dtype="float32"), gemm(48, 48, 48, dtype="float32")]
    whole = MadeUp()
    with ShapeDatabase("sqlite://") as other:
        generate(other, whole, shapes=shapes, limit=6, candidates=3)
        expected = {str(entry) for _, entry in other.entries()}
    asked = []
    for _ in range(100):
        measurer = MadeUp(ends_after=7)
        try:
            report = generate(db, measurer, shapes=shapes, limit=6, candidates=3)
            break
        except KeyboardInterrupt:
            assert db.check().ok
        finally:
            asked += [(job.workload, job.config) for job in measurer.asked]
    else:
        pytest.fail("it does not get on")
    assert {str(entry) for _, entry in db.entries()} == expected
    # Nothing was measured again: two shapes may both be reduced to a third.
    assert Counter(asked) == Counter((job.workload, job.config) for job in whole.asked)
    assert report.initial == 3 and report.boundary >= len(expected) - 3
    again = MadeUp()
    assert generate(db, again, shapes=shapes, limit=6, candidates=3).earlier == 3 and not again.asked


def test_other_settings_are_another_generation(db):
    generate(db, MadeUp(), limit=1, candidates=1)
    measurer = MadeUp()
    generate(db, measurer, limit=2, candidates=1)
    assert measurer.asked


# ---- candidates ------------------------------------------------------------------------------------------------------


def test_candidates_begin_with_the_decisions_own_config():
    found = candidates(SHAPE, CPU, limit=5)
    space = neighbourhood(SHAPE, CPU)
    assert found.configs[0] == space.start and len(set(found.configs)) == 5
    assert list(found.refused) == list(LIMITS)


def test_a_limit_refuses_by_its_name():
    refused = {"no columns of 16": lambda config, workload, hardware: "16" not in str(config)}
    found = candidates(SHAPE, CPU, limit=1000, limits=refused)
    assert found.refused["no columns of 16"] > 0 and all("16" not in str(config) for config in found.configs[1:])
    assert refused_by(found.configs[1], SHAPE, CPU, refused) is None


# ---- random shapes ---------------------------------------------------------------------------------------------------


def test_random_shapes_stay_in_their_ranges():
    for op in RANGES:
        drawn = list(RandomShapes(op=op, count=200, ranges={"n": (3, 40)} if op == "gemm" else {}).workloads(CPU))
        assert len(drawn) == 200 and drawn == list(
            RandomShapes(op=op, count=200, ranges={"n": (3, 40)} if op == "gemm" else {}).workloads(CPU)
        )
        for axis, (least, most) in {**RANGES[op], **({"n": (3, 40)} if op == "gemm" else {})}.items():
            extents = {getattr(workload, axis) for workload in drawn}
            assert least <= min(extents) and max(extents) <= most
            assert len(extents) > 5 or most - least < 5
        assert {workload.dtype for workload in drawn} == {"float32"}
    vta = list(RandomShapes(op="conv", count=50, seed=1).workloads(Hardware.load("vta")))
    assert {workload.dtype for workload in vta} == {"int8"} and all(w.h == w.w and w.ho <= w.h for w in vta)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"op": "pool"}, "op = 'pool'"),
        ({"count": 0}, "count = 0"),
        ({"ranges": {"q": (1, 2)}}, "axis 'q'"),
        ({"ranges": {"m": (5, 2)}}, r"m = \(5, 2\)"),
    ],
)
def test_random_shapes_that_are_none(wrong, words):
    with pytest.raises(DatabaseError, match=words):
        RandomShapes(**{"op": "gemm", "count": 3, **wrong})
