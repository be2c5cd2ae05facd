"""The log of a search: the record of each trial, the file as it grows, and reading it."""

from __future__ import annotations

import json
import zlib

import pytest
from shapes import CPU

import tvm_tiling as tt
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.tuning.measuring.measurer import Measured
from tvm_tiling.tuning.trial import FORMAT, TrialFile, read_trials
from tvm_tiling.tuning.tune import tune

WORKLOAD = tt.GemmWorkload(m=136, n=200, k=312)
SPACE = neighbourhood(WORKLOAD, CPU)


class Told:
    """Costs that cannot be predicted; every third one fails."""

    count = 0

    def measure(self, jobs):
        for job in jobs:
            self.count += 1
            number, failed = zlib.crc32(str(job.config).encode()), self.count % 3 == 0
            yield Measured(
                job=job,
                cost=None if failed else 1e-3 * (1 + number % 1009 / 300),
                reason="timed out after 60 s while building" if failed else None,
                seconds_spent=0.25,
                disturbed=0.125,
            )

    def close(self):
        pass


def search(**more):
    return tune(WORKLOAD, CPU, runner=Told(), progress=False, **{"trials": 12, **more})


def test_every_trial_is_reported_with_its_reason_and_the_best_so_far(tmp_path):
    heard = []
    report = search(log=heard.append)
    assert tuple(heard) == report.log and len(heard) == 12
    best = None
    for number, trial in enumerate(heard, start=1):
        if trial.cost is not None:
            best = min(trial.cost, best or trial.cost)
        assert (trial.number, trial.best, trial.unit) == (number, best, "s")
        assert (trial.cost is None) == (trial.reason == "timed out after 60 s while building")
        assert trial.predicted == SPACE.predicted(trial.config)
        assert (trial.seconds, trial.disturbed) == (0.25, 0.125)
    assert 0 < sum(trial.cost is None for trial in heard) == sum(count for _, count in report.failures)
    assert heard[0].operator == "gemm k=312 m=136 n=200 float32"


def test_the_file_has_every_trial_as_it_comes_and_goes_on(tmp_path):
    path = tmp_path / "trials.jsonl"
    seen = []

    class Looking(Told):
        def measure(self, jobs):
            for measured in super().measure(jobs):
                seen.append(len(path.read_text().splitlines()) - 1)
                yield measured

    database = tmp_path / "shapes.db"
    first = tune(WORKLOAD, CPU, runner=Looking(), progress=False, trials=5, log=str(path), database=database)
    assert seen == [0, 1, 2, 3, 4]
    assert tuple(read_trials(path)) == first.log
    second = search(log=path, trials=9, database=database)
    assert [trial.number for trial in second.log] == [6, 7, 8, 9]
    assert tuple(read_trials(path)) == first.log + second.log
    assert second.log[0].best <= first.log[-1].best
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {"format": FORMAT, "version": 1}
    assert set(lines[1]) >= {"number", "predicted", "cost", "best", "reason"}


def test_a_truncated_line_is_left_out_and_overwritten(tmp_path):
    path = tmp_path / "trials.jsonl"
    report = search(log=path, trials=4)
    whole = path.read_bytes()
    path.write_bytes(whole[:-25])
    assert tuple(read_trials(path)) == report.log[:3]
    again = search(log=path, trials=1)
    assert tuple(read_trials(path)) == report.log[:3] + again.log


@pytest.mark.parametrize("content", [b"\x7fELF\x01\x00\xff\xfe", b"some text\n", b'{"format": "other"}\n', b"\n"])
def test_a_file_of_something_else_is_left_alone(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(OSError, match="exists and is not a log of trials"):
        search(log=path)
    assert path.read_bytes() == content
    with pytest.raises(tt.DatabaseError, match="line 1: not a log of trials"):
        read_trials(path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json", "line 3: invalid trial"),
        ("[]", "line 3: invalid trial"),
        ("{}", "line 3: invalid trial"),
        (lambda record: {**record, "cost": "cheap"}, "line 3: invalid trial .*cost = 'cheap'"),
        (lambda record: {**record, "config": {"op": "sort"}}, "line 3: invalid trial .*op = 'sort'"),
        (lambda record: {**record, "more": 1}, "line 3: invalid trial"),
    ],
)
def test_what_is_not_a_trial_is_named(tmp_path, line, words):
    path = tmp_path / "trials.jsonl"
    search(log=path, trials=2)
    lines = path.read_text().splitlines()
    lines[2] = line if isinstance(line, str) else json.dumps(line(json.loads(lines[2])))
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(tt.DatabaseError, match=words):
        read_trials(path)


def test_a_newer_log_is_refused(tmp_path):
    path = tmp_path / "trials.jsonl"
    path.write_text(json.dumps({"format": FORMAT, "version": 2}) + "\n")
    with pytest.raises(tt.DatabaseError, match="format version 2, written by a newer tvm-tiling"):
        read_trials(path)


def test_a_folder_that_is_not_there_is_said_before_anything_is_measured(tmp_path):
    with pytest.raises(OSError, match="does not exist"):
        search(log=tmp_path / "no" / "trials.jsonl")


def test_a_log_by_itself(tmp_path):
    trial = search(trials=1).log[0]
    with TrialFile(tmp_path / "x.jsonl") as file:
        file(trial)
    assert read_trials(tmp_path / "x.jsonl") == [trial]
