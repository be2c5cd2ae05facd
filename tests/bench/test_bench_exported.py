"""Exported libraries compared with executables: built, equal, timed."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from tvm.support import cc

pytestmark = pytest.mark.skipif(
    cc.get_cc() is None or not sys.platform.startswith("linux"), reason="needs a C compiler and Linux"
)


def test_a_network_is_exported_compared_and_timed(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    from benchmarks import exported

    weights = np.random.default_rng(0).standard_normal((64, 48)).astype("float32")
    ends = [onnx.helper.make_tensor_value_info(name, 1, [8, size]) for name, size in (("x", 64), ("y", 48))]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "small",
        ends[:1],
        ends[1:],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    monkeypatch.setattr(exported, "with_random_weights", lambda _: model)
    name, library, run, ratio, *_ = exported.row("small", tmp_path)
    assert name == "small"
    assert float(library) < 10
    assert float(run) < 10
    assert 0 < float(ratio) < 10
