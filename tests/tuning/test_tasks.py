"""tune() of a model: its operators as tasks, trials allocated by expected gain, results that compile uses."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from tvm import relax, te

import tvm_tiling as tt
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.decide.epilogue import said
from tvm_tiling.frontend import load_model
from tvm_tiling.model.pipeline import decided
from tvm_tiling.schedule import Options
from tvm_tiling.tuning.measuring.measurer import Job, Measured
from tvm_tiling.tuning.outcome import ModelTuneReport
from tvm_tiling.tuning.search import Formulas
from tvm_tiling.tuning.tasks import tasks_of
from tvm_tiling.tuning.tune import tune

HARDWARE = tt.Hardware.detect()


def network():
    """Two equal matrix multiplications of 96 columns, a large one, and a small one."""
    generator = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 96), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for columns, rows in ((96, 96), (96, 96), (768, 96), (24, 768)):
                weights = relax.const(generator.uniform(-0.1, 0.1, (rows, columns)).astype("float32"))
                y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(y, weights))))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.finalize()


class Told:
    """A measurer that returns predictions, tripled for GEMMs of `slow` columns, minus a part that cannot be
    predicted."""

    def __init__(self, slow: int = 0, until: int | None = None) -> None:
        self.slow, self.until = slow, until
        self.jobs: list[Job] = []

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        for job in jobs:
            if self.until is not None and len(self.jobs) >= self.until:
                raise KeyboardInterrupt
            self.jobs.append(job)
            cost = neighbourhood(job.workload, HARDWARE, prepacked=job.prepacked).predicted(job.config)
            if job.workload.n == self.slow:
                cost *= 3 - zlib.crc32(str(job.config).encode()) % 1000 / 800
            yield Measured(job=job, cost=cost)

    def close(self) -> None:
        raise AssertionError("whoever made it closes it")


def test_equal_operators_are_one_task_and_the_longest_comes_first():
    tasks = tasks_of(network(), HARDWARE, {})
    assert {(task.workload.n, task.calls, task.prepacked) for task in tasks} == {
        (768, 1, True),
        (24, 1, True),
        (96, 2, True),
    }
    assert tasks[0].workload.n == 768


class Asked:
    """A database without configurations that records its queries."""

    def __init__(self) -> None:
        self.subjects: set = set()

    def config_for(self, workload, hardware, prepacked=False, epilogue=""):
        self.subjects.add((workload, prepacked, said(epilogue)))


def columns():
    """Matrix-vector multiplications: with constant weights, of inputs, and of a row and a column."""
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in (("x", (64, 96)), ("y", (96, 1))))
    weights = relax.const(np.ones((96, 1), "float32"))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            first = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, weights))))
            second = builder.emit(relax.op.matmul(x, y))
            third = builder.emit(relax.op.matmul(relax.const(np.ones((1, 96), "float32")), weights))
            out = builder.emit_output(relax.Tuple([first, second, third]))
        builder.emit_func_output(out)
    return builder.finalize()


@pytest.mark.parametrize("model", [network, columns])
def test_tasks_are_what_compile_asks_for(model):
    asked = Asked()
    decided(load_model(model()).module, HARDWARE, Options(configs=asked))
    tasks = {(task.workload, task.prepacked, task.epilogue) for task in tasks_of(model(), HARDWARE, {})}
    # A row times a column is a reduction, which has no tiling.
    assert tasks == {subject for subject in asked.subjects if max(subject[0].m, subject[0].n) > 1}


def test_an_operator_is_tuned_as_it_is_asked_for():
    a, b = te.placeholder((64, 96), "float32"), te.placeholder((96, 1), "float32")
    k = te.reduce_axis((0, 96))
    c = te.compute((64, 1), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))
    asked = Asked()
    tt.tiling_schedule(c, configs=asked)
    for op in (c, tt.GemmWorkload(m=64, n=1, k=96)):
        told = Told()
        report = tune(op, trials=2, runner=told, progress=False)
        assert {(job.workload, job.prepacked, job.epilogue) for job in told.jobs} == asked.subjects
        assert asked.subjects == {(report.workload, False, "")}


def test_trials_go_where_predictions_are_off():
    told = Told(slow=768)
    report = tune(network(), trials=40, runner=told, progress=False, cost_model=Formulas())
    assert isinstance(report, ModelTuneReport)
    spent = Counter(job.workload.n for job in told.jobs)
    assert spent[768] > 2 * max(spent[96], spent[24])
    assert report.cost_after < report.cost_before
    assert report.trials == len(told.jobs) <= 40


def test_where_predictions_hold_it_ends_soon():
    told = Told()
    report = tune(network(), trials=200, runner=told, progress=False)
    assert len(told.jobs) < 100
    assert report.stopped.startswith(("no remaining operator", "every search"))
    assert "all calls" in str(report)
    assert report.to_dict()["tasks"][0]["calls"] >= 1


def test_ctrl_c_keeps_what_was_measured_and_the_next_session_goes_on(tmp_path):
    url = str(tmp_path / "shapes.db")
    first = tune(network(), database=url, trials=30, runner=Told(slow=768, until=9), progress=False)
    assert (first.stopped, first.trials) == ("interrupted", 9)
    told = Told(slow=768)
    second = tune(network(), database=url, trials=30, runner=told, progress=False)
    assert second.trials <= 21
    assert sum(task.report.earlier for task in second.tasks) == 9


def test_what_was_found_is_what_compile_takes(tmp_path):
    url = str(tmp_path / "shapes.db")
    mod = network()
    report = tune(mod, database=url, trials=40, runner=Told(slow=768), progress=False)
    best = {task.report.workload.n: task.report.best for task in report.tasks}
    assert best[768] != neighbourhood(report.tasks[0].report.workload, HARDWARE, prepacked=True).start
    x = np.random.default_rng(1).uniform(-1, 1, (64, 96)).astype("float32")
    with tt.ShapeDatabase(url) as database:
        tuned = tt.compile(mod, database=database, cache=False)
    plain = tt.compile(mod, cache=False)
    np.testing.assert_allclose(tuned.run(x), plain.run(x), rtol=1e-4, atol=1e-5)
    assert [(o.calls, "from the database" in str(o.decision)) for o in tuned.operators] == [
        (2, True),
        (1, True),
        (1, True),
    ]
    assert not any("from the database" in str(operator.decision) for operator in plain.operators)
    large = next(operator for operator in tuned.operators if operator.name.startswith(report.tasks[0].name))
    rows, vectors = best[768].choice("microkernel")
    assert (large.decision["mr"], large.decision["nr"]) == (rows, vectors * large.decision["lanes"])


def test_a_model_on_an_accelerator_is_tuned_by_cycles(tmp_path):
    x = np.random.default_rng(2).uniform(-1, 1, (64, 96)).astype("float32")
    model, asked = {"target": "vsim/vta", "calibration": [x]}, Asked()
    plain = tt.compile(network(), **model, database=asked)
    with tt.ShapeDatabase(tmp_path / "shapes.db") as database:
        report = tune(network(), **model, database=database, trials=20, progress=False)
        tuned = tt.compile(network(), **model, database=database)
    assert {(task.report.workload, False, "") for task in report.tasks} == asked.subjects
    assert [task.calls for task in sorted(report.tasks, key=lambda task: task.report.workload.n)] == [1, 2, 1]
    for task in report.tasks:
        assert task.report.unit == "cycles" and task.report.workload.dtype == "int8"
        assert task.report.cost_after <= task.report.cost_before
    decisions = [str(region.decision) for region in tuned.program.regions]
    assert sum("from the database" in decision for decision in decisions) == 4
    assert np.array_equal(tuned.run(x), plain.run(x))


def test_what_cannot_be_tuned_is_said():
    with pytest.raises(tt.HardwareError, match="use calibration="):
        tune(network(), target="vsim/vta", trials=3, progress=False)
    with pytest.raises(tt.HardwareError, match=r"calibration: .* is a CPU"):
        tune(network(), calibration=[np.zeros((64, 96), "float32")], trials=3, progress=False)
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(out)
    with pytest.raises(tt.UnsupportedOperator, match="nothing to tune"):
        tune(builder.finalize(), trials=3, progress=False)
