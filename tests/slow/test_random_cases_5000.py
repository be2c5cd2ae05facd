"""5,000 random tensor-expression functions compared with TVM's plain build, and 5,000 nodes of language models compared
with onnxruntime: none wrong, no internal error, no crash.

TVM_TILING_FUZZ_CASES sets another number of cases, TVM_TILING_FUZZ_SEED another seed, which is printed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "nets"))

from run_functions import run

pytestmark = pytest.mark.slow
CASES = int(os.environ.get("TVM_TILING_FUZZ_CASES", "5000"))
SEED = int(os.environ.get("TVM_TILING_FUZZ_SEED", "1"))


@pytest.mark.parametrize("of", ["functions", "language"])
def test_random_cases_are_right(of):
    print(f"seed {SEED}, {CASES} cases")
    results, failures = run(SEED, CASES, processes=2, of=of)
    print(dict(results))
    assert results["cases"] == CASES
    assert not failures, "\n".join(f"case {f.case}: {f.what}\n{f.given}" for f in failures)
