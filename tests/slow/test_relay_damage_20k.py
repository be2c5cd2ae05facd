"""20,000 corrupted Relay files: each is refused with an error of this package, or still read, within limits of time and
memory."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "frontend"))

from relay_damage import damages, files, read

pytestmark = pytest.mark.slow

ALLOWED = 256 << 20  # bytes beyond what the process holds
SECONDS = 5  # of processor time per file


@pytest.fixture
def little_memory():
    """Limit the data of the process to little more than it has; what needs more fails with a MemoryError."""
    assert all(read(model, params) for model, params in files().values())
    status = Path("/proc/self/status").read_text().splitlines()
    held = int(next(line for line in status if line.startswith("VmData")).split()[1]) * 1024
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held + ALLOWED, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.mark.parametrize("seed", range(1, 11))
def test_random_corruption(seed, little_memory):
    survived, longest = 0, 0.0
    for _, model, params in damages(2000, seed):
        start = time.process_time()
        survived += read(model, params)
        longest = max(longest, time.process_time() - start)
    assert 0 < survived < 1400
    assert longest < SECONDS
