"""10,000 random cases of every family, in separate processes: none wrong, none that ends its process.

TVM_TILING_FUZZ_CASES sets another number of cases, TVM_TILING_FUZZ_SEED the first seed. The seeds are printed: failures
are repeated by `python tests/fuzz/run_family.py FAMILY SEED CASES`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parents[1] / "fuzz" / "run_family.py"
CASES = int(os.environ.get("TVM_TILING_FUZZ_CASES", "10000"))
FIRST = int(os.environ.get("TVM_TILING_FUZZ_SEED", "0"))
OF_A_PROCESS = 250
FAMILIES = (
    "products",
    "convolutions",
    "recurrent",
    "graphs",
    "simulated",
    "damage",
    "indices",
    "integers",
    "coordinates",
)


@pytest.mark.parametrize("family", FAMILIES)
def test_random_cases_are_right(family):
    for number in range(FIRST, FIRST + -(-CASES // OF_A_PROCESS)):
        cases = min(OF_A_PROCESS, CASES - (number - FIRST) * OF_A_PROCESS)
        print(f"{family}: seed {number}, {cases} cases", flush=True)
        done = subprocess.run(
            [sys.executable, PROGRAM, family, str(number), str(cases)], capture_output=True, text=True
        )
        last = done.stdout.strip().splitlines()[-1:]
        assert done.returncode == 0, (
            f"{family}, seed {number}, exit code {done.returncode} at {last}\n{done.stderr[-4000:]}"
        )
