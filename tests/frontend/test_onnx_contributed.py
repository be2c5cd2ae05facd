"""Operators of the domain com.microsoft, compared with onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper
from onnx_judge import by_onnxruntime, by_package, by_reference, check, model_of, newer_judge

from tvm_tiling.errors import UnsupportedOperator
from tvm_tiling.frontend import load_model

RNG = np.random.default_rng(0)
X, SKIP = (RNG.standard_normal((2, 5, 24)).astype("float32") for _ in range(2))
GAMMA, BETA, BIAS = (RNG.standard_normal(24).astype("float32") for _ in range(3))


def model(operator, given, outputs, places=None, **attributes):
    """Return a node on `given`, whose operands have the names in `places`, "" for one that is left out."""
    node = helper.make_node(operator, places or list(given), [*outputs], domain="com.microsoft", **attributes)
    made = model_of([node], given, outputs, opset=17)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "places", ["x,skip,gamma", "x,skip,gamma,beta", "x,skip,gamma,beta,bias", "x,skip,gamma,,bias", "x,row,gamma,beta"]
)
def test_skip_layer_normalization(places, dtype):
    every = {"x": X, "skip": SKIP, "row": SKIP[:1], "gamma": GAMMA, "beta": BETA, "bias": BIAS}
    given = {name: every[name].astype(dtype) for name in places.split(",") if name}
    made = model("SkipLayerNormalization", given, {"y": dtype, "sum": dtype}, places.split(","), epsilon=1e-3)
    made.graph.node[0].output[:] = ["y", "", "", "sum"]
    close = 1e-5 if dtype == "float32" else 4e-3
    check(made, given, rtol=close, atol=close)


@newer_judge
def test_skip_layer_normalization_of_halves_is_rounded_once():
    """Mean and deviation are those of the sum before rounding."""
    every = {"x": X, "skip": SKIP, "gamma": GAMMA, "beta": BETA, "bias": BIAS * 8}
    given = {name: value.astype("float16") for name, value in every.items()}
    made = model("SkipLayerNormalization", given, {"y": "float16", "m": "float32", "i": "float32", "sum": "float16"})
    results, wanted = by_package(made, given), by_onnxruntime(made, given)
    for result, close in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result, close, rtol=1e-3 if result.dtype == "float16" else 1e-5, atol=1e-5)
    for result, close in zip(results, by_reference(made, given), strict=True):
        np.testing.assert_allclose(result, close, rtol=1e-3 if result.dtype == "float16" else 1e-5, atol=1e-5)


def test_the_mean_beside_an_infinity_is_infinite_as_in_the_standards_layer_normalization():
    """onnxruntime returns NaN there, because of its order of summation."""
    given = {"x": np.array([[[-0.5, np.inf, 2]], [[-np.inf, 0.5, 1]]], "float32")}
    given |= {"skip": np.ones((2, 1, 3), "float32"), "gamma": GAMMA[:3], "beta": BETA[:3]}
    outputs = {"y": "float32", "m": "float32", "i": "float32", "sum": "float32"}
    made = model("SkipLayerNormalization", given, outputs)
    results = by_package(made, given)
    for result, wanted in zip(results, by_reference(made, given), strict=True):
        np.testing.assert_array_equal(result, wanted)
    plain = {"x": given["x"] + given["skip"], "gamma": given["gamma"], "beta": given["beta"]}
    node = helper.make_node("LayerNormalization", [*plain], ["y", "m", "i"])
    standard = model_of([node], plain, {name: "float32" for name in "ymi"})
    for result, wanted in zip(results, by_reference(standard, plain), strict=False):
        np.testing.assert_array_equal(result, wanted)


@newer_judge
@pytest.mark.parametrize("places", ["x,skip,gamma", "x,skip,gamma,bias"])
def test_skip_simplified_layer_normalization(places):
    every = {"x": X, "skip": SKIP, "gamma": GAMMA, "bias": BIAS}
    given = {name: every[name] for name in places.split(",")}
    results = dict.fromkeys(("y", "mean", "inverse", "sum"), "float32")  # the mean is 0
    check(model("SkipSimplifiedLayerNormalization", given, results, epsilon=1e-3), given, atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_embed_layer_normalization(masked):
    words, kinds = (RNG.integers(0, most, (2, 5)).astype("int32") for most in (9, 2))
    tables = {name: RNG.standard_normal((rows, 24)).astype("float32") for name, rows in (("w", 9), ("p", 7), ("k", 2))}
    given = {"words": words, "kinds": kinds, **tables, "gamma": GAMMA, "beta": BETA}
    if masked:
        given["mask"] = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32")
    check(
        model("EmbedLayerNormalization", given, {"y": "float32", "count": "int32", "sum": "float32"}), given, atol=1e-5
    )


def test_activations():
    for operator, attributes in (("QuickGelu", {}), ("QuickGelu", {"alpha": 0.5}), ("Gelu", {}), ("FastGelu", {})):
        check(model(operator, {"x": X}, {"y": "float32"}, **attributes), {"x": X}, atol=1e-5)
    check(model("BiasGelu", {"x": X, "bias": BIAS}, {"y": "float32"}), {"x": X, "bias": BIAS}, atol=1e-5)


@pytest.mark.parametrize("operator", ["BiasGelu", "FastGelu", "Gelu", "QuickGelu"])
def test_activations_of_halves_are_rounded_once(operator):
    """Within half a unit in the last place of the float32 result, or of onnxruntime's float16 error."""
    given = {"x": (3 * X).astype("float16"), "bias": BIAS.astype("float16")}
    if operator in ("Gelu", "QuickGelu"):
        del given["bias"]
    made = model(operator, given, {"y": "float16"})
    wide = {name: value.astype("float32") for name, value in given.items()}
    (exact,) = by_onnxruntime(model(operator, wide, {"y": "float32"}), wide)
    unit = np.spacing(np.abs(exact).astype("float16")).astype("float32")
    errors, others = (np.abs(judge(made, given)[0].astype("float32") - exact) for judge in (by_package, by_onnxruntime))
    assert (errors <= 0.51 * unit + 1e-6).all()
    assert errors.max() <= others.max()


