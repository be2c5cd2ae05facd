"""Quantised networks of the benchmark: building them causes no warnings."""

from __future__ import annotations

import logging

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper

from benchmarks.onnx_networks import NETWORKS, with_random_weights
from benchmarks.quantised import quantised

LARGE = ("vgg19", "zfnet512")


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow if each in LARGE else ()) for each in NETWORKS]
)
def test_networks_hold_nothing_that_no_node_takes(name):
    graph = with_random_weights(name).graph
    taken = {each for node in graph.node for each in node.input}
    assert {tensor.name for tensor in graph.initializer} <= taken
    assert {value.name for value in graph.input} <= taken


def test_a_normalisation_is_quantised_without_complaints(tmp_path, caplog):
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(8, 8)), "g": rng.uniform(0.5, 1.5, 8), "b": rng.normal(size=8)}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("LayerNormalization", ["p", "g", "b"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])],
        [numpy_helper.from_array(array.astype("float32"), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with caplog.at_level(logging.WARNING):
        quantised(model, tmp_path)
    assert not caplog.records
