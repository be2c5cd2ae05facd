"""Independent runs that share the cores, or run sequentially."""

from __future__ import annotations

import os
import sys
import threading

import numpy as np
import pytest
import tvm_ffi
from tvm import relax
from tvm.support import cc

import tvm_tiling as tt
from tvm_tiling.model import run_many as sharing
from tvm_tiling.runtime.execution_policy import AGAIN, LEAST, TIMED, ExecutionPolicy, next_way, note_concurrent

native = pytest.mark.skipif(
    cc.get_cc() is None or not sys.platform.startswith("linux"), reason="needs a C compiler and Linux"
)


@pytest.fixture(params=[True, False], ids=["concurrent", "sequential"])
def way(request, monkeypatch):
    """Runs use one way, and the other."""
    monkeypatch.setattr(sharing, "next_way", lambda policies: (request.param, True))
    return "concurrent" if request.param else "sequential"


@pytest.fixture
def concurrent(monkeypatch):
    monkeypatch.setattr(sharing, "next_way", lambda policies: (True, False))


def product(columns, seed):
    """Return a model that multiplies by a constant and adds another input, and the constant."""
    weights = np.random.default_rng(seed).normal(size=(64, columns)).astype("float32")
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((48, 64), "float32"))
    y = relax.Var("y", relax.TensorType((48, columns), "float32"))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(relax.op.matmul(x, relax.const(weights))) + y)
        builder.emit_func_output(out)
    return tt.compile(builder.finalize(), cache=False), weights


def function_of_python(function):
    """A model with one call of a Python function; it returns the function's result and its own input."""
    name = f"tvm_tiling_test.{function.__name__}"
    tvm_ffi.register_global_func(name, function, override=True)
    builder, kind = relax.BlockBuilder(), relax.TensorType((4,), "float32")
    x = relax.Var("x", kind)
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit(relax.op.call_dps_packed(name, [x], kind))
            outputs = builder.emit_output(relax.Tuple([made, x]))
        builder.emit_func_output(outputs)
    return tt.compile(builder.finalize(), cache=False)


@pytest.fixture(scope="module")
def models():
    return [product(columns, columns) for columns in (32, 96)]


def test_results_come_in_the_order_of_the_runs(models, way):
    rng = np.random.default_rng(0)
    runs, wanted = [], []
    for exe, _ in models:
        exe.policy = ExecutionPolicy()
        for _ in range(LEAST if way == "concurrent" else 0):
            exe.policy.sequential.add(1.0)
    for turn in range(7):
        exe, weights = models[turn % 2]
        x, y = (rng.normal(size=shape).astype("float32") for shape in ((48, 64), (48, weights.shape[1])))
        runs.append((exe, {"y": y, "x": x} if turn % 3 else (x, y)))
        wanted.append(x @ weights + y)
    for _ in range(LEAST):
        for found, value in zip(tt.run_many(runs), wanted, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-4)
    assert tt.run_many([]) == []
    np.testing.assert_allclose(tt.run_many(runs[:1])[0], wanted[0], rtol=1e-4, atol=1e-4)
    if models[0][0].variants[0].launched:
        assert all(getattr(exe.policy, way).known for exe, _ in models)


@native
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_as_many_runs_are_under_way_as_there_are_cores_and_one_is_the_callers(concurrent):
    threads, meeting = set(), threading.Barrier(2, timeout=30)

    def negative(x, out):
        threads.add(threading.get_ident())
        meeting.wait()
        out.copyfrom(-x.numpy())

    exe = function_of_python(negative)
    exe.cores = 2
    results = tt.run_many([(exe, np.full(4, value, "float32")) for value in range(6)])
    assert [out[0] for out, _ in results] == [-0.0, -1, -2, -3, -4, -5]
    assert [given[0] for _, given in results] == list(range(6))  # an input that is an output belongs to each run
    assert len(threads) == 2 and threading.get_ident() in threads


def test_the_error_of_a_run_is_raised(way):
    def root(x, out):
        if x.numpy().min() < 0:
            raise ValueError("a negative number has no root")
        out.copyfrom(np.sqrt(x.numpy()))

    exe = function_of_python(root)
    values = [np.full(4, value, "float32") for value in (4, 9, -1, 16)]
    with pytest.raises(ValueError, match="a negative number has no root"):
        tt.run_many([(exe, value) for value in values])
    results = tt.run_many([(exe, value) for value in values if value.min() > 0])
    assert [out[0] for out, _ in results] == [2, 3, 4]


def test_wrong_inputs_and_what_is_not_a_run_are_refused(models, way):
    exe, _ = models[0]
    x, y = np.zeros((48, 64), "float32"), np.zeros((48, 32), "float32")
    with pytest.raises(tt.WorkloadError, match="missing"):
        tt.run_many([(exe, (x, y)), (exe, x), (exe, (x, y))])
    for wrong in (exe, (exe,), (3, x), (exe, x, y)):
        with pytest.raises(tt.WorkloadError, match=r"run_many: run 2 is not a pair; expected \(executable, inputs\)"):
            tt.run_many([(exe, (x, y)), wrong])
    assert tt.run_many([(exe, (x, y))] * 3)[2].shape == (48, 32)


def test_several_callers_at_once(models, way):
    exe, weights = models[0]
    x, y = np.ones((48, 64), "float32"), np.ones((48, 32), "float32")
    wrong = []

    def caller():
        for _ in range(20):
            for found in tt.run_many([(exe, (x, y))] * 4):
                if not np.allclose(found, x @ weights + y, rtol=1e-4, atol=1e-4):
                    wrong.append(found)

    callers = [threading.Thread(target=caller) for _ in range(3)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_has_threads_of_its_own(models, concurrent):
    runs = [(exe, (np.ones((48, 64), "float32"), np.ones((48, w.shape[1]), "float32"))) for exe, w in models]
    want = tt.run_many(runs)
    child = os.fork()
    if child == 0:
        found = tt.run_many(runs)
        os._exit(0 if all(map(np.array_equal, found, want)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("faster", ["concurrent", "sequential"])
def test_both_ways_are_tried_and_the_faster_one_stays(faster):
    small, large = ExecutionPolicy(), ExecutionPolicy()
    runs, chosen, timed = {small: 2, large: 1}, [], []
    for _ in range(2 * LEAST + 4 * AGAIN):
        is_concurrent, is_timed = next_way(runs)
        chosen.append(is_concurrent), timed.append(is_timed)
        if is_concurrent:
            note_concurrent(runs, 3.0 if faster == "concurrent" else 5.0)
        elif is_timed:
            small.sequential.add(1.0), small.sequential.add(1.0), large.sequential.add(2.0)
    assert set(chosen[: 2 * LEAST]) == {True, False}
    assert large.concurrent.usual == pytest.approx(2 * small.concurrent.usual)
    rest = chosen[2 * LEAST :]
    assert rest.count(faster == "concurrent") == len(rest) - 4
    assert all(timed[: 2 * LEAST]) and timed[2 * LEAST :].count(True) == 4 * AGAIN // TIMED
