"""5,000 random ONNX graphs give onnxruntime's results, or are refused with a sentence; none ends its process.

TVM_TILING_NET_GRAPHS sets another number of graphs, TVM_TILING_NET_SEED the first seed. Failures are printed with their
seed, shrunk, and are repeated by `python tests/nets/onnx_graphs.py --seed S --count 1`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "nets"))  # whose graphs are used here

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow
GRAPHS = int(os.environ.get("TVM_TILING_NET_GRAPHS", "5000"))
FIRST = int(os.environ.get("TVM_TILING_NET_SEED", "10000"))


def test_random_graphs_are_right_or_refused():
    from onnx_graphs import BAD, run

    counts = run(FIRST, GRAPHS)
    assert not [kind for kind in counts if kind in BAD]
    # Most of what onnxruntime supports is supported here.
    assert counts["right"] >= 0.7 * GRAPHS
