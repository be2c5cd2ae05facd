"""8 threads, then 4 processes call one executable for 10 minutes: correct results, no growth, and together at least
nine tenths of the throughput of one caller that uses all cores.

TVM_TILING_LOAD_SECONDS sets another duration.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))  # whose network is used here

from networks import Network, residual_network

import tvm_tiling as tt

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("calling.py")
SECONDS = float(os.environ.get("TVM_TILING_LOAD_SECONDS", "600"))
SERIAL_SECONDS = max(2.0, SECONDS / 20)
GROWTH = 8 << 20
LOSS = 0.1


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("load") / "model.tar"
    tt.compile(Network((1, 3, 129, 129)).module(residual_network), cache=False).save(path)
    return path


def called(model: Path, threads: int, seconds: float, processes: int = 1) -> float:
    """Return the total runs per second; every result is correct, and no process is larger at the end."""
    command = [sys.executable, PROGRAM, model, str(threads), str(seconds)]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    total = 0
    for process in started:
        out, errors = process.communicate()
        assert process.returncode == 0, errors[-3000:]
        runs, early, late = map(int, out.split())
        assert late - early <= GROWTH, (early, late)
        total += runs
    return total / seconds


@pytest.mark.parametrize(("threads", "processes"), [(8, 1), (1, 4)])
def test_many_callers(model, threads, processes):
    before = called(model, 1, SERIAL_SECONDS)
    together = called(model, threads, SECONDS, processes)
    alone = max(before, called(model, 1, SERIAL_SECONDS))
    print(f"{threads} threads, {processes} processes: {together:.0f} runs a second, alone {alone:.0f}")
    assert together >= (1 - LOSS) * alone
