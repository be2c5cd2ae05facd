"""No kernel accesses memory after an operand, not even to read elements that it does not use."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="protects pages as Linux does")


def run(seed: int, count: int) -> subprocess.CompletedProcess[str]:
    program = Path(__file__).parent / "guard_page.py"
    command = [sys.executable, str(program), str(seed), str(count)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_nothing_after_an_operand_is_touched():
    done = run(seed=1, count=15)
    assert done.returncode == 0, f"{done.stdout[-600:]}\n{done.stderr[-1000:]}"


def test_a_read_after_an_operand_is_noticed():
    assert run(seed=0, count=0).returncode == -signal.SIGSEGV
