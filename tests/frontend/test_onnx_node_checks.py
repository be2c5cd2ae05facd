"""Nodes that the standard does not define are refused: axes beyond the rank, windows below 1, results of negative size,
and weights of recurrent layers that do not match."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_tiling as tt


def refusal(operator, shape, constants=(), outputs=1, **attributes):
    """The message by which a model of one node is refused; constants are its inputs after the first."""
    names = [f"c{place}" for place in range(len(constants))]
    results = [f"y{place}" for place in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", *names], results, **attributes)],
        "node",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in zip(names, constants, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with pytest.raises(tt.UnsupportedOperator) as error:
        tt.compile(model, cache=False)
    return str(error.value)


AXES = {
    "Softmax": (),
    "Concat": (),
    "ArgMax": (),
    "LpNormalization": (),
    "LayerNormalization": (np.ones(4, "float32"),),
    "Gather": (np.array([0]),),
    "GatherElements": (np.zeros((3, 4), "int64"),),
    "ScatterElements": (np.zeros((3, 4), "int64"), np.ones((3, 4), "float32")),
    "Compress": (np.array([True, True]),),
}


@pytest.mark.parametrize("shape", [(3, 4), ("rows", 4)], ids=["fixed", "dynamic"])
@pytest.mark.parametrize("axis", [2, 3, -3, 1 << 40])
@pytest.mark.parametrize("operator", AXES)
def test_axes_beyond_the_rank(operator, axis, shape):
    assert f"axis {axis} is out of range; expected -2 to 1" in refusal(operator, shape, AXES[operator], axis=axis)


@pytest.mark.parametrize("axis", [2, -3, 1 << 40])
def test_axes_that_are_inputs_or_belong_to_results(axis):
    expected = f"axis {axis} is out of range; expected -2 to 1"
    assert expected in refusal("CumSum", (3, 4), [np.int64(axis)])
    assert expected in refusal("ReduceSum", (3, 4), [np.array([axis])])
    assert expected in refusal("Slice", (3, 4), [np.array([0]), np.array([1]), np.array([axis])])
    assert expected in refusal("Split", (3, 4), outputs=2, axis=axis, num_outputs=2)
    assert expected in refusal("TopK", (3, 4), [np.array([1])], outputs=2, axis=axis)


@pytest.mark.parametrize("size", [0, -1])
@pytest.mark.parametrize("name", ["strides", "dilations"])
def test_windows_below_one(name, size):
    weights = np.ones((1, 1, 2, 2), "float32")
    assert f"{name} are [{size}, 1]; expected numbers from 1" in refusal(
        "Conv", (1, 1, 4, 4), [weights], **{name: [size, 1]}
    )
    assert f"{name} are [{size}, 1]" in refusal("MaxPool", (1, 1, 4, 4), kernel_shape=[2, 2], **{name: [size, 1]})


def test_results_of_negative_size():
    assert "its result would be float32 of shape (-1)" in refusal("Pad", (3,), [np.array([-2, -2])])


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes", "why"),
    [
        ("GRU", [(1, 6, 3), (1, 5, 2)], {}, "R has shape (1, 5, 2); expected (1, 6, 2)"),
        ("GRU", [(1, 5, 3), (1, 6, 2)], {}, "W has shape (1, 5, 3); expected (1, 6, 3)"),
        ("RNN", [(2, 2, 3), (1, 2, 2)], {}, "W has shape (2, 2, 3); expected (1, 2, 3)"),
        ("LSTM", [(1, 8, 3), (1, 8, 2), (1, 9)], {}, "B has shape (1, 9); expected (1, 16)"),
        ("LSTM", [(1, 8, 3), (1, 8, 2)], {"hidden_size": 9}, "hidden_size is 9, but R has 2 columns"),
        ("RNN", [(1, 2, 3), (1, 2, 2)], {"direction": "bidirectional"}, "R has 1 directions, but direction is"),
    ],
)
def test_weights_of_recurrent_layers_that_do_not_match(operator, shapes, attributes, why):
    weights = [np.ones(shape, "float32") for shape in shapes]
    assert why in refusal(operator, (4, 1, 3), weights, **attributes)
