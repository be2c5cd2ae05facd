"""The database on the simulated accelerator: positions of boundary shapes, machines with two to four levels,
estimates."""

from __future__ import annotations

import pytest
from shapes import VTA, conv, gemm
from simulated_shapes import cycles, errors_of_held_out, levels, share_within

from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.file import from_toml
from tvm_tiling.tuning.measuring.measurer import Job
from tvm_tiling.tuning.measuring.simulator import SimulatorMeasurer
from tvm_tiling.tuning.shapes.candidates import LIMITS, alignment, candidates, capacity, nesting, queue_depth
from tvm_tiling.tuning.shapes.database import ShapeDatabase

ENGINE = """
[near_tile]
buf_a = 65536
buf_b = 65536
acc_max = 65536
macs_per_cycle = 64
block_m = 4
block_n = 4
block_k = 4
partial_blocks = "padded"
[near_tile.bandwidth]
external = 64
[memories.external]
bytes_per_cycle = 64
latency = {latency}
"""
ROWS, CYCLES_OF_A_ROW = 1024, 256  # of a GEMM with 256 columns and 64 steps of k


def predicted_boundary(latency: int, tolerance: float) -> int:
    """Rows of the boundary shape along m: operands and results are each delayed by a latency, which does not shrink
    with the shape."""

    def cost(rows):
        return 2 * latency + CYCLES_OF_A_ROW * rows

    rows = ROWS
    while rows > 1:
        less = rows // 2
        steps = cost(rows) / cost(less) / 2
        all_of_it = cost(ROWS) / cost(less) / (ROWS / less)
        if min(steps, all_of_it) < 1 - tolerance:
            return rows
        rows = less
    return rows


@pytest.mark.parametrize(
    ("latency", "rows"),
    [
        (200, 32),
        pytest.param(700, 128, marks=pytest.mark.slow),
        pytest.param(2000, 256, marks=pytest.mark.slow),
        pytest.param(4000, 512, marks=pytest.mark.slow),
        (9000, 1024),
    ],
)
def test_boundary_shapes_are_where_the_pipelines_fill_says(latency, rows):
    hardware = from_toml(Hardware, ENGINE.format(latency=latency), "filling")
    with ShapeDatabase("sqlite://") as db:
        db.generate(target=hardware, shapes=[gemm(ROWS, 256, 64)], limit=3, candidates=1, threshold=None)
        along_m = [
            entry for _, entry in db.entries(kind="boundary") if (entry.workload.n, entry.workload.k) == (256, 64)
        ]
        assert db.check().ok
    assert predicted_boundary(latency, 0.05) == rows
    if rows == ROWS:
        assert along_m == []  # it holds at no step: no boundary shape
    else:
        (found,) = along_m
        assert (found.workload.m, found.workload.n, found.workload.k) == (rows, 256, 64)


@pytest.mark.parametrize(
    ("op", "count"),
    [
        ("gemm", 2),
        ("conv", 3),
        ("gemm", 4),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("conv", 2), ("gemm", 3), ("conv", 4))),
    ],
)
def test_generation_and_match_on_machines_of_several_levels(op, count):
    hardware = levels(count)
    assert len(hardware.levels) == count
    shape = gemm(128, 128, 128) if op == "gemm" else conv(28, 32, 64)
    with ShapeDatabase("sqlite://") as db:
        settings = {"limit": 2, "candidates": 1, "threshold": None, "tolerance": 0.3}
        report = db.generate(target=hardware, shapes=[shape], **settings)
        assert report.initial == 1 and db.check().ok
        hit = db.match(shape, target=hardware)
        assert hit.step == 1 and hit.entry.energy_pj > 0 and hit.entry.cost == cycles(shape, hit.entry.config, hardware)
        assert [blocks.level for blocks in hit.entry.config.levels] == [level.name for level in hardware.levels]
        larger = gemm(128, 512, 128) if op == "gemm" else conv(56, 32, 64)
        hit = db.match(larger, target=hardware)
        assert hit.step == 3 and hit.entry.workload == shape
        assert hit.estimate == pytest.approx(cycles(larger, hit.entry.config, hardware), rel=0.1)


@pytest.mark.slow
def test_estimates_of_held_out_multiples_are_within_five_percent():
    """A small version of the test of 200 shapes per operator in tests/slow."""
    with ShapeDatabase("sqlite://") as db:
        settings = {"limit": 10, "candidates": 1, "threshold": None, "tolerance": 0.04}
        db.generate(target=VTA, shapes=[gemm(896, 512, 576)], **settings)
        errors = errors_of_held_out(db, VTA, "gemm", 5)
    assert len(errors) == 5 and share_within(errors, 0.05) == 1


def test_the_simulator_measures_without_executing():
    shape, measurer = gemm(64, 64, 64), SimulatorMeasurer()
    config = candidates(shape, VTA, limit=1).configs[0]
    wrong = gemm(64, 64, 64, dtype="float32")
    jobs = [Job(workload=workload, config=config, hardware=VTA) for workload in (shape, wrong)]
    good, failed = measurer.measure(jobs)
    assert good.cost > 64**3 / 256 and good.energy_pj > 0 and good.spread == 0 and good.reason is None
    assert failed.cost is None and "vta" in failed.reason and "expected" in failed.reason
    measurer.close()


def test_candidates_keep_the_limits_of_the_levels():
    for count in (2, 3, 4):
        hardware, shape = levels(count), gemm(96, 128, 200)
        found = candidates(shape, hardware, limit=30)
        for config in found.configs[1:]:
            assert all(keeps(config, shape, hardware) for keeps in LIMITS.values())


def test_what_each_limit_refuses():
    hardware, shape = Hardware.load("dla3"), gemm(512, 512, 512)
    from tvm_tiling.decide.configs.config import Blocks, Config

    def config(*blocks):
        named = [
            Blocks(level=level.name, left=(m, k), right=(k, n), result=(m, n))
            for level, (m, n, k) in zip(hardware.levels, blocks, strict=True)
        ]
        return Config.of("gemm", "levels", {}, named)

    good = config((256, 256, 512), (128, 128, 512), (32, 32, 32))
    assert all(keeps(good, shape, hardware) for keeps in (capacity, alignment, nesting, queue_depth))
    assert not capacity(config((512, 512, 512), (512, 512, 512), (512, 32, 512)), shape, hardware)
    assert not alignment(config((256, 256, 512), (128, 128, 512), (24, 32, 32)), shape, hardware)
    assert not nesting(config((256, 256, 512), (96, 128, 512), (32, 32, 32)), shape, hardware)
    text = "\n".join([hardware.to_toml().replace('name = "dla3"', ""), "[queues]\ndepth = 4\n"])
    shallow = from_toml(Hardware, text, "shallow")
    assert not queue_depth(good, shape, shallow)
