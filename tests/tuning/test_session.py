"""tune() of one operator: what is measured, stored, resumed and reported, with a measurer that returns given
figures."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.tuning.measuring.measurer import Job, Measured
from tvm_tiling.tuning.measuring.runner import RunnerError
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.tune import tune

HARDWARE = tt.Hardware.detect()
WORKLOAD = tt.GemmWorkload(m=256, n=512, k=512)


class Told:
    """A measurer without a machine: configurations have the cost `cost`, None fails; Ctrl-C after `until` jobs."""

    def __init__(self, cost, until: int | None = None) -> None:
        self.cost, self.until = cost, until
        self.jobs: list[Job] = []

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        for job in jobs:
            if self.until is not None and len(self.jobs) >= self.until:
                raise KeyboardInterrupt
            self.jobs.append(job)
            cost = self.cost(job.config)
            yield Measured(job=job, cost=cost, reason="ValueError: no" if cost is None else None, seconds_spent=0.1)

    def close(self) -> None:
        raise AssertionError("whoever made it closes it")


def by_text(config) -> float | None:
    """Costs that cannot be predicted, the same in every run; one in nine fails."""
    number = zlib.crc32(str(config).encode())
    return None if number % 9 == 0 else 1e-3 * (1 + number % 1009 / 300)


@pytest.fixture
def database(tmp_path):
    with ShapeDatabase(f"sqlite:///{tmp_path / 'shapes.db'}") as opened:
        yield opened


def test_the_best_config_is_reported_and_serves_from_then_on(database):
    told = Told(by_text)
    report = tune(WORKLOAD, database=database, trials=40, runner=told, progress=False)
    costs = {job.config: by_text(job.config) for job in told.jobs}
    least = min(cost for cost in costs.values() if cost is not None)
    assert report.cost_after == pytest.approx(least) and costs[report.best] == least  # several may cost as much
    assert told.jobs[0].config == neighbourhood(WORKLOAD, HARDWARE).start
    assert report.cost_before == by_text(told.jobs[0].config)
    assert report.trials == len(told.jobs) == len(costs) <= 40
    assert dict(report.failures).get("ValueError: no", 0) == sum(cost is None for cost in costs.values())
    hit = database.match(WORKLOAD, target=HARDWARE)
    assert (hit.step, hit.entry.config, hit.entry.cost) == (1, report.best, report.cost_after)
    assert f"speedup {report.gain:.2f}" in str(report)
    assert report.to_dict()["best"] == report.best.to_dict()


def test_ctrl_c_keeps_everything_and_the_next_session_goes_on(database):
    first, second = Told(by_text, until=11), Told(by_text)
    report = tune(WORKLOAD, database=database, trials=24, runner=first, progress=False)
    assert (report.stopped, report.trials) == ("interrupted", 11)
    assert database.match(WORKLOAD, target=HARDWARE).entry.config == report.best
    again = tune(WORKLOAD, database=database, trials=24, runner=second, progress=False)
    assert (again.earlier, again.trials) == (11, 13)
    start = first.jobs[0].config
    known = list(dict.fromkeys([report.best, start]))  # measured again, for comparison with the new ones
    assert [job.config for job in second.jobs[: len(known)]] == known
    new = {job.config for job in second.jobs[len(known) :]}
    assert len(new) == 13
    assert not new & {job.config for job in first.jobs}
    third = Told(by_text)
    assert tune(WORKLOAD, database=database, trials=24, runner=third, progress=False).stopped == "24 trials done"
    assert third.jobs == []


def test_a_session_without_resume_starts_from_the_beginning(database):
    tune(WORKLOAD, database=database, trials=5, runner=Told(by_text), progress=False)
    told = Told(by_text)
    report = tune(WORKLOAD, database=database, trials=5, runner=told, progress=False, resume=False)
    assert (report.earlier, report.trials, len(told.jobs)) == (0, 5, 5)


def test_what_failed_without_exception_is_measured_again(database):
    tune(WORKLOAD, database=database, trials=3, runner=Told(lambda config: None), progress=False)
    again = Told(by_text)
    report = tune(WORKLOAD, database=database, trials=3, runner=again, progress=False)
    assert (report.earlier, report.trials, len(again.jobs)) == (0, 3, 3)


def test_configs_of_matched_and_near_entries_are_measured_first(database):
    space = neighbourhood(WORKLOAD, HARDWARE)
    matched, near = list(space.configs(30))[-2:]
    database.add(tt.GemmWorkload(m=128, n=256, k=512), matched, 1e-3, target=HARDWARE)
    database.add(tt.GemmWorkload(m=250, n=500, k=500), near, 1e-3, target=HARDWARE)
    told = Told(by_text)
    tune(WORKLOAD, database=database, trials=3, runner=told, progress=False)
    assert [job.config for job in told.jobs] == [space.start, matched, near]
    told = Told(by_text)
    tune(WORKLOAD, database=database, trials=3, runner=told, progress=False, resume=False, seeded=False)
    assert matched not in [job.config for job in told.jobs]


def test_progress_is_reported_for_every_trial(database):
    told, seen = Told(by_text), []
    tune(WORKLOAD, database=database, trials=12, runner=told, progress=seen.append)
    assert [progress.done for progress in seen] == list(range(1, 13))
    bests = [progress.best for progress in seen]
    assert bests == sorted(bests, reverse=True)
    assert seen[-1].best == min(cost for job in told.jobs if (cost := by_text(job.config)) is not None)


def test_an_operator_that_cannot_be_measured_at_all_is_reported(database):
    report = tune(WORKLOAD, database=database, trials=6, runner=Told(lambda config: None), progress=False)
    assert (report.best, report.cost_before, report.cost_after, report.gain) == (None, None, None, None)
    assert report.failures == (("ValueError: no", 6),)
    assert "not measured" in str(report)
    assert database.match(WORKLOAD, target=HARDWARE) is None


def test_without_a_database_the_report_is_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tune(WORKLOAD, trials=3, runner=Told(by_text), progress=False).trials == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"trials": 0}, tt.WorkloadError, "trials = 0; expected a whole number of at least 1"),
        ({"batch": 4}, tt.WorkloadError, "batch: accepted for a model only"),
        ({"runner": "rpc://nowhere"}, RunnerError, "expected 'local', or 'rpc://host:port/key'"),
        ({"runner": "rpc://here:70000/key"}, RunnerError, "expected 'local', or 'rpc://host:port/key'"),
        ({"target": "cuda"}, tt.HardwareError, "target 'cuda' is not supported"),
        ({"database": "sqlite:////nowhere/at/all.db"}, tt.DatabaseError, "nowhere"),
    ],
)
def test_bad_input_is_said_in_one_sentence(change, error, words):
    with pytest.raises(error, match=words):
        tune(WORKLOAD, **{"trials": 3, "progress": False, **change})


def test_a_gemm_is_tuned_on_this_machine(database):
    """A short complete run: built, checked, measured and stored."""
    report = tune(tt.GemmWorkload(m=64, n=64, k=64), database=database, trials=3, progress=False)
    assert (report.trials, report.failures) == (3, ())
    assert 0 < report.cost_after <= report.cost_before < 1
