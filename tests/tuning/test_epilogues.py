"""Epilogues of an operator: named, generated from their names, tuned with it, and part of a query."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, te

import tvm_tiling as tt
from tvm_tiling.accel.plain_operator import plain_operator
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.decide.epilogue import steps_of
from tvm_tiling.match import epilogue_of, match
from tvm_tiling.tuning.measuring.measurer import Job, Measured
from tvm_tiling.tuning.search import Formulas
from tvm_tiling.tuning.tasks import tasks_of
from tvm_tiling.tuning.tune import tune

HARDWARE = tt.Hardware.detect()
WORKLOADS = [
    tt.GemmWorkload(m=5, n=7, k=9),
    tt.GemmWorkload(m=5, n=7, k=9, batch=2),
    tt.GemmWorkload(m=5, n=7, k=9, dtype="int8"),
    tt.ConvWorkload(n=2, h=9, w=8, ci=4, co=6, kh=3, kw=2),
    tt.ConvWorkload(n=1, h=9, w=8, ci=4, co=6, kh=1, kw=1, layout="NCHW"),
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@pytest.mark.parametrize("epilogue", ["", "relu", "bias", "bias+relu", "bias+residual+relu", "relu+clip", "residual"])
def test_what_is_written_from_a_name_has_that_name(workload, epilogue):
    program = match(plain_operator(workload, epilogue), may_swap=False, keep_taps=True)
    assert program.workload == workload
    assert epilogue_of(program) == epilogue


def product_and(behind):
    a, b = te.placeholder((6, 8), "float32", name="a"), te.placeholder((8, 10), "float32", name="b")
    k = te.reduce_axis((0, 8))
    c = te.compute((6, 10), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    other = te.placeholder((6,), "float32", name="other")
    return te.create_prim_func([a, b, other, te.compute((6, 10), lambda i, j: behind(c[i, j], other, i, j), name="d")])


@pytest.mark.parametrize(
    "behind",
    [
        lambda x, other, i, j: x + other[i],
        lambda x, other, i, j: x * 2.0,
        lambda x, other, i, j: tvm.tirx.exp(x),
        lambda x, other, i, j: te.max(x, 0.5),
        lambda x, other, i, j: te.max(x, other[i]),
        lambda x, other, i, j: x + x,
        lambda x, other, i, j: (x + other[i]).astype("float16"),
    ],
)
def test_what_has_no_name_is_other(behind):
    assert epilogue_of(match(product_and(behind))) == "other"


def test_a_name_of_something_else_is_refused():
    for name in ("other", "bias+", "Bias", "gelu"):
        with pytest.raises(tt.UnsupportedOperator, match="expected a combination of bias, residual, relu, clip"):
            steps_of(name)


def network():
    """A convolution with a bias, one followed by a residual, and a GEMM whose epilogue has no name."""
    generator = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 16, 8, 8), "float32"))

    def weights(*shape):
        return relax.const(generator.uniform(-0.2, 0.2, shape).astype("float32"))

    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for residual in (False, True):
                y = builder.emit(relax.op.nn.conv2d(y, weights(16, 16, 3, 3), padding=1))
                y = builder.emit(relax.op.add(y, weights(1, 16, 1, 1)))
                y = builder.emit(relax.op.add(y, x)) if residual else y
                y = builder.emit(relax.op.nn.relu(y))
            flat = builder.emit(relax.op.reshape(y, (1, 1024)))
            out = builder.emit_output(relax.op.tanh(builder.emit(relax.op.matmul(flat, weights(1024, 10)))))
        builder.emit_func_output(out)
    return builder.finalize()


class Told:
    """A measurer for which the configuration of rank `rank` is the fastest for each operator, and which records its
    jobs."""

    def __init__(self, rank: int = 1) -> None:
        self.rank, self.jobs = rank, list[Job]()

    def measure(self, jobs):
        for job in jobs:
            self.jobs.append(job)
            ranked = list(neighbourhood(job.workload, HARDWARE, prepacked=job.prepacked).configs())
            yield Measured(job=job, cost=1e-4 if job.config == ranked[self.rank] else 1e-3)

    def close(self):
        pass


def test_operators_are_measured_with_their_epilogues():
    tasks = tasks_of(network(), HARDWARE, {})
    assert {task.epilogue for task in tasks} == {"bias+relu", "bias+residual+relu", ""}
    told = Told()
    tune(network(), trials=9, runner=told, progress=False)
    assert {job.epilogue for job in told.jobs} == {task.epilogue for task in tasks}


def test_a_config_is_kept_and_found_with_its_epilogue():
    workload = tt.GemmWorkload(m=64, n=96, k=128)
    op = plain_operator(workload, "bias+relu")
    with tt.ShapeDatabase("sqlite://") as db:
        report = tune(op, database=db, trials=6, runner=Told(), progress=False, cost_model=Formulas())
        best = list(neighbourhood(workload, HARDWARE).configs())[1]
        assert report.best == best
        hit = db.match(workload, target=HARDWARE, epilogue="bias+relu")
        assert (hit.step, hit.entry.config, hit.entry.epilogue) == (1, best, "bias+relu")
        assert db.match(workload, target=HARDWARE) is None
        assert db.config_for(workload, HARDWARE, epilogue="bias+relu") == best
        assert db.config_for(workload, HARDWARE, epilogue="bias") is None
        scheduled = tt.tiling_schedule(op, configs=db).mod["main"]
        assert "from the database" in str(scheduled.attrs["tvm_tiling.decision"])
        again = tune(op, database=db, trials=6, runner=Told(), progress=False)
        assert (again.earlier, again.trials) == (6, 0)


def test_what_was_measured_without_an_epilogue_serves_where_nothing_else_does():
    workload = tt.GemmWorkload(m=64, n=96, k=128)
    plain, behind = list(neighbourhood(workload, HARDWARE).configs())[1:3]
    with tt.ShapeDatabase("sqlite://") as db:
        db.add(workload, plain, 1e-3, target=HARDWARE)
        assert db.config_for(workload, HARDWARE, epilogue="bias") == plain
        db.add(workload, behind, 2e-3, target=HARDWARE, epilogue="bias")
        assert db.config_for(workload, HARDWARE, epilogue="bias") == behind
        assert db.config_for(workload, HARDWARE) == db.config_for(workload, HARDWARE, epilogue="other") == plain


def test_an_operator_with_its_epilogue_is_tuned_on_this_machine():
    """A short complete run: built, checked, measured."""
    op = plain_operator(tt.GemmWorkload(m=48, n=64, k=64), "bias+residual+relu")
    report = tune(op, trials=2, progress=False)
    assert (report.trials, report.failures) == (2, ())
