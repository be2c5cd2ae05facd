"""The suite on machines like this one but less: without AVX-512, and with one core."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def suite(*options: str, before: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=before)


@pytest.mark.skipif("avx512f" not in Path("/proc/cpuinfo").read_text(), reason="it is one without AVX-512")
def test_the_suite_passes_without_avx512():
    done = suite("--avx2", "-n", "2")
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes cannot be bound to a core here")
def test_the_suite_passes_on_one_core():
    core = min(os.sched_getaffinity(0))
    done = suite(before=lambda: os.sched_setaffinity(0, {core}))
    assert done.returncode == 0, done.stdout[-6000:]
