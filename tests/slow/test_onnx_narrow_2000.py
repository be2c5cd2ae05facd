"""2,000 random ONNX graphs computed in bfloat16 and float16 differ only by rounding in these types.

TVM_TILING_NET_GRAPHS sets another number of graphs, TVM_TILING_NET_SEED the first seed. Failures are printed with their
seed, shrunk, and are repeated by `python tests/nets/onnx_graphs.py --precision bfloat16 --seed S --count 1`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "nets"))  # whose graphs are used here

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow
GRAPHS = int(os.environ.get("TVM_TILING_NET_GRAPHS", "2000"))
FIRST = int(os.environ.get("TVM_TILING_NET_SEED", "700000"))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_random_graphs_are_near_float32(precision):
    from onnx_graphs import BAD, net_of, run

    counts = run(FIRST, GRAPHS, net=net_of(precision))
    assert not [kind for kind in counts if kind in BAD]
    # What is supported in float32 is supported in 16 bits.
    assert counts["refused"] <= 0.01 * GRAPHS
