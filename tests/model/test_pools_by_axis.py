"""Pooling of large windows, along one axis after the other: equal to onnxruntime, and only where it pays."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tvm_tiling as tt
from tvm_tiling.model.passes.dataflow import is_op
from tvm_tiling.model.passes.pools import with_pools_by_axis


def model(shape, kind=TensorProto.FLOAT, operator="MaxPool", version=17, **window):
    node = helper.make_node(operator, ["x"], ["y"], **window)
    graph = helper.make_graph(
        [node],
        "pool",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, [f"y{axis}" for axis in range(4)])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)


def by_onnxruntime(made: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]


@pytest.mark.parametrize(
    "window",
    [
        {"kernel_shape": (5, 5), "pads": (2, 2, 2, 2)},
        {"kernel_shape": (13, 7), "pads": (6, 3, 6, 3)},
        {"kernel_shape": (9, 5), "strides": (2, 1), "pads": (0, 4, 3, 1)},
        {"kernel_shape": (5, 5), "dilations": (2, 3), "pads": (4, 4, 3, 4)},
        {"kernel_shape": (6, 5), "strides": (1, 2), "ceil_mode": 1},
        {"kernel_shape": (7, 7), "strides": (2, 3), "pads": (3, 1, 2, 3), "ceil_mode": 1},
    ],
    ids=str,
)
def test_equals_onnxruntime(window):
    made = model((2, 5, 23, 19), **window)
    x = np.random.default_rng(0).standard_normal((2, 5, 23, 19), np.float32)
    x[0, 0, 3, 4], x[1, 2, 5] = np.inf, -np.inf
    compiled = tt.compile(made, cache=False)
    assert len([o for o in compiled.report().operators if o.name.startswith("max_pool2d")]) == 2
    np.testing.assert_array_equal(compiled.run(x), by_onnxruntime(made, x))


@pytest.mark.parametrize("counted", [0, 1])
@pytest.mark.parametrize(
    "window",
    [
        {"kernel_shape": (7, 7), "pads": (3, 3, 3, 3)},
        {"kernel_shape": (9, 5), "strides": (2, 1), "pads": (0, 4, 3, 1)},
        {"kernel_shape": (5, 6), "pads": (4, 5, 1, 0)},
        {"kernel_shape": (7, 7), "strides": (2, 2), "pads": (3, 1, 2, 3), "ceil_mode": 1},
        {"kernel_shape": (7, 5), "strides": (1, 2), "dilations": (2, 3), "pads": (3, 1, 2, 3)},
    ],
    ids=str,
)
def test_means_equal_onnxruntime(window, counted):
    made = model((2, 5, 23, 19), operator="AveragePool", version=19, count_include_pad=counted, **window)
    x = np.random.default_rng(0).standard_normal((2, 5, 23, 19), np.float32)
    compiled = tt.compile(made, cache=False)
    past_the_padding = counted and window.get("ceil_mode")  # counts other elements, so it stays one operator
    pools = [o for o in compiled.report().operators if o.name.startswith("avg_pool2d")]
    assert len(pools) == (1 if past_the_padding else 2)
    np.testing.assert_allclose(compiled.run(x), by_onnxruntime(made, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_a_window_that_fills_the_image_is_pooled_at_once(operator):
    made = model((1, 8, 7, 7), operator=operator, kernel_shape=(7, 7))
    x = np.random.default_rng(2).standard_normal((1, 8, 7, 7), np.float32)
    compiled = tt.compile(made, cache=False)
    assert len(compiled.report().operators) == 1
    np.testing.assert_allclose(compiled.run(x), by_onnxruntime(made, x), rtol=1e-5, atol=1e-6)


def test_bytes_are_pooled_too():
    made = model((1, 3, 20, 20), TensorProto.INT8, kernel_shape=(5, 5), pads=(2, 2, 2, 2))
    x = np.random.default_rng(1).integers(-128, 128, (1, 3, 20, 20), np.int8)
    np.testing.assert_array_equal(tt.compile(made, cache=False).run(x), by_onnxruntime(made, x))


def test_a_number_that_is_none_reaches_the_same_results():
    made = model((1, 1, 9, 40), kernel_shape=(5, 5), pads=(2, 2, 2, 2))
    x = np.zeros((1, 1, 9, 40), np.float32)
    x[0, 0, 4, 20] = np.nan
    wanted = np.zeros_like(x)
    wanted[0, 0, 2:7, 18:23] = np.nan
    np.testing.assert_array_equal(tt.compile(made, cache=False).run(x), wanted)


@pytest.mark.parametrize(
    ("kernel", "strides", "split"),
    [((5, 5), (1, 1), True), ((3, 3), (1, 1), False), ((5, 5), (2, 2), False), ((1, 13), (1, 1), False)],
)
def test_only_where_it_saves_comparisons(kernel, strides, split):
    imported = tt.frontend.load_model(model((1, 3, 16, 16), kernel_shape=kernel, strides=strides)).module
    blocks = with_pools_by_axis(imported)["main"].body.blocks
    pools = [b for block in blocks for b in block.bindings if is_op(b.value, "nn.max_pool2d")]
    assert len(pools) == 1 + split
