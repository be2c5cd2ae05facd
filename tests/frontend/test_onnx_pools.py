"""ONNX pools with auto_pad whose strides exceed their windows, compared with onnxruntime and the reference
evaluator."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper
from onnx_judge import by_package, by_reference, check, model_of

from tvm_tiling.errors import UnsupportedOperator
from tvm_tiling.model.compile import compile_model

FLOAT = {"y": "float32"}


def floats(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def node(operator, inputs, outputs="y", **attributes):
    return helper.make_node(operator, inputs.split(","), outputs.split(","), **attributes)


# Windows that end before the axis does: the formula of auto_pad is negative there.
SHORT = [([6, 8], [1, 2], [3, 4]), ([8, 6], [1, 2], [2, 7]), ([6, 7], [2, 1], [8, 5])]


@pytest.mark.parametrize(("extents", "kernel", "strides"), SHORT)
@pytest.mark.parametrize("order", [0, 1])
def test_max_pool_whose_steps_exceed_its_windows(extents, kernel, strides, order):
    given = {"x": floats(2, 2, *extents)}
    attributes = {"kernel_shape": kernel, "strides": strides, "auto_pad": "SAME_UPPER", "storage_order": order}
    check(model_of([node("MaxPool", "x", "y,i", **attributes)], given, {**FLOAT, "i": "int64"}), given)


def test_max_pool_whose_steps_exceed_its_windows_is_the_references_too():
    given = {"x": floats(1, 2, 6, 8)}
    attributes = {"kernel_shape": [1, 2], "strides": [3, 4], "auto_pad": "SAME_UPPER"}
    model = model_of([node("MaxPool", "x", "y,i", **attributes)], given, {**FLOAT, "i": "int64"})
    for result, wanted in zip(by_package(model, given), by_reference(model, given), strict=True):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize(("extents", "kernel", "strides"), SHORT)
def test_lp_pool_whose_steps_exceed_its_windows(extents, kernel, strides):
    given = {"x": floats(2, 2, *extents)}
    operator = node("LpPool", "x", kernel_shape=kernel, strides=strides, auto_pad="SAME_UPPER")
    check(model_of([operator], given, FLOAT), given, rtol=1e-4)


@pytest.mark.parametrize(
    ("operator", "auto_pad", "strides"),
    [
        ("MaxPool", "SAME_LOWER", 3),
        ("MaxPool", "SAME_UPPER", 4),
        ("LpPool", "SAME_UPPER", 4),
        ("AveragePool", "SAME_UPPER", 3),
        ("AveragePool", "SAME_LOWER", 3),
    ],
)
def test_a_pool_whose_steps_exceed_its_windows_is_refused_where_others_disagree(operator, auto_pad, strides):
    """The reference and onnxruntime round half of an odd negative number differently, and neither averages there."""
    given = {"x": floats(1, 1, 2 * strides)}
    model = model_of([node(operator, "x", kernel_shape=[1], strides=[strides], auto_pad=auto_pad)], given, FLOAT)
    with pytest.raises(UnsupportedOperator, match=f"that end {strides - 1} before the end of an axis of"):
        compile_model(model, cache=False)


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("dilations", [[2, 1], [3, 2]])
@pytest.mark.parametrize("side", ["SAME_UPPER", "SAME_LOWER"])
def test_max_pool_of_dilated_windows_has_a_result_for_every_stride(side, dilations, dtype):
    """As in the standard; onnxruntime pads for windows that are not dilated."""
    given = {"x": np.random.default_rng(0).integers(-9, 9, (2, 2, 4, 7)).astype(dtype)}
    attributes = {"kernel_shape": [2, 3], "strides": [1, 2], "dilations": dilations, "auto_pad": side}
    model = model_of([node("MaxPool", "x", **attributes)], given, {"y": dtype})
    (result,), (wanted,) = by_package(model, given), by_reference(model, given)
    assert result.shape == (2, 2, 4, 4)
    np.testing.assert_array_equal(result, wanted)
