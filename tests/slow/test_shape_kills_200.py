"""Shape databases whose writers are killed 200 times."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "tuning"))

from kills import finish_generation, finish_tuning, kill_adders, kill_generation, kill_tuning

import tvm_tiling as tt
from tvm_tiling.tuning.shapes.trials import TrialLog

pytestmark = pytest.mark.slow

TUNED = tt.GemmWorkload(m=96, n=96, k=96)
SESSION = """
import sys
import tvm_tiling as tt
workload, told = tt.GemmWorkload(m=96, n=96, k=96), lambda _: print("trial", flush=True)
print("started", flush=True)
tt.tune(workload, database=sys.argv[1], trials=int(sys.argv[2]), progress=told)
"""


def test_200_kills_lose_nothing(tmp_path):
    kill_adders(f"sqlite:///{tmp_path}/x.db", 100, seed=10)
    killed(tmp_path, 100, kill_generation, finish_generation)


def test_200_kills_of_tuning_lose_nothing(tmp_path):
    killed(tmp_path, 200, kill_tuning, finish_tuning)


def killed(folder, times, kill, finish):
    """Kill work on databases in `folder` this many times, at most 25 times on one, and let it finish."""
    left = times
    for number in range(times):
        url = f"sqlite:///{folder}/{number}.db"
        left -= max(1, kill(url, min(left, 25), seed=number))
        finish(url)
        if left <= 0:
            break
    assert left <= 0


def test_sessions_on_this_machine_that_are_killed_leave_nothing_but_their_trials(tmp_path):
    """Killed while it imports, builds or measures: the next process continues, and the last one leaves no file of
    any."""
    url, temporary, rng = str(tmp_path / "x.db"), tmp_path / "tmp", random.Random(4)
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with tt.ShapeDatabase(url):
        pass
    before: dict = {}
    for _ in range(8):
        words = [sys.executable, "-c", SESSION, url, "400"]
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as session:
            for _ in range(rng.choice([1, 1, 2, 4, 8])):
                assert session.stdout.readline()
            time.sleep(rng.uniform(0, 1.5))
            session.kill()
        with tt.ShapeDatabase(url) as db, TrialLog(db) as log:
            assert db.check().ok
            past = log.past(TUNED, tt.Hardware.detect())
        assert before.items() <= past.items()
        before = past
    assert before and list(temporary.iterdir())
    subprocess.run([sys.executable, "-c", SESSION, url, str(len(before) + 2)], env=environment, check=True)
    with tt.ShapeDatabase(url) as db, TrialLog(db) as log:
        assert len(log.past(TUNED, tt.Hardware.detect())) == len(before) + 2
    assert list(temporary.iterdir()) == []
