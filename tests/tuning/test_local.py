"""The measurer of this CPU: a failure costs one trial with its reason, the rest are measured, nothing is left
behind."""

from __future__ import annotations

import _thread
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from interrupts import ends_with, interrupted_at_each_call

import tvm_tiling as tt
from tvm_tiling.decide.configs.config import Config
from tvm_tiling.tuning.measuring import builders
from tvm_tiling.tuning.measuring.local import LocalBench, LocalMeasurer
from tvm_tiling.tuning.measuring.measurer import Job
from tvm_tiling.tuning.measuring.operands import Operands

HARDWARE = tt.Hardware.detect()


def job(percent: int = 100, running: str = "good", building: str = "good") -> Job:
    config = Config.of("gemm", "normal", {"percent": percent, "running": running, "building": building})
    return Job(workload=tt.GemmWorkload(m=8, n=8, k=8), config=config, hardware=HARDWARE)


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    return tmp_path


@pytest.fixture
def measurer(temporary):
    bench = LocalBench(
        builders=2, build_seconds=20, run_seconds=2, building="child_functions:build", timing="child_functions:run"
    )
    with LocalMeasurer(bench) as found:
        yield found


def test_every_kind_of_failure_is_one_trial_with_its_reason(measurer):
    jobs = [
        job(),
        job(running="segfault"),
        job(running="hang"),
        job(running="raise"),
        job(building="segfault"),
        job(building="raise"),
        job(percent=80),
    ]
    found = list(measurer.measure(jobs))
    assert [measured.job for measured in found] == jobs
    assert [measured.reason for measured in found] == [
        None,
        "killed by SIGSEGV while running",
        "timed out after 2 s while running",
        "ValueError: no such tile",
        "killed by SIGSEGV while building",
        "ValueError: no such tile",
        None,
    ]
    assert found[0].cost == pytest.approx(1e-3)
    assert found[-1].cost == pytest.approx(0.8e-3)


def test_costs_follow_the_chain_of_incumbents(measurer):
    percents = [100, 90, 120, 60, 61, 200]
    found = list(measurer.measure([job(percent) for percent in percents]))
    assert [round(measured.cost * 1e5) for measured in found] == percents


def test_closing_ends_builds_in_progress_and_those_that_wait(measurer, tmp_path):
    bench = measurer.bench
    jobs = [job(percent, building="hang") for percent in range(6)]
    waiting = threading.Thread(target=bench.prepare, args=(jobs,), daemon=True)
    waiting.start()
    until = time.monotonic() + 20
    while not all(child.pid for child in bench._builders._children) and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.1)
    start = time.monotonic()
    bench.close()
    waiting.join(5)
    assert time.monotonic() - start < 5 and not waiting.is_alive()
    assert bench._builders.submit(job(1), tmp_path).get() == "ended while building"


def test_ctrl_c_at_any_time_of_a_build_leaves_no_thread(monkeypatch):
    class Child:
        def __init__(self, *_):
            pass

        def ask(self, *_):
            return "built"

        def close(self):
            pass

    def used() -> None:
        made = builders.Builders(None, count=2)
        try:
            for result in [made.submit(None, None) for _ in range(3)]:
                assert result.get() == "built"
        finally:
            made.close()

    def check() -> None:
        assert ends_with(before)

    monkeypatch.setattr(builders, "Child", Child)
    before = _thread._count()
    assert interrupted_at_each_call(used, check) > 30


def test_builds_are_removed_and_nothing_else(measurer, temporary):
    (mine,) = [folder for folder in temporary.iterdir() if folder.name.startswith("tvm-tiling-")]
    (temporary / "not-ours").write_text("stays")
    list(measurer.measure([job(percent) for percent in (100, 90, 120, 80)]))
    assert [file.read_text() for file in mine.rglob("cut")] == ["good 80"]  # the incumbent
    measurer.close()
    assert [path.name for path in temporary.iterdir()] == ["not-ours"]


@pytest.mark.values
@pytest.mark.parametrize(
    "workload",
    [
        tt.GemmWorkload(m=5, n=7, k=9, batch=2, trans_a=True, trans_b=True),
        tt.GemmWorkload(m=5, n=7, k=900, dtype="int8"),
        tt.ConvWorkload(n=2, h=9, w=8, ci=4, co=6, kh=3, kw=2, stride=(2, 1), padding=(1, 0, 2, 1), groups=2),
        tt.ConvWorkload(n=1, h=9, w=8, ci=4, co=4, kh=3, kw=3, dilation=(2, 1), groups=4, layout="NCHW"),
    ],
)
@pytest.mark.parametrize("epilogue", ["", "bias+relu", "bias+residual+clip"])
def test_the_answer_is_that_of_the_operator_written_plainly(workload, epilogue):
    import tvm

    from tvm_tiling.accel.plain_operator import plain_operator

    operands = Operands.random(workload, epilogue)
    result = tvm.runtime.tensor(np.zeros(operands.result_shape, workload.acc_dtype))
    run = tvm.compile(plain_operator(workload, epilogue), target="llvm")
    run(*(tvm.runtime.tensor(array) for array in operands.arrays), result)
    assert operands.difference(result.numpy()) == ""
    wrong = result.numpy().copy()
    wrong.flat[3] += 1 if workload.dtype == "int8" else 0.1
    assert operands.difference(wrong).startswith("wrong result: differs by")
    wrong.flat[3] = 0 if workload.dtype == "int8" else np.nan
    assert operands.difference(wrong)
