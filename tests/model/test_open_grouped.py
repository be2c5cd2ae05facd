"""Depthwise and grouped convolutions of dynamic size, and products of matrices by one vector each: computed with
vectors along the channels or along K, and equal to onnxruntime at every size."""

from __future__ import annotations

import warnings

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_tiling as tt

RNG = np.random.default_rng(0)
SIZES = (1, 2, 5, 16, 33)


def model(nodes, shape, constants, rank):
    """`nodes` are (operator, inputs, output, attributes); the input is x, the output y."""
    graph = helper.make_graph(
        [helper.make_node(op, ins.split(","), [out], **more) for op, ins, out, more in nodes],
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [f"y{axis}" for axis in range(rank)])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(made, shapes, **options):
    """Compare with onnxruntime, and return the operators of the report."""
    judge = onnxruntime.InferenceSession(made.SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # there are no slow plain loops
        compiled = tt.compile(made, cache=False, **options)
    for shape in shapes:
        x = RNG.standard_normal(shape, np.float32)
        wanted = judge.run(None, {"x": x})[0]
        tolerance = 1e-5 if not options.get("precision") else 2e-2
        np.testing.assert_allclose(compiled.run(x), wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())
    return compiled.report().operators


def windows(channels, groups, *kernel, **attributes):
    weights = RNG.standard_normal((channels, channels // groups, *kernel), np.float32) / np.sqrt(np.prod(kernel))
    bias = RNG.standard_normal(channels, np.float32)
    nodes = [("Conv", "x,w,b", "c", {"group": groups, **attributes}), ("Relu", "c", "y", {})]
    return nodes, {"w": weights.astype("float32"), "b": bias}


@pytest.mark.parametrize(
    ("channels", "groups", "kernel", "attributes"),
    [
        (24, 24, (3, 3), {"pads": (1, 1, 1, 1)}),
        (40, 40, (3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
        (17, 17, (7, 5), {"pads": (3, 2, 3, 2)}),
        (16, 16, (3, 3), {"pads": (2, 2, 2, 2), "dilations": (2, 2)}),
        (32, 2, (3, 3), {"pads": (1, 1, 1, 1)}),
        (24, 6, (3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 1)}),
    ],
    ids=str,
)
def test_images_of_any_size(channels, groups, kernel, attributes):
    nodes, constants = windows(channels, groups, *kernel, **attributes)
    made = model(nodes, ("n", channels, "h", "w"), constants, 4)
    shapes = [
        (batch, channels, high, wide) for batch, high, wide in zip((1, 2, 1, 1, 3), SIZES, SIZES[::-1], strict=True)
    ]
    (layer,) = [o for o in check(made, shapes) if o.name.startswith("fused_conv2d")]
    assert (layer.kind, layer.form) == ("convolution", "reduction") and layer.flops > 0


def test_lower_precision():
    nodes, constants = windows(24, 24, 3, 3, pads=(1, 1, 1, 1))
    made = model(nodes, (1, 24, "h", "w"), constants, 4)
    operators = check(made, [(1, 24, size, 20) for size in SIZES], precision="bfloat16")
    assert any((o.kind, o.form) == ("convolution", "reduction") for o in operators)


def test_signals_of_any_length():
    nodes, constants = windows(20, 20, 31, pads=(15, 15))
    turn = [("Transpose", "x", "t", {"perm": (0, 2, 1)}), ("Conv", "t,w,b", "c", nodes[0][3])]
    made = model([*turn, ("Transpose", "c", "y", {"perm": (0, 2, 1)})], (1, "length", 20), constants, 3)
    operators = check(made, [(1, size, 20) for size in SIZES])
    assert any((o.kind, o.form) == ("convolution", "reduction") for o in operators)


@pytest.mark.parametrize("deterministic", [False, True])
def test_one_vector_for_each_matrix(deterministic):
    constants = {"w": RNG.standard_normal((5, 48, 1), np.float32)}
    made = model([("MatMul", "x,w", "y", {})], (5, "n", 48), constants, 3)
    (product,) = check(made, [(5, size, 48) for size in SIZES], deterministic=deterministic)
    # A fixed number of rows is a matrix multiplication, which adds in another order.
    assert (product.kind, product.form) == ("gemm", "open" if deterministic else "reduction") and product.flops > 0


def test_a_dot_product_of_fixed_size_is_not_told_as_slow_in_a_model_of_dynamic_size():
    constants = {"w": RNG.standard_normal((64, 1), np.float32), "first": np.array([0])}
    nodes = [("Gather", "x,first", "row", {}), ("MatMul", "row,w", "y", {})]
    operators = check(model(nodes, ("n", 64), constants, 2), [(size, 64) for size in SIZES])
    assert any((o.kind, o.form, o.flops) == ("gemm", "reduction", 128) for o in operators)


def test_sums_of_squares_are_reductions():
    made = model([("ReduceL2", "x", "y", {"axes": [2], "keepdims": 0})], (2, "n", 70), {}, 2)
    assert {o.kind for o in check(made, [(2, size, 70) for size in SIZES])} == {"other"}
