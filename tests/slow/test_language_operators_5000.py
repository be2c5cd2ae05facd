"""5,000 random nodes of language models beside onnxruntime: none wrong, no raw error, no crash.

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


def test_random_nodes_are_right():
    print(f"seed {SEED}, {CASES} cases")
    results, failures = run(SEED, CASES, processes=2, of="language")
    print(dict(results))
    assert results["cases"] == CASES
    assert not failures, "\n".join(f"case {f.case}: {f.what}\n{f.given}" for f in failures)
