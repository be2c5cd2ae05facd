"""Independent runs that share the cores."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from tvm import relax

import tvm_tiling as tt


def product(columns, seed):
    """A model that multiplies by a constant and adds another input, and the constant."""
    weights = np.random.default_rng(seed).normal(size=(64, columns)).astype("float32")
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((48, 64), "float32"))
    y = relax.Var("y", relax.TensorType((48, columns), "float32"))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(relax.op.matmul(x, relax.const(weights))) + y)
        builder.emit_func_output(out)
    return tt.compile(builder.finalize(), cache=False), weights


def test_results_come_in_the_order_of_the_runs():
    models = [product(columns, columns) for columns in (32, 96)]
    rng = np.random.default_rng(0)
    runs, wanted = [], []
    for turn in range(7):
        exe, weights = models[turn % 2]
        x, y = (rng.normal(size=shape).astype("float32") for shape in ((48, 64), (48, weights.shape[1])))
        runs.append((exe, {"y": y, "x": x} if turn % 3 else (x, y)))
        wanted.append(x @ weights + y)
    for _ in range(3):
        for found, value in zip(tt.run_many(runs), wanted, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-4)
    assert tt.run_many([]) == []
    np.testing.assert_allclose(tt.run_many(runs[:1])[0], wanted[0], rtol=1e-4, atol=1e-4)


class Recorder:
    """In the place of an executable: which threads run it, and at once how many."""

    cores = 2

    def __init__(self):
        self.threads, self.meeting = set(), threading.Barrier(2, timeout=30)

    def run(self, value):
        self.threads.add(threading.get_ident())
        self.meeting.wait()
        return -value


def test_as_many_runs_are_under_way_as_there_are_cores():
    recorder = Recorder()
    assert tt.run_many([(recorder, value) for value in range(6)]) == [0, -1, -2, -3, -4, -5]
    assert len(recorder.threads) == 2 and threading.get_ident() not in recorder.threads


def test_the_error_of_a_run_is_raised_and_what_is_no_run_refused():
    exe, _ = product(32, 1)
    x, y = np.zeros((48, 64), "float32"), np.zeros((48, 32), "float32")
    with pytest.raises(tt.WorkloadError, match="missing"):
        tt.run_many([(exe, (x, y)), (exe, x), (exe, (x, y))])
    for wrong in (exe, (exe,), (3, x), (exe, x, y)):
        with pytest.raises(tt.WorkloadError, match=r"run_many: run 2 is no pair; accepted: \(executable, inputs\)"):
            tt.run_many([(exe, (x, y)), wrong])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_has_threads_of_its_own():
    recorder = Recorder()
    tt.run_many([(recorder, 1), (recorder, 2)])
    child = os.fork()
    if child == 0:
        own = Recorder()
        os._exit(0 if tt.run_many([(own, 1), (own, 2)]) == [-1, -2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
