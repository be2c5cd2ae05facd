"""10,000 runs and 500 compilations use no more memory at the end than after a tenth of them, within stated bounds.

TVM_TILING_MEMORY_PART divides the numbers: 10 makes 1,000 runs and 50 compilations.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("memory_growth.py")
PART = int(os.environ.get("TVM_TILING_MEMORY_PART", "1"))
MIB = 1 << 20
MOST = 900 * MIB  # peak of the process, including TVM's own 400 MiB


@pytest.mark.parametrize(
    ("what", "count", "growth"),
    [
        ("runs", 10_000, 2 * MIB),
        # The allocator's, for the first tens of compilations; 500 that each kept their library would take 400 MiB.
        ("compiles", 500, 32 * MIB),
    ],
)
def test_memory_does_not_grow(what, count, growth):
    command = [sys.executable, PROGRAM, what, str(count // PART)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    early, late, most = map(int, done.stdout.split())
    print(f"{what}: {early / MIB:.1f} MiB after a tenth, {late / MIB:.1f} at the end, {most / MIB:.1f} at most")
    assert late - early <= growth and most <= MOST
