"""MetaSchedule's trials in the log: each failure with its cause, time-outs of the default builder by name."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
import tvm
from tvm import s_tir, te
from tvm.s_tir import meta_schedule as ms

import tvm_tiling as tt
from tvm_tiling.tuning.metaschedule import local_builder
from tvm_tiling.tuning.metaschedule.operator_space import space_of
from tvm_tiling.tuning.metaschedule.rules import sample
from tvm_tiling.tuning.metaschedule.seeds import places
from tvm_tiling.tuning.metaschedule.trial_log import cause
from tvm_tiling.tuning.trial import read_trials

CPU = tt.Hardware.detect()


def product(m=40, k=72, n=56):
    a, b, r = te.placeholder((m, k)), te.placeholder((k, n)), te.reduce_axis((0, k))
    return te.create_prim_func([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r))])


FUNC = product()
SPACE = space_of(FUNC, CPU)


def candidates(count: int):
    """Schedules of the first configurations, followed by one that no rule of this package has made."""
    found = []
    for config in list(SPACE.configs(count)):
        schedule = s_tir.Schedule(FUNC)
        sample(schedule, SPACE, picks=places(SPACE, config))
        found.append(SimpleNamespace(sch=schedule))
    return [*found, SimpleNamespace(sch=s_tir.Schedule(FUNC))]


def results(*given):
    """Results of builder and runner for seconds, a builder's error or a runner's ("run: ...")."""
    built, ran = [], []
    for own in given:
        seconds, error = (own, None) if isinstance(own, list) else (None, own)
        of_run = error is not None and error.startswith("run: ")
        built.append(ms.builder.BuilderResult(None if error else "x", None if of_run else error))
        ran.append(ms.runner.RunnerResult(seconds, error.removeprefix("run: ") if error else None))
    return built, ran


def rounds(log, *given):
    """A log after several rounds of one task."""
    scheduler = SimpleNamespace(tasks_=[SimpleNamespace(ctx=SimpleNamespace(task_name="fused_dense"))])
    callback = tt.trial_log(log)._inst  # what TVM calls; TVM's own schedulers cannot be used without its data
    for own in given:
        callback.apply(scheduler, 0, candidates(len(own) - 1), *results(*own))


TIMEOUT = "LocalBuilder: Timeout, killed after 30.0 seconds"
RAISED = (
    'LocalBuilder: An exception occurred\nTraceback (most recent call last):\n  File "x.py"\nTVMError: no such loop'
)


def test_each_trial_is_reported_with_its_cause(tmp_path, caplog):
    path = tmp_path / "trials.jsonl"
    with caplog.at_level(logging.WARNING):
        rounds(
            path, ([4e-3, 2e-3], TIMEOUT, [5e-3]), ([1e-3], RAISED, "run: LocalRunner: Timeout, killed after 2 seconds")
        )
    trials = read_trials(path)
    assert [trial.number for trial in trials] == [1, 2, 3, 4, 5, 6]
    assert {trial.operator for trial in trials} == {"fused_dense"}
    assert [trial.cost for trial in trials] == pytest.approx([3e-3, None, 5e-3, 1e-3, None, None])
    assert [trial.best for trial in trials] == pytest.approx([3e-3, 3e-3, 3e-3, 1e-3, 1e-3, 1e-3])
    first, second = list(SPACE.configs(2))
    assert [trial.config for trial in trials[:3]] == [first, second, None]
    assert [trial.predicted for trial in trials[:3]] == [SPACE.predicted(first), SPACE.predicted(second), None]
    assert trials[1].reason.startswith("timed out after 30 s while building; each process of TVM's LocalBuilder")
    assert "tt.local_builder()" in trials[1].reason
    assert [trial.reason for trial in trials[4:]] == ["TVMError: no such loop", "timed out after 2 s while running"]
    first, second = (record.getMessage() for record in caplog.records if "trials failed" in record.getMessage())
    assert first.startswith("fused_dense: 1 of 3 trials failed, once: timed out after 30 s while building")
    assert second.startswith("fused_dense: 2 of 3 trials failed, ") and "TVMError: no such loop" in second


def test_rounds_without_failures_say_nothing(caplog):
    heard = []
    with caplog.at_level(logging.WARNING):
        rounds(heard.append, ([1e-3],))
    assert len(heard) == 1 and heard[0].reason is None and not caplog.records


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, "not measured, no reason was given"),
        ("", "not measured, no reason was given"),
        ("LocalRunner: An exception occurred\nProcessError: gone", "ProcessError: gone"),
        ("timed out after 60 s while building", "timed out after 60 s while building"),
        ("RPCRunner: An exception occurred\n  first\n\n  last  \n", "last"),
    ],
)
def test_causes_are_one_sentence(error, said):
    assert cause(error) == said


class Slow:
    """TVM's LocalBuilder, some of whose builds time out."""

    def __init__(self, **options):
        self.options = options

    def build(self, inputs):
        late = f"LocalBuilder: Timeout, killed after {self.options['timeout_sec']} seconds"
        return [ms.builder.BuilderResult("path", None), ms.builder.BuilderResult(None, late)][: len(inputs)]


def test_time_outs_of_the_builder_here_are_not_those_of_intrinsics(monkeypatch):
    monkeypatch.setattr(local_builder, "LocalBuilder", Slow)
    given = ms.builder.BuilderInput(tvm.IRModule({"main": FUNC}), tt.llvm_target())
    kept, late = tt.local_builder(timeout_sec=7.5).build([given, given])
    assert (str(kept.artifact_path), kept.error_msg) == ("path", None)
    assert cause(late.error_msg) == "timed out after 7.5 s while building"
