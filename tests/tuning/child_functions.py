"""Tasks of child processes in test_child.py and test_local.py: programs that end in every possible way."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tvm_tiling.tuning.measuring.measurer import Build, Request, Subject
from tvm_tiling.tuning.measuring.paired_benchmark import Alone, PairedResult

SECONDS = 1e-3  # of a call of the program named "good"


def echo(message: object) -> object:
    print("printed, not answered")
    return message


def threads(count: int) -> int:
    from tvm_tiling.runtime.launcher import use_all_cores

    return use_all_cores(count)


def do(deed: str) -> str:
    if deed == "raise":
        raise ValueError("first line\nno such tile")
    if deed == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if deed == "abort":
        os.abort()
    if deed == "exit":
        os.write(2, b"out of memory\n")
        os._exit(3)
    if deed == "hang":
        time.sleep(600)
    return f"{deed} in {os.getpid()}"


def build(message: tuple[object, str]) -> Build:
    job, folder = message
    deed = str(job.config.choice("building"))
    if deed != "good":
        do(deed)
    path = Path(folder) / "cut"
    path.write_text(f"{job.config.choice('running')} {job.config.choice('percent')}")
    return Build(str(path))


def run(request: Subject) -> Alone | PairedResult | None:
    """A paired benchmark without a clock: programs take the time stated in their files."""
    if not isinstance(request, Request):
        return None
    deed, percent = Path(request.candidate.path).read_text().split()
    if deed != "good":
        do(deed)
    if request.incumbent is None:
        return Alone(seconds=SECONDS * int(percent) / 100, uncertainty=0.01)
    other = Path(request.incumbent.path).read_text().split()[1]
    return PairedResult(
        ratio=int(other) / int(percent), uncertainty=0.01, seconds=SECONDS * int(percent) / 100, pairs=15
    )
