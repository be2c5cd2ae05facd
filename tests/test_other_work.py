"""Processor time of other processes: calculated by hand from /proc/stat text, and measured for a busy process."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tvm_tiling.other_work import BUSY, OtherWork, busy_ticks, doubt
from tvm_tiling.runtime.threads import usable_processors

STAT = """cpu  100 0 0 0 0 0 0 0 0 0
cpu0 10 2 3 1000 50 1 4 5 7 0
cpu1 20 0 0 900 0 0 0 0 20 0
cpu11 7 0 0 900 0 0 0 0 0 0
intr 5 5
"""


def test_ticks_of_the_processors_that_a_process_may_use():
    assert (
        busy_ticks(STAT, (0,)) == 10 + 2 + 3 + 1 + 4 + 5
    )  # neither idle nor waiting for a disk; guests are included in user
    assert busy_ticks(STAT, (0, 1)) == 25 + 20
    assert busy_ticks(STAT, (11,)) == 7
    assert busy_ticks(STAT, (3,)) is None
    assert busy_ticks("", (0,)) is None


def test_doubt_begins_above_a_share():
    assert doubt(None) == doubt(0.0) == doubt(BUSY) == ""
    assert "took 12% of the cores' time" in doubt(0.12)


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="this system has no /proc/stat")
def test_another_process_is_seen():
    work = "import time\nend = time.perf_counter() + 5\nwhile time.perf_counter() < end: pass"
    with subprocess.Popen([sys.executable, "-c", work]) as other:
        time.sleep(0.3)
        with OtherWork() as watched:
            time.sleep(1.0)
        other.kill()
    assert watched.share is not None and watched.share > 0.5 / len(usable_processors())
    with OtherWork() as short:
        pass
    assert short.share is None
