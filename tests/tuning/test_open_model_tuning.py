"""tune() of models with dynamic shapes, and how compile() uses the results."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_tiling as tt
from tvm_tiling.decide.configs.record import Config
from tvm_tiling.sizes import Range
from tvm_tiling.tuning.measuring.measurer import Measured
from tvm_tiling.tuning.measuring.paired_benchmark import PairedResult
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.tune import tune

RNG = np.random.default_rng(3)
WEIGHTS = [RNG.uniform(-1, 1, shape).astype("float32") for shape in ((48, 96), (96, 32))]
BIAS = RNG.uniform(-1, 1, 96).astype("float32")


def layers():
    """relu(x w0 + bias) w1 of any batch and length."""
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["first"]),
        helper.make_node("Add", ["first", "bias"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["positive"]),
        helper.make_node("MatMul", ["positive", "w1"], ["y"]),
    ]
    constants = {"w0": WEIGHTS[0], "w1": WEIGHTS[1], "bias": BIAS}
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 48])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", 32])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def speed(job) -> float:
    return 1.1 if job.config.choice("depth") * 2 == job.workload.k else 1.0


class Deeper:
    """A measurer without a machine: blocks of half of K are faster."""

    def __init__(self) -> None:
        self.asked: dict[tuple, set[Config]] = {}

    def over_rows(self, candidates, incumbent, sizes, thorough=False):
        for job in candidates:
            place = job.workload.n, job.workload.k, job.rows, job.prepacked, job.epilogue
            self.asked.setdefault(place, set()).add(job.config)
            gain = speed(job) / speed(incumbent)
            yield job, tuple(PairedResult(ratio=gain, uncertainty=0.01, seconds=1e-5 / gain, pairs=9) for _ in sizes)

    def measure(self, jobs):
        for job in jobs:
            yield Measured(job=job, cost=1e-5)

    def close(self):
        raise AssertionError("whoever made it closes it")


def right(exe) -> None:
    for batch, length in ((1, 1), (1, 7), (2, 33), (1, 64)):
        x = RNG.uniform(-1, 1, (batch, length, 48)).astype("float32")
        wanted = np.maximum(x @ WEIGHTS[0] + BIAS, 0) @ WEIGHTS[1]
        np.testing.assert_allclose(exe.run(x), wanted, rtol=1e-3, atol=1e-3)


@pytest.fixture
def tuned(tmp_path):
    with ShapeDatabase(tmp_path / "shapes.db") as database:
        measurer = Deeper()
        sizes = {"dims": {"length": (1, 64)}, "batch": (1, 4)}
        report = tune(layers(), database=database, trials=60, runner=measurer, progress=False, **sizes)
        yield database, measurer, report, sizes


def test_every_gemm_of_open_rows_is_a_task(tuned):
    _, measurer, report, _ = tuned
    assert set(measurer.asked) == {
        (96, 48, Range(1, 256), True, "bias+relu"),
        (32, 96, Range(1, 256), True, ""),
    }
    assert len(report.tasks) == 2 and all(task.report.rows == Range(1, 256) for task in report.tasks)
    assert report.cost_after < report.cost_before and "all calls" in str(report)
    json.dumps(report.to_dict())


def test_what_was_found_is_compiled_reported_and_right(tuned, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path / "cache"))
    database, _, report, sizes = tuned
    plain = tt.compile(layers(), **sizes)
    exe = tt.compile(layers(), database=database, **sizes)
    assert not exe.from_cache  # of the model compiled without the database
    products = [record for record in exe.operators if record.kind == "gemm"]
    assert len(products) == 2
    found = {task.report.workload.k: task.report.best for task in report.tasks if task.report.over_rows}
    assert found
    for record in products:
        if record.workload["k"] in found:
            assert record.decision["partition_k"] * 2 == record.workload["k"]
            assert "from the database: for 1..256 rows speedup 1.100" in record.why
    assert all("database" not in record.why for record in plain.operators)
    right(exe)
    assert tt.compile(layers(), database=database, **sizes).from_cache


def test_other_ranges_are_decided_by_formulas(tuned):
    database, _, _, _ = tuned
    exe = tt.compile(layers(), database=database, cache=False)
    assert all("database" not in record.why for record in exe.operators)
