"""Sizes computed from data-dependent sizes: a divisor of 0, excessive and negative sizes end the run with a sentence,
not the process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "sizes_of_the_run.py"
SAID = "WorkloadError: a size in the model: integer division by zero; expected divisors other than 0"
# The shape of every case's result where 12 values are nonzero in one input and 3 in the other.
SHAPES = {
    "zeros": [4, 3],
    "remainder": [0, 3],
    "truncated": [4],
    "quotient of a quotient": [3, 3],
    "slice": [4],
    "bytes": [0],
    "elements": [0],
    "bytes of several axes": [0, 0, 0],
    "bytes on the way": [],
    "negative": [0],
}
LARGE = (
    "WorkloadError: a size in the model: it is computed at run time and too large; expected tensors that fit in memory"
)
NEGATIVE = (
    "WorkloadError: the run failed: there is not enough memory for a tensor whose size is computed at run time; "
    "expected nonnegative sizes"
)
SENTENCES = {name: LARGE if name.startswith(("bytes", "elements")) else SAID for name in SHAPES} | {
    "negative": NEGATIVE
}


@pytest.fixture(scope="module")
def found():
    """The outcome of each case, by name; all run in one process, which must survive."""
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, timeout=300)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"exit code {done.returncode} behind {lines[-1:]}: {done.stderr[-2000:]}"
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("name", SHAPES)
def test_an_invalid_size_is_refused(found, name):
    assert found[name] == {"name": name, "shape": SHAPES[name], "said": SENTENCES[name], "again": SHAPES[name]}
