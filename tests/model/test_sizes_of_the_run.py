"""Sizes that the data decides, divided by one another: a divisor of 0 ends the run with a sentence, not the process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "sizes_of_the_run.py"
SAID = "WorkloadError: a size in the model: integer division by zero; expected divisors other than 0"
# The shape of every case's result where 12 values are other than 0 in one input and 3 in the other.
SHAPES = {
    "zeros": [4, 3],
    "remainder": [0, 3],
    "truncated": [4],
    "quotient of a quotient": [3, 3],
    "slice": [4],
}


@pytest.fixture(scope="module")
def found():
    """What became of every case, by its name; all run in one process, which has to live."""
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, timeout=300)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"exit code {done.returncode} behind {lines[-1:]}: {done.stderr[-2000:]}"
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("name", SHAPES)
def test_a_size_by_zero_is_refused(found, name):
    assert found[name] == {"name": name, "shape": SHAPES[name], "said": SAID, "again": SHAPES[name]}
