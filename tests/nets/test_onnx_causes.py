"""Which causes explain a difference, and which do not."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "frontend"))  # whose checks are used here
sys.path.insert(0, str(Path(__file__).parent))  # and graphs

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper
from onnx_judge import by_onnxruntime, by_package, model_of

from tvm_tiling.decide.conv import cpu_conv

RNG = np.random.default_rng(0)


def test_roundings_of_halves_are_distinguished_from_faults():
    from onnx_causes import by_halves, widened

    given = {"x": RNG.normal(size=(3, 40)).astype("float16"), "b": RNG.normal(size=40).astype("float16")}
    nodes = [
        helper.make_node("Add", ["x", "b"], ["s"]),
        helper.make_node("Mul", ["s", "s"], ["p"]),
        helper.make_node("Cast", ["p"], ["w"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["w"], ["y"], keepdims=0),
    ]
    model = model_of(nodes, given, {"y": "float32"})
    (wanted,) = by_onnxruntime(model, given)
    rounded = np.square(given["x"] + given["b"]).astype("float32").mean()  # node by node, as in the standard
    assert wanted != rounded
    for result in (by_package(model, given)[0], rounded):
        assert by_halves(model, given, np.asarray(result), wanted)
    for wrong in (wanted + np.float32(2e-3), np.float32("nan")):
        assert not by_halves(model, given, np.asarray(wrong, "float32"), wanted)
    wide, floats = widened(model, given)  # no float16, nothing to allow
    assert not by_halves(wide, floats, rounded, wanted)


def test_what_float32_keeps_nothing_of_is_distinguished_from_faults():
    """Deviations from a mean of equal numbers are rounding errors compared with rounding errors; others are not."""
    from onnx_causes import by_doubles
    from onnx_judge import by_reference

    def judged(given, result):
        model = model_of(
            [helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=[2])], given, {"y": "float32"}
        )
        return by_doubles(model, given, np.asarray(result, "float32"), by_onnxruntime(model, given)[0], by_reference)

    flat = {"x": np.repeat(np.float32([1.7683585, -2.4679303, 0.42270190]).reshape(1, 3, 1), 3, axis=2)}
    assert judged(flat, np.full((1, 3, 3), -0.99)) and judged(flat, np.zeros((1, 3, 3)))
    assert not judged(flat, np.full((1, 3, 3), -5.0)) and not judged(flat, np.full((1, 3, 3), np.nan))
    plain = {"x": RNG.normal(size=(1, 3, 8)).astype("float32")}
    assert not judged(plain, np.zeros((1, 3, 8)))


@pytest.mark.parametrize(
    ("form", "attributes", "shape", "outputs"),
    [
        ("stride_fold", {"strides": [3, 3], "kernel_shape": [2, 1]}, (1, 2, 7, 12), 32),
        ("wfold", {"strides": [1, 2], "kernel_shape": [3, 3]}, (1, 3, 9, 13), 2),
        ("winograd", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, (1, 32, 12, 12), 32),
    ],
)
def test_what_a_convolution_spreads_is_distinguished_from_faults(form, attributes, shape, outputs):
    from onnx_causes import is_spread
    from onnx_graphs import difference, judged

    given = {"x": RNG.normal(size=shape).astype("float32")}
    weights = RNG.normal(size=(outputs, shape[1], *attributes["kernel_shape"])).astype("float32")
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    model = model_of([node], given, {"y": "float32"}, {"w": weights})
    with mock.patch.object(cpu_conv, "FORMS", (form,)):
        assert judged(model, given) == "right"
        (wanted,) = by_onnxruntime(model, given)
        assert not is_spread(
            model, given, lambda other: difference(other, wanted, [])
        )  # nothing is explained for finite numbers
        given["x"][0, 0, 3, 5] = np.inf
        assert judged(model, given).startswith("spread: y: ")
        given["x"][0, 0, 3, 5] = np.nan
        assert judged(model, given).startswith("spread: y: ")
    (wanted,) = by_onnxruntime(model, given)
    assert not is_spread(model, given, lambda other: difference(other, wanted + 1, []))  # wrong in any algorithm
