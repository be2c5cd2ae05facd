"""Nodes that the standard does not define are refused: axes beyond the rank, windows that contradict images or weights,
operands that do not match, results of negative size, and weights of recurrent layers that do not match."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_tiling as tt


def refusal(operator, shape, constants=(), outputs=1, opset=18, **attributes):
    """The message by which a model of one node is refused; constants are its inputs after the first."""
    names = [f"c{place}" for place in range(len(constants))]
    results = [f"y{place}" for place in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", *names], results, name="odd", **attributes)],
        "node",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in zip(names, constants, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    with pytest.raises((tt.UnsupportedOperator, tt.ModelFormatError)) as error:
        tt.compile(model, cache=False)
    assert f"node 'odd' ({operator})" in str(error.value)
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


IMAGES = pytest.mark.parametrize("shape", [(1, 2, 6, 6), (1, 2, "height", 6)], ids=["fixed", "dynamic"])
KERNEL = np.ones((2, 2, 3, 3), "float32")


@IMAGES
@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"kernel_shape": [2, 2]}, "kernel_shape is [2, 2], but the weights have [3, 3]"),
        ({"kernel_shape": [3]}, "kernel_shape are [3]; expected 2 numbers"),
        ({"pads": [1]}, "pads are [1]; expected 4 numbers"),
        ({"pads": [1] * 5}, "pads are [1, 1, 1, 1, 1]; expected 4 numbers"),
        ({"strides": [1]}, "strides are [1]; expected 2 numbers"),
        ({"dilations": [1, 1, 1]}, "dilations are [1, 1, 1]; expected 2 numbers"),
        ({"group": 0}, "group is 0; expected a number from 1"),
        ({"group": 3}, "expected a first extent divisible by group 3"),
        ({"auto_pad": "SAME"}, "auto_pad is 'SAME'; expected one of NOTSET, "),
    ],
)
@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_attributes_of_convolutions(operator, attributes, why, shape):
    assert why in refusal(operator, shape, [KERNEL], **attributes)


@IMAGES
def test_weights_that_do_not_match_the_images(shape):
    assert "images have 2 channels; expected 1" in refusal("Conv", shape, [KERNEL[:, :1]])
    assert "weights have 3 axes and images 4" in refusal("Conv", shape, [KERNEL[0]])
    assert "the bias has shape (3); expected (2)" in refusal("Conv", shape, [KERNEL, np.ones(3, "float32")])
    assert "the bias has shape (1, 2); expected (2)" in refusal("Conv", shape, [KERNEL, np.ones((1, 2), "float32")])


@IMAGES
@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"output_padding": [1]}, "output_padding are [1]; expected 2 numbers"),
        ({"output_padding": [1, 1]}, "output_padding is [1, 1]; expected less than the stride or the dilation"),
        ({"output_shape": [8]}, "output_shape is [8]; expected 2 numbers"),
        ({"output_shape": [0, 8]}, "output_shape is [0, 8]; expected numbers from 1"),
    ],
)
def test_results_of_transposed_convolutions(attributes, why, shape):
    assert why in refusal("ConvTranspose", shape, [KERNEL], **attributes)


@IMAGES
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
def test_windows_of_pools(operator, shape):
    assert "required attribute 'kernel_shape' is missing" in refusal(operator, shape)
    assert "kernel_shape are [2]; expected 2 numbers" in refusal(operator, shape, kernel_shape=[2])
    assert "pads are [1]; expected 4 numbers" in refusal(operator, shape, kernel_shape=[2, 2], pads=[1])


NONE = np.array([], "float32")


@IMAGES
@pytest.mark.parametrize(
    ("scales", "why"),
    [
        ([1, 1, 1, 0], "a scale is 0; expected a finite number above 0"),
        ([1, 1, 1, -1], "a scale is -1; expected"),
        ([1, 1, 1, np.nan], "a scale is nan; expected"),
        ([1, 1, 1], "must be same as rank of input 'X'"),
    ],
)
def test_scales_of_images(scales, why, shape):
    assert why in refusal("Resize", shape, [NONE, np.array(scales, "float32")])


@IMAGES
@pytest.mark.parametrize("size", [0, -1])
def test_sizes_of_images(size, shape):
    assert f"a size is {size}; expected numbers from 1" in refusal(
        "Resize", shape, [NONE, NONE, np.array([1, 2, 8, size])]
    )


@IMAGES
@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"nearest_mode": "up"}, "nearest_mode is 'up'; expected one of round_prefer_floor, "),
        ({"mode": "square"}, "mode is 'square'; expected one of nearest, "),
        ({"antialias": 1}, "antialias is set with mode 'nearest'"),
        ({"axes": [0, 1, 2, 2]}, "Axis 2 is referred to more than once"),
    ],
)
def test_attributes_of_resizing(attributes, why, shape):
    assert why in refusal("Resize", shape, [NONE, np.array([1, 1, 2, 2], "float32")], **attributes)


def test_integers_are_not_interpolated_along_dynamic_axes():
    scales = np.array([1, 1, 2, 2], "float32")
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")],
        "node",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, (1, 2, "height", 6))],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(scales, "s")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with pytest.raises(tt.UnsupportedOperator, match="mode 'linear' is not supported for uint8 along dynamic axes"):
        tt.compile(model, cache=False)


def test_operands_that_do_not_match():
    assert "its inputs have shapes (2, 3), (4)" in refusal("Add", (2, 3), [np.ones(4, "float32")])
    assert "input B has type int64; expected that of" in refusal("Add", (3,), [np.ones(3, "int64")])
    assert "input condition has type float, which the standard" in refusal("Where", (3,), [np.ones(3, "float32")] * 2)
    assert "repeated value: 1" in refusal("Transpose", (2, 3, 4), perm=[0, 1, 1])
    assert "must have same rank" in refusal("Concat", (2, 3), [np.ones(3, "float32")], axis=0)
