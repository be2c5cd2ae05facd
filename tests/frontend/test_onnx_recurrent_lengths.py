"""Recurrent layers of ONNX with dynamic lengths, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_judge import by_onnxruntime

from tvm_tiling.model.compile import compile_model


@pytest.mark.parametrize(
    ("cell", "gates", "attributes"),
    [
        ("LSTM", 4, {}),
        ("GRU", 3, {"linear_before_reset": 0}),
        ("GRU", 3, {"linear_before_reset": 1}),
        ("RNN", 1, {"activations": ["Tanh", "Relu"]}),
    ],
)
def test_sums_of_gates_are_clipped_for_any_number_of_steps_as_in_onnxruntime(cell, gates, attributes):
    rng = np.random.default_rng(3)
    shapes = {"W": (2, gates * 5, 3), "R": (2, gates * 5, 5), "B": (2, gates * 10)}
    constants = [numpy_helper.from_array(rng.normal(size=s).astype("float32"), n) for n, s in shapes.items()]
    outputs = ["y", "h", "c"] if cell == "LSTM" else ["y", "h"]
    node = helper.make_node(
        cell, ["x", *shapes], outputs, hidden_size=5, clip=0.4, direction="bidirectional", **attributes
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("steps", "batch", 3))
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([node], "g", [x], results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    exe = compile_model(model, cache=False)
    for steps, batch in ((1, 1), (6, 3)):
        given = {"x": rng.normal(size=(steps, batch, 3)).astype("float32")}
        for got, wanted in zip(exe.run(given), by_onnxruntime(model, given), strict=True):
            np.testing.assert_allclose(got, wanted, atol=2e-6)