@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_fused_mat_mul(turned):
    left, right = (
        RNG.standard_normal((3, 4, 5) if flag == base else (3, 5, 4)).astype("float32")
        for flag, base in zip(turned, (0, 1), strict=True)
    )
    given = {"a": left, "b": right}
    check(model("FusedMatMul", given, {"y": "float32"}, transA=turned[0], transB=turned[1], alpha=0.25), given)


@pytest.mark.parametrize("attributes", [{"transBatchA": 1}, {"transBatchA": 1, "transA": 1}, {"transBatchB": 1}])
def test_fused_mat_mul_of_batches_after_the_first_axis(attributes):
    given = {name: RNG.standard_normal((4, 4, 4)).astype("float32") for name in "ab"}
    check(model("FusedMatMul", given, {"y": "float32"}, **attributes), given)


@pytest.mark.parametrize("kind", ["uint8", "int16", "int32"])
def test_dequantisation_to_halves(kind):
    """In the type of the scale, whatever the version of the standard's operators."""
    given = {"x": RNG.integers(0, 99, (3, 4)).astype(kind), "scale": np.array(0.25, "float16")}
    made = model("DequantizeLinear", given, {"y": "float16"})
    made.opset_import[0].version = 9
    check(made, given)


def test_linear_quantisation():
    grid = {"scale": np.array(0.02, "float32"), "zero": np.array(117, "uint8")}
    given = {"x": X, **grid}
    check(model("QuantizeLinear", given, {"y": "uint8"}), given)
    given = {"x": RNG.integers(0, 255, (3, 4)).astype("uint8"), **grid}
    check(model("DequantizeLinear", given, {"y": "float32"}), given)


@pytest.mark.parametrize("operator", ["Pad"])
def test_a_name_of_the_standard_is_not_taken_for_the_standards_operator(operator):
    made = model(operator, {"x": X, "w": GAMMA}, {"y": "float32"})
    with pytest.raises(UnsupportedOperator, match=f"com.microsoft.{operator}"):
        load_model(made)
