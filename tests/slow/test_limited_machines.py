"""The suite on restricted versions of this machine: without AVX-512, and with one core."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
CPUINFO = Path("/proc/cpuinfo")
WIDE = re.compile(r"\b(avx512|avx10|amx)\w*")
# The first of these that the system permits: processes in it may see another file at a path.
NAMESPACES = (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"])


def suite(*before: object, processes: int) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-n", processes]
    return subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True)


def test_the_suite_passes_without_avx512(tmp_path):
    """Every process of the suite reads a /proc/cpuinfo without those extensions."""
    text = CPUINFO.read_text() if CPUINFO.exists() else ""
    if not WIDE.search(text):
        pytest.skip("it is one without AVX-512")
    copy = tmp_path / "cpuinfo"
    copy.write_text(WIDE.sub("", text))
    for namespace in NAMESPACES:
        hidden = [*namespace, "sh", "-c", f'mount --bind "{copy}" {CPUINFO} && exec "$@"', "sh"]
        try:
            permitted = subprocess.run([*hidden, "true"], capture_output=True).returncode == 0
        except OSError:
            permitted = False
        if permitted:
            break
    else:
        pytest.skip("the system permits no mounts of one's own")
    done = suite(*hidden, processes=2)
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes cannot be bound to a core here")
def test_the_suite_passes_on_one_core():
    core = min(os.sched_getaffinity(0))
    done = suite("taskset", "--cpu-list", core, processes=0)
    assert done.returncode == 0, done.stdout[-6000:]
