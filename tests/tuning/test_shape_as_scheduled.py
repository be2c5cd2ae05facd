"""Operators as schedules see them: the database stores and finds the shapes that scheduling looks up."""

from __future__ import annotations

import pytest
from shapes import CPU, VTA, conv, gemm
from simulated_shapes import cycles

from tvm_tiling.accel.plain_operator import plain_operator
from tvm_tiling.decide.as_scheduled import as_scheduled
from tvm_tiling.hardware import Hardware
from tvm_tiling.match import match
from tvm_tiling.schedule import tiling_schedule
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.workload import GemmWorkload


def pointwise(size, ci, co, **more):
    return conv(size, ci, co, **{"kh": 1, "kw": 1, "padding": (0, 0, 0, 0), **more})


SHAPES = [
    pointwise(28, 32, 64),
    pointwise(28, 32, 64, n=2),
    pointwise(28, 32, 64, w=1),
    pointwise(28, 32, 64, layout="NCHW"),
    pointwise(28, 32, 64, layout="NCHW", n=2),
    pointwise(28, 32, 64, stride=(2, 2)),
    pointwise(28, 32, 64, groups=2),
    pointwise(28, 32, 64, padding=(1, 1, 1, 1)),
    pointwise(28, 32, 64, dilation=(2, 2)),
    conv(28, 32, 64),
    gemm(28, 32, 64),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_what_the_schedule_is_decided_for(shape):
    assert as_scheduled(shape, VTA) == match(plain_operator(shape), may_swap=False).workload


def test_cpus_and_machines_that_fold_rows_take_convolutions():
    for hardware in (CPU, Hardware.load("wfold16")):
        assert all(as_scheduled(shape, hardware) == shape for shape in SHAPES)


def test_a_pointwise_convolution_is_generated_matched_and_scheduled_as_its_gemm():
    shape, larger = pointwise(14, 64, 64), pointwise(28, 64, 128)
    with ShapeDatabase("sqlite://") as db:
        report = db.generate(target=VTA, shapes=[shape], limit=2, candidates=2, threshold=None)
        assert report.initial == 1 and report.failed == ()
        hit = db.match(shape, target=VTA)
        assert hit.step == 1 and hit.entry.workload == GemmWorkload(m=196, n=64, k=64, dtype="int8")
        assert hit.entry.cost == cycles(shape, hit.entry.config, VTA)
        hit = db.match(larger, target=VTA)
        assert hit.step == 3 and hit.longer == ("n", "m")
        assert (db.config_for(larger, VTA) is not None) == (hit.chosen == "entry")
        assert db.config_for(shape, VTA) == db.match(shape, target=VTA).choice.config == hit.entry.config
        scheduled = tiling_schedule(plain_operator(shape), target=VTA, configs=db).mod["main"]
        assert "database" in str(scheduled.attrs["tvm_tiling.decision"]).lower()
        assert [entry.workload for entry in db.nearest(larger, target=VTA, limit=1)] == [hit.entry.workload]


def test_a_gemm_measured_elsewhere_serves_the_convolution():
    shape = pointwise(14, 64, 64)
    with ShapeDatabase("sqlite://") as known, ShapeDatabase("sqlite://") as db:
        known.generate(target=VTA, shapes=[shape], limit=0, candidates=1, threshold=None)
        entry = known.match(shape, target=VTA).entry
        db.add(shape, entry.config, entry.cost, target=VTA)
        assert db.match(shape, target=VTA).entry.workload == entry.workload
