"""ONNX operators in variants that TVM's importer reads differently from the standard, compared with onnxruntime."""

from __future__ import annotations

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_judge import by_package, by_reference, check, model_of, newer_judge

from tvm_tiling.errors import ModelFormatError, UnsupportedOperator
from tvm_tiling.model.compile import compile_model

FLOAT = {"y": "float32"}


def floats(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def node(operator, inputs, outputs="y", **attributes):
    return helper.make_node(operator, inputs.split(","), outputs.split(","), **attributes)


# ---- moved elements --------------------------------------------------------------------------------------------------


@pytest.mark.values
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements_with_indices_smaller_than_the_data_off_the_axis(axis, reduction):
    shape = [2, 2, 2]
    shape[axis % 3] = 3
    indices = np.random.default_rng(axis + 1).permuted(np.broadcast_to(np.arange(-2, 1), (*shape[:-1], 3)), axis=-1)
    indices = indices[..., : shape[-1]]
    given = {"x": floats(3, 4, 5), "i": np.ascontiguousarray(indices), "u": floats(*shape)}
    if reduction == "none":  # where two updates meet, either may stay
        given["i"] = np.indices(shape)[axis] - 3
    operator = node("ScatterElements", "x,i,u", axis=axis, reduction=reduction)
    check(model_of([operator], given, FLOAT), given)


def test_scatter_elements_without_updates():
    given = {"x": floats(3, 4), "i": np.zeros((0, 2), "int64"), "u": floats(0, 2)}
    check(model_of([node("ScatterElements", "x,i,u")], given, FLOAT), given)


@pytest.mark.parametrize(
    ("start", "end", "step"), [(3, 1, 1), (1, 3, -1), (9, 12, 1), (-1, -4, 1), (2, 2, 1), (-9, -8, -1), (3, -9, -2)]
)
def test_slices_with_an_empty_result_and_around_it(start, end, step):
    given = {"x": floats(4, 3)}
    bounds = {"s": [start], "e": [end], "a": [0], "t": [step]}
    check(model_of([node("Slice", "x,s,e,a,t", "a1"), node("Neg", "a1")], given, FLOAT, bounds), given)
    # For a constant, which is sliced before the run.
    nodes = [node("Slice", "c,s,e,a,t", "a1"), node("Add", "a1,x")]
    check(model_of(nodes, {"x": floats(1, 3)}, FLOAT, {**bounds, "c": floats(4, 3)}), {"x": floats(1, 3)})
    if step == 1:
        nodes[0] = node("Slice", "c", "a1", starts=[start], ends=[end], axes=[0])
        check(model_of(nodes, {"x": floats(1, 3)}, FLOAT, {"c": floats(4, 3)}, 9), {"x": floats(1, 3)})


@pytest.mark.parametrize(("sizes", "count"), [([3, 4], None), ([0, 7], None), ([7], None), (None, 3), (None, 4)])
def test_uneven_splits_into_relus(sizes, count):
    given, parts = {"x": floats(2, 7)}, count or len(sizes)
    more = {"num_outputs": count} if count else {}
    nodes = [node("Split", "x" if count else "x,s", ",".join(f"a{i}" for i in range(parts)), axis=1, **more)]
    nodes += [node("Relu", f"a{i}", f"y{i}") for i in range(parts)]
    constants = {} if count else {"s": np.array(sizes)}
    check(model_of(nodes, given, {f"y{i}": "float32" for i in range(parts)}, constants), given)


# ---- pools and convolutions ------------------------------------------------------------------------------------------

POOLS = [
    {"kernel_shape": [3, 3], "strides": [2, 2]},
    {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1]},
    {"kernel_shape": [2, 2], "strides": [3, 3], "dilations": [2, 3], "pads": [0, 1, 1, 0]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER", "ceil_mode": 0},
    {"kernel_shape": [3, 3], "strides": [3, 2], "auto_pad": "SAME_UPPER", "ceil_mode": 0},
    {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "VALID"},
]


@pytest.mark.values
@pytest.mark.parametrize("attributes", POOLS, ids=range(len(POOLS)))
@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool_with_ceil_mode(attributes, p):
    given = {"x": floats(1, 2, 8, 8)}
    check(model_of([node("LpPool", "x", p=p, **{"ceil_mode": 1, **attributes})], given, FLOAT), given, rtol=1e-4)


@pytest.mark.values
@pytest.mark.parametrize("attributes", POOLS, ids=range(len(POOLS)))
@pytest.mark.parametrize("counted", [0, pytest.param(1, marks=newer_judge)])
def test_average_pool_with_ceil_mode(attributes, counted):
    given = {"x": floats(1, 2, 8, 8)}
    operator = node("AveragePool", "x", count_include_pad=counted, **{"ceil_mode": 1, **attributes})
    check(model_of([operator], given, FLOAT, opset=19), given)


@pytest.mark.parametrize("attributes", POOLS, ids=range(len(POOLS)))
def test_max_pool_with_ceil_mode_and_places(attributes):
    given = {"x": floats(1, 2, 8, 8)}
    operator = node("MaxPool", "x", "y,i", **{"ceil_mode": 1, **attributes})
    check(model_of([operator], given, {**FLOAT, "i": "int64"}), given)


@pytest.mark.parametrize("extent", [5, 6, 7])
def test_means_of_two_windows_with_steps_between_their_elements(extent):
    given = {"x": floats(1, 2, extent)}
    operator = node("AveragePool", "x", kernel_shape=[2], dilations=[2], strides=[2])
    check(model_of([operator], given, FLOAT, opset=19), given)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool", "Conv", "ConvInteger"])
def test_a_kernel_larger_than_its_image_is_refused(operator):
    given, constants = {"x": floats(1, 1, 3, 3)}, {}
    attributes, inputs, outputs = {"kernel_shape": [5, 2]}, "x", FLOAT
    if operator.startswith("Conv"):
        given = {"x": floats(1, 1, 3, 3).astype("float32" if operator == "Conv" else "uint8")}
        constants, inputs = {"w": np.ones((1, 1, 5, 2), given["x"].dtype)}, "x,w"
        outputs = FLOAT if operator == "Conv" else {"y": "int32"}
    model = model_of([node(operator, inputs, **attributes)], given, outputs, constants)
    with pytest.raises(UnsupportedOperator, match="a window spans 5 elements, more than an axis of 3 with its padding"):
        compile_model(model, cache=False)


@pytest.mark.values
@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("shape", [[10, 8], [9, 11]])
def test_transposed_convolutions_with_output_shape(auto_pad, shape):
    given = {"x": floats(1, 2, 5, 5)}
    operator = node("ConvTranspose", "x,w,b", output_shape=shape, strides=[2, 2], auto_pad=auto_pad)
    check(model_of([operator], given, FLOAT, {"w": floats(2, 3, 3, 4), "b": floats(3)}), given, rtol=1e-4, atol=1e-5)


def test_transposed_convolutions_with_more_output_than_windows_reach():
    given = {"x": floats(1, 2, 5, 5)}
    constants = {"w": floats(2, 3, 3, 4), "b": floats(3)}
    more = node("ConvTranspose", "x,w,b", output_shape=[13, 15], strides=[2, 2])
    result = by_package(model_of([more], given, FLOAT, constants), given)[0]
    whole = node("ConvTranspose", "x,w,b", strides=[2, 2])
    reached = by_package(model_of([whole], given, FLOAT, constants), given)[0]
    assert result.shape == (1, 3, 13, 15)
    np.testing.assert_allclose(result[..., :11, :12], reached, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result[..., 11:, :], np.broadcast_to(constants["b"][:, None, None], (1, 3, 2, 15)))


@pytest.mark.pairs
@pytest.mark.parametrize("scale", [1.0, 0.5, 0.125])
@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("joined", ["avg", "max"])
def test_roi_align_with_a_spatial_scale(mode, scale, samples, joined):
    """Regions inside of the image, partly and completely outside of it, and one without pixels."""
    boxes = np.array([[1, 2, 5, 7], [0, 0, 3, 3.5], [2, 2, 2, 2], [-3, 4, 2, 11], [-9, -9, -4, -5]], "float32") / scale
    given = {"x": floats(2, 3, 8, 8), "r": boxes.astype("float32"), "b": np.array([0, 1, 1, 0, 1])}
    attributes = {"output_height": 3, "output_width": 2, "sampling_ratio": samples, "spatial_scale": scale}
    operator = node("RoiAlign", "x,r,b", coordinate_transformation_mode=mode, mode=joined, **attributes)
    check(model_of([operator], given, FLOAT), given)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_with_aligned_corners_to_and_from_an_axis_of_one(mode):
    for shape, sizes in (((1, 1, 4, 4), [1, 1, 1, 3]), ((1, 1, 1, 4), [1, 1, 3, 1])):
        given = {"x": floats(*shape)}
        operator = node("Resize", "x,,,s", mode=mode, coordinate_transformation_mode="align_corners")
        check(model_of([operator], given, FLOAT, {"s": np.array(sizes)}), given, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample_reflected_along_an_axis_of_one(mode):
    grid = np.random.default_rng(0).uniform(-2, 2, (1, 3, 3, 2)).astype("float32")
    for shape in ((1, 2, 1, 4), (1, 2, 4, 1)):
        given = {"x": floats(*shape), "g": grid}
        operator = node("GridSample", "x,g", mode=mode, padding_mode="reflection", align_corners=1)
        check(model_of([operator], given, FLOAT, opset=20), given, rtol=1e-4, atol=1e-5)


# ---- elements that are chosen ----------------------------------------------------------------------------------------


@newer_judge
@pytest.mark.values
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_top_k_with_a_nan(largest, k):
    x = floats(6, 8)
    for row, column in ((0, 2), (1, 0), (1, 7), (2, 5), (3, 1)):
        x[row, column] = np.nan
    x[3, 2:4], x[4, 3], x[4, 5] = (np.inf, -np.inf), -0.0, 0.0
    x[5] = np.nan
    given, outputs = {"x": x}, {**FLOAT, "i": "int64"}
    check(model_of([node("TopK", "x,k", "y,i", largest=largest)], given, outputs, {"k": np.array([k])}), given)


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
def test_top_k_takes_the_first_of_equals_and_may_be_left_unsorted(dtype):
    given = {"x": np.array([[3, 1, 3, 2, 1, 3], [0, 0, 0, 0, 0, 0]], dtype)}
    for largest in (0, 1):
        operator = node("TopK", "x,k", "y,i", largest=largest, sorted=0)
        model = model_of([operator], given, {"y": dtype, "i": "int64"}, {"k": np.array([4])})
        values, places = by_package(model, given)
        order = np.argsort(-given["x"] if largest else given["x"], axis=1, kind="stable")[:, :4]
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(values, np.take_along_axis(given["x"], order, 1))


@pytest.mark.parametrize("k", [-1, 9])
def test_top_k_of_more_than_there_are_is_refused(k):
    model = model_of([node("TopK", "x,k", "y,i")], {"x": floats(2, 8)}, {**FLOAT, "i": "int64"}, {"k": np.array([k])})
    with pytest.raises((UnsupportedOperator, ModelFormatError), match="k"):
        compile_model(model, cache=False)


BOXES = np.array([[[0, 0, 1, 1], [0, 0, 1, 2], [2, 2, 0, 0], [5, 5, 6, 6], [0.25, 0, 1, 1]]], "float32")


@pytest.mark.parametrize(
    ("centre", "threshold"),
    [
        *((0, None), (0, 0.5), (1, 0.25)),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0, 0.0), (0, 0.25), (0, 0.75), (1, 0.5))),
    ],
)
def test_non_max_suppression_at_its_threshold(centre, threshold):
    given = {"b": BOXES, "s": np.array([[[0.9, 0.8, 0.7, -0.6, 0.9], [0.1, 0.2, 0.3, 0.3, -0.5]]], "float32")}
    constants = {"m": np.array([2**40]), "t": np.array([threshold or 0.0], "float32")}
    if threshold is None:
        constants.pop("t")
    operator = node("NonMaxSuppression", "b,s,m" + (",t" if "t" in constants else ""), center_point_box=centre)
    check(model_of([operator], given, {"y": "int64"}, constants), given)


def test_non_max_suppression_without_a_limit_chooses_nothing():
    given = {"b": BOXES, "s": np.ones((1, 1, 5), "float32")}
    check(model_of([node("NonMaxSuppression", "b,s")], given, {"y": "int64"}), given)


# ---- element by element ----------------------------------------------------------------------------------------------


def test_equality_of_booleans():
    left, right = (np.random.default_rng(seed).random((4, 9)) > 0.5 for seed in (0, 1))
    given = {"x": left, "z": right}
    nodes = [node("Equal", "x,z", "e"), node("Equal", "e,one", "f"), node("Not", "f")]
    check(model_of(nodes, given, {"y": "bool"}, {"one": np.array(True)}), given)


@pytest.mark.values
@pytest.mark.parametrize("exponents", ["int32", "int64", "float32"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_powers_of_integers(dtype, exponents):
    given = {"x": np.array([2, -3, 5, 0, 7], dtype), "e": np.array([3, 3, 11, 0, 1], exponents)}
    check(model_of([node("Pow", "x,e")], given, {"y": dtype}), given)
    squared = model_of([node("Pow", "x,e")], {"x": given["x"]}, {"y": dtype}, {"e": np.array(2, exponents)})
    check(squared, {"x": given["x"]})


@pytest.mark.values
@pytest.mark.parametrize("exponents", ["int32", "int64", "uint8", "uint64"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_large_powers_of_integers_are_exact_and_wrap(dtype, exponents):
    """As in NumPy; onnxruntime computes in float64, except for 2 and 3 over a whole row."""
    exponent = np.array([35, 39, 41, 31, 63, 30, 0], exponents)
    given = {"x": np.array([[3], [-9], [2], [0], [-1]], dtype), "e": exponent}
    (result,) = by_package(model_of([node("Pow", "x,e")], given, {"y": dtype}), given)
    np.testing.assert_array_equal(result, np.power(given["x"], exponent.astype("int64")).astype(dtype))
    for number in (0, 3, 16, 41):
        one = model_of([node("Pow", "x,e")], {"x": given["x"]}, {"y": dtype}, {"e": np.array(number, exponents)})
        (result,) = by_package(one, {"x": given["x"]})
        np.testing.assert_array_equal(result, given["x"] ** np.array(number, dtype))


def test_negative_powers_of_integers():
    given = {"x": np.array([1, -1, -1, 2, -3]), "e": np.array([-5, -1, -2, -1, -2])}
    (result,) = by_package(model_of([node("Pow", "x,e")], given, {"y": "int64"}), given)
    np.testing.assert_array_equal(result, [1, -1, 1, 0, 0])


@newer_judge
@pytest.mark.values
@pytest.mark.parametrize("axes", [[0], [1], [-1, 0], None])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_log_of_sums_of_exponentials_of_infinities(axes, keepdims):
    given = {"x": np.array([[1, np.inf, 2], [-np.inf, 3, -np.inf], [-np.inf] * 3, [1, 2, 3]], "float32")}
    constants = {} if axes is None else {"a": np.array(axes)}
    operator = node("ReduceLogSumExp", "x" if axes is None else "x,a", keepdims=keepdims)
    for x in (given["x"], np.full((2, 2), -np.inf, "float32"), np.array([[1, np.nan]], "float32")):
        check(model_of([operator], {"x": x}, FLOAT, constants), {"x": x})


def test_log_of_sums_of_exponentials_of_integers_has_no_fraction():
    """-2.69 becomes -2 by the standard's function; onnxruntime adds the maximum to the truncated 0.31."""
    given = {"x": np.array([[-4, -3], [0, -5], [4, -2]])}
    model = model_of([node("ReduceLogSumExp", "x,a", keepdims=0)], given, {"y": "int64"}, {"a": np.array([1])})
    (result,), (wanted,) = by_package(model, given), by_reference(model, given)
    np.testing.assert_array_equal(result, [-2, 0, 4])
    np.testing.assert_array_equal(wanted, result)


@pytest.mark.parametrize("reduction", ["min", "max"])
def test_scattered_extremes_keep_nan(reduction):
    """As in ScatterND; onnxruntime ignores one that is not the first."""
    given = {"x": np.array([[1, np.nan, 3]], "float32"), "u": np.array([[np.nan, 2, 7]], "float32")}
    operator = node("ScatterElements", "x,i,u", axis=1, reduction=reduction)
    model = model_of([operator], given, FLOAT, {"i": np.array([[0, 1, -1]])})
    (result,), (wanted,) = by_package(model, given), by_reference(model, given)
    np.testing.assert_array_equal(result, [[np.nan, np.nan, 3 if reduction == "min" else 7]])
    np.testing.assert_array_equal(wanted, result)


def test_a_chain_whose_fused_name_is_longer_than_a_file_name():
    given = {"x": floats(4, 7)}
    names = ["x", *(f"a{i}" for i in range(23)), "y"]
    check(model_of([node("Neg", a, b) for a, b in pairwise(names)], given, FLOAT), given)


UNARY = "Acos Asinh Atan Celu Cosh Elu Erf Gelu Selu Sign Sinh ThresholdedRelu"


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("operator", UNARY.split())
def test_functions_in_half_and_double_precision(operator, dtype):
    given = {"x": np.linspace(-1, 1, 12).reshape(3, 4).astype(dtype)}
    model = model_of([node(operator, "x")], given, {"y": dtype}, opset=20)
    result = by_package(model, given)[0]
    if operator in ("Erf", "Gelu"):  # the reference's has seven digits
        x = given["x"].astype("float64")
        wanted = np.vectorize(math.erf)(x if operator == "Erf" else x / math.sqrt(2))
        wanted = wanted if operator == "Erf" else x * (1 + wanted) / 2
    else:
        wanted = by_reference(model, given)[0]
    assert (result.dtype, result.shape) == (given["x"].dtype, (3, 4))
    rtol, atol = (2e-3, 1e-3) if dtype == "float16" else (1e-7, 1e-12)
    np.testing.assert_allclose(result.astype("float64"), wanted.astype("float64"), rtol=rtol, atol=atol)


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float16"])
@pytest.mark.parametrize(("bias", "lambd"), [(1.5, 0.5), (0.0, 1.3), (-0.75, 2.5)])
def test_shrink_takes_fractions_for_every_type(bias, lambd, dtype):
    given = {"x": np.array([0, 1, 2, 3, 5, 9] if dtype == "uint8" else [-9, -3, -2, -1, 0, 1, 1.3, 2, 3]).astype(dtype)}
    check(model_of([node("Shrink", "x", bias=bias, lambd=lambd)], given, {"y": dtype}), given, rtol=1e-3)


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceL2", "ReduceSumSquare", "ReduceL1", "ReduceMax"])
def test_reductions_keep_the_type_of_integers(operator, dtype):
    given = {"x": np.random.default_rng(0).integers(-9, 10, (3, 5)).astype(dtype)}
    model = model_of([node(operator, "x,a")], given, {"y": dtype}, {"a": np.array([1])})
    if (operator, dtype) == ("ReduceL2", "int64"):  # which onnxruntime lacks
        wanted = np.sqrt((given["x"] ** 2).sum(axis=1, keepdims=True)).astype(dtype)
        np.testing.assert_array_equal(by_package(model, given)[0], wanted)
        return
    check(model, given)


@pytest.mark.parametrize(("size", "beta"), [(1, 0.75), (2, 0.75), (3, 0.5), (4, 1.0), (5, 0.75), (5, 0.6), (7, 0.75)])
def test_local_response_normalization_of_an_odd_and_an_even_number_of_channels(size, beta):
    given = {"x": floats(1, 5, 3, 2)}
    model = model_of([node("LRN", "x", size=size, alpha=0.5, beta=beta)], given, FLOAT)
    if size % 2:
        check(model, given)
    squares = np.pad(given["x"] ** 2, [(0, 0), ((size - 1) // 2, size // 2), (0, 0), (0, 0)])
    sums = sum(squares[:, place : place + 5] for place in range(size))
    np.testing.assert_allclose(by_package(model, given)[0], given["x"] / (1 + 0.5 / size * sums) ** beta, rtol=1e-5)


# ---- recurrent layers ------------------------------------------------------------------------------------------------


def recurrent(operator, gates, directions, bias=True):
    given = {"x": floats(4, 2, 5)}
    constants = {"w": floats(directions, gates * 3, 5), "r": floats(directions, gates * 3, 3)}
    if bias:
        constants["b"] = floats(directions, 2 * gates * 3)
    return given, constants


@pytest.mark.parametrize(
    ("activations", "alpha", "beta"),
    [
        pytest.param(["Tanh", "LeakyRelu"], [0.3], [], marks=newer_judge),
        pytest.param(["HardSigmoid", "LeakyRelu"], [0.3, 0.2], [0.4], marks=newer_judge),
        (["Affine", "HardSigmoid"], [0.3, 0.1], [0.4, 0.6]),
        (["ThresholdedRelu", "Elu"], [0.3, 0.7], []),
    ],
)
def test_activations_of_an_rnn_take_their_numbers_in_order(activations, alpha, beta):
    given, constants = recurrent("RNN", 1, 2)
    numbers = {"activation_alpha": alpha, "activation_beta": beta}
    numbers = {name: value for name, value in numbers.items() if value}
    operator = node("RNN", "x,w,r,b", hidden_size=3, direction="bidirectional", activations=activations, **numbers)
    check(model_of([operator], given, FLOAT, constants), given, rtol=1e-4, atol=1e-5)


def test_activations_of_an_lstm_take_their_numbers_in_order():
    given, constants = recurrent("LSTM", 4, 1)
    numbers = {"activation_alpha": [0.3, 0.7], "activation_beta": [0.4, 0.1]}
    operator = node("LSTM", "x,w,r,b", hidden_size=3, activations=["HardSigmoid", "Tanh", "Affine"], **numbers)
    check(model_of([operator], given, FLOAT, constants), given, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "activations",
    [
        pytest.param(["Tanh", "LeakyRelu"], marks=newer_judge),
        pytest.param(["LeakyRelu", "Tanh"], marks=newer_judge),
        ["Softsign", "Softsign"],
    ],
)
def test_an_rnn_of_constant_weights_without_a_bias(activations):
    given, constants = recurrent("RNN", 1, 2, bias=False)
    operator = node("RNN", "x,w,r", hidden_size=3, direction="bidirectional", activations=activations)
    check(model_of([operator], given, FLOAT, constants), given, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("output", [0, 1, 2])
def test_an_lstm_into_a_norm(output):
    given, constants = recurrent("LSTM", 4, 1)
    outputs = ",".join("a" if place == output else "" for place in range(output + 1))
    nodes = [node("LSTM", "x,w,r,b", outputs, hidden_size=3), node("ReduceL2", "a,axes", keepdims=0)]
    check(model_of(nodes, given, FLOAT, {**constants, "axes": [-1]}), given, rtol=1e-4, atol=1e-5)


# ---- what is behind data-dependent shapes ----------------------------------------------------------------------------

BEHIND = {
    "relu": ([("Relu", "a")], {}),
    "matmul": ([("MatMul", "a,w"), ("Softmax", "b1")], {"w": floats(3, 5)}),
    "sum": ([("ReduceSum", "a,axes")], {"axes": np.array([0])}),
    "norm": ([("LayerNormalization", "a,s")], {"s": floats(3)}),
    "concat": ([("Concat", "a,x")], {}),
    "transpose": ([("Transpose", "a"), ("Neg", "b1")], {}),
}


@pytest.mark.parametrize("name", BEHIND)
def test_compress_followed_by_others(name):
    chain, constants = BEHIND[name]
    given = {"x": floats(4, 3), "c": np.array([1, 0, 1, 1], bool)}
    nodes = [node("Compress", "x,c", "a", axis=0)]
    for place, (operator, inputs) in enumerate(chain):
        output = "y" if place == len(chain) - 1 else f"b{place + 1}"
        nodes.append(node(operator, inputs, output, **({"axis": 0} if operator == "Concat" else {})))
    check(model_of(nodes, given, FLOAT, constants), given, rtol=1e-4, atol=1e-5)


def test_non_max_suppression_followed_by_others():
    given = {"b": BOXES, "s": np.array([[[0.9, 0.8, 0.7, 0.6, 0.5]]], "float32"), "x": floats(5, 3)}
    constants = {"m": np.array([10]), "t": np.array([0.3], "float32"), "two": np.array(2)}
    nodes = [
        node("NonMaxSuppression", "b,s,m,t", "i"),
        node("Gather", "i,two", "g", axis=1),
        node("Gather", "x,g", "a"),
        node("Mul", "a,a"),
    ]
    check(model_of(nodes, given, FLOAT, constants), given)


@newer_judge
@pytest.mark.parametrize("operator", ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Sum", "SumSquare"])
def test_reductions_of_no_axes_are_taken_of_each_element(operator):
    given = {"x": np.abs(floats(3, 4)) if operator == "LogSum" else floats(3, 4)}
    check(model_of([node(f"Reduce{operator}", "x", noop_with_empty_axes=1)], given, FLOAT), given)


@pytest.mark.parametrize("operator", ["L1", "SumSquare"])
@pytest.mark.parametrize("opset", [13, 18])
def test_reductions_of_integers(operator, opset):
    given = {"x": np.arange(-6, 6).reshape(3, 4).astype("int64")}
    check(model_of([node(f"Reduce{operator}", "x")], given, {"y": "int64"}, opset=opset), given)


# ---- windows and places ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["MaxPool", pytest.param("AveragePool", marks=newer_judge)])
@pytest.mark.parametrize(("kernel", "strides"), [([4, 4], [2, 2]), ([33, 4], [40, 3])])
def test_pools_of_a_window_that_exceeds_the_image_with_ceil_mode(operator, kernel, strides):
    given = {"x": floats(1, 1, 3, 3) if kernel[0] == 4 else floats(1, 2, 30, 3)}
    counted = {"count_include_pad": 1} if operator == "AveragePool" else {}
    model = model_of([node(operator, "x", kernel_shape=kernel, strides=strides, ceil_mode=1, **counted)], given, FLOAT)
    check(model, given)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("pads", [[0, 0, 1, 1], [2, 1, 0, 0]])
def test_a_pool_of_one_window_over_a_border(operator, pads):
    """The image is followed by other numbers, which are not part of the window."""
    given = {"x": floats(1, 1, 3, 37)}
    nodes = [node(operator, "x", "a", kernel_shape=[4, 38], pads=pads, strides=[9, 9]), node("Neg", "a")]
    check(model_of(nodes, given, FLOAT), given)


@pytest.mark.parametrize("shape", [[2, 3, 1, 2], [2, 3, 4, 1]])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_with_aligned_corners_beside_an_axis_of_one(shape, mode):
    given, scales = {"x": floats(*shape)}, [1, 1, *(1 if extent == 1 else 1.5 for extent in shape[2:])]
    operator = node("Resize", "x,,s", mode=mode, coordinate_transformation_mode="align_corners")
    check(model_of([operator], given, FLOAT, {"s": np.array(scales, "float32")}), given)


@pytest.mark.parametrize(
    ("equation", "steps"),
    [
        ("ij,jk,kl->il", 2),
        ("ij,jk,kl,lm", 3),
        ("ab,ab,cd->cd", 2),
        ("iia,ab,b->a", 2),
        ("a,b,c->", 2),
        ("ij,jk,ik->", 2),
        ("ij,kj,lj->ikl", 1),  # pairs save nothing
        ("ba,ca,da->abcd", 1),
    ],
)
def test_several_operands_are_multiplied_in_pairs(equation, steps):
    extents = dict(zip("abcdijklm", (3, 5, 4, 2, 6, 7, 3, 5, 4), strict=True))
    terms = equation.partition("->")[0].split(",")
    given = {f"x{n}": floats(*(extents[letter] for letter in term)) for n, term in enumerate(terms)}
    made = model_of([node("Einsum", ",".join(given), equation=equation)], given, FLOAT)
    compiled = compile_model(made, cache=False)
    wanted = np.einsum(equation, *given.values())
    np.testing.assert_allclose(compiled.run(*given.values()), wanted, rtol=1e-4, atol=1e-4)
    assert sum(o.calls for o in compiled.report().operators if "einsum" in o.name) == steps


def in_order(x, axis, exclusive, reverse):
    """Sums along an axis, one element after the other."""
    rows = np.moveaxis(x, axis, 0)[:: -1 if reverse else 1]
    sums = [np.zeros_like(rows[0]) if exclusive else rows[0]]
    for before, row in pairwise(rows):
        sums.append(sums[-1] + (before if exclusive else row))
    return np.moveaxis(np.stack(sums[:: -1 if reverse else 1]), 0, axis)


@pytest.mark.parametrize(("reverse", "exclusive"), [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize(
    ("shape", "axis", "kind"),
    [
        ((7, 5), 0, "float32"),
        ((1, 33), 0, "float64"),
        ((5, 70, 131), 1, "float32"),
        ((300, 257), 0, "int32"),
        ((17, 3, 2, 50), 0, "int64"),
    ],
)
def test_running_sums_along_outer_axes_take_vectors_of_columns(shape, axis, kind, reverse, exclusive):
    x = (100 * floats(*shape)).astype(kind)
    x.flat[:2] = -0.0
    attributes = {"reverse": reverse, "exclusive": exclusive}
    made = model_of([node("CumSum", "x,a", **attributes)], {"x": x}, {"y": kind}, {"a": np.array(axis)})
    compiled = compile_model(made, cache=False)
    result, wanted = compiled.run(x), in_order(x, axis, exclusive, reverse)
    assert result.dtype == x.dtype and result.tobytes() == wanted.tobytes()
    # The operator of TVM, which adds one column after the other, is cumsum_generic or has no record.
    assert sum(o.calls for o in compiled.report().operators if o.name == "cumsum") == 1


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [[-5, 3], [2**31, 3], [3, 2**62]])
def test_dimensions_that_are_not_sizes_are_refused(shape):
    model = model_of([node("Relu", "x")], {"x": floats(1, 3)}, FLOAT)
    for dim, extent in zip(model.graph.input[0].type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = extent
    with pytest.raises(ModelFormatError, match=r"a dimension of input 'x' .* is out of range: .*; expected 0 to "):
        compile_model(model, cache=False)


@pytest.mark.parametrize(
    ("equation", "words"),
    [
        ("ij,jk->ijm", "letters in the result that occur in its terms"),
        ("ij,jk->ii", "letters in the result that occur in its terms, each once"),
        ("ij,jk->...", "letters in the result that occur in its terms"),
        ("ij,jk,k->i", "has 3 terms; expected 2"),
        ("ijl,jk->i", "term 'ijl' does not match an input of 2 axes"),
        ("i,jk->i", "term 'i' does not match an input of 2 axes"),
        ("ij,ik->jk", "'i' is 2 and 3"),
        ("i1,jk->i", "expected letters, commas"),
        ("i->j->k,jk", "expected letters, commas"),
    ],
)
def test_invalid_equations_are_refused(equation, words):
    given = {"x": floats(2, 3), "w": floats(3, 4)}
    with pytest.raises(UnsupportedOperator, match=words):
        compile_model(model_of([node("Einsum", "x,w", equation=equation)], given, FLOAT), cache=False)


def test_recursive_functions_are_refused():
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my.own", 1)]
    body = [helper.make_node("Itself", ["a"], ["b"], domain="my.own")]
    function = helper.make_function("my.own", "Itself", ["a"], ["b"], body, opsets)
    model = model_of([helper.make_node("Itself", ["x"], ["y"], domain="my.own")], {"x": floats(3)}, FLOAT)
    model.functions.append(function)
    model.opset_import.append(opsets[1])
    with pytest.raises(ModelFormatError, match=r"a function calls itself"):
        compile_model(model, cache=False)


def test_means_of_nothing_are_what_the_reference_says():
    given = {"x": floats(2, 0, 3)}
    model = model_of([node("ReduceMean", "x,a")], given, FLOAT, {"a": np.array([1])})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy warns of intended values here
        wanted = by_reference(model, given)
    np.testing.assert_array_equal(by_package(model, given)[0], wanted[0])


# ---- sequences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9, 11])
def test_a_split_into_parts_of_one_size(size):
    """Nine elements in parts of 4 are 4, 4 and 1."""
    given = {"x": floats(2, 9)}
    last = [node("SplitToSequence", "x,n", "s", axis=1), node("SequenceAt", "s,p"), node("SequenceLength", "s", "l")]
    check(model_of(last, given, {"y": "float32", "l": "int64"}, {"n": size, "p": -1}), given)


@pytest.mark.parametrize(("axis", "new"), [(0, 0), (-1, 0), (0, 1), (-1, 1), (1, 1)])
def test_a_sequence_that_is_changed_and_joined(axis, new):
    given = {"a": floats(2, 3), "b": floats(2, 3) + 1, "c": floats(2, 3) + 2}
    nodes = [
        node("SequenceConstruct", "a,b", "s0"),
        node("SequenceInsert", "s0,c,zero", "s1"),
        node("SequenceInsert", "s1,a", "s2"),
        node("SequenceErase", "s2,one", "s3"),
        node("ConcatFromSequence", "s3", axis=axis, new_axis=new),
    ]
    check(model_of(nodes, given, FLOAT, {"zero": 0, "one": 1}), given)


def test_rows_of_a_split_without_sizes():
    given = {"x": floats(4, 3)}
    nodes = [node("SplitToSequence", "x", "s", keepdims=0), node("SequenceAt", "s,p")]
    check(model_of(nodes, given, FLOAT, {"p": 2}), given)


def test_a_position_outside_of_a_sequence_is_refused():
    given = {"x": floats(4, 3)}
    nodes = [node("SequenceConstruct", "x,x", "s"), node("SequenceAt", "s,p")]
    with pytest.raises(UnsupportedOperator, match="position 2 is outside a sequence of length 2"):
        compile_model(model_of(nodes, given, FLOAT, {"p": 2}))


@pytest.mark.parametrize("sizes", [(7, 7), (9, 5), (3, 11)])
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil"])
def test_the_nearest_of_two_that_are_as_near(sizes, rounding):
    """2 pixels to 7: the fourth lies halfway between both."""
    given = {"x": floats(1, 1, 2, 2)}
    resize = node("Resize", "x,,,n", mode="nearest", nearest_mode=rounding)
    check(model_of([resize], given, FLOAT, {"n": [1, 1, *sizes]}), given)


@pytest.mark.parametrize(
    ("dtype", "extremes"),
    [
        ("bool", (False, True)),
        ("int32", (-(2**31), 2**31 - 1)),
        ("uint8", (0, 255)),
        ("float32", (-math.inf, math.inf)),
    ],
)
@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin"])
def test_extremes_of_nothing(operator, dtype, extremes):
    given = {"x": np.zeros((2, 0, 3), dtype)}
    result = by_package(model_of([node(operator, "x,a")], given, {"y": dtype}, {"a": [1]}, opset=20), given)[0]
    np.testing.assert_array_equal(result, np.full((2, 1, 3), extremes[operator == "ReduceMin"], dtype))


# ---- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "training"), [(0.5, False), (0.0, True), (0.0, False)])
def test_dropout_that_drops_nothing(ratio, training):
    given = {"x": floats(3, 4)}
    constants = {"r": np.float32(ratio), "t": np.asarray(training)}
    check(model_of([node("Dropout", "x,r,t")], given, FLOAT, constants), given)


def test_dropout_in_training_is_refused():
    given = {"x": floats(3, 4), "r": np.float32(0.5), "t": np.asarray(True)}
    with pytest.raises(UnsupportedOperator, match="the dropped elements are random"):
        compile_model(model_of([node("Dropout", "x,r,t")], {"x": given["x"]}, FLOAT, {"r": given["r"], "t": True}))
    with pytest.raises(UnsupportedOperator, match=r"expected params=\{'t': value\}"):
        compile_model(model_of([node("Dropout", "x,r,t")], given, FLOAT))


@pytest.mark.parametrize("values", [[0, 0], [-1.5, 2, 0.25], [3, 4], [-3, -4], [], [1e-39], [np.inf, 1]])
def test_dynamic_quantisation(values):
    given = {"x": np.array(values, "float32")}
    outputs = {"y": "uint8", "scale": "float32", "start": "uint8"}
    check(model_of([node("DynamicQuantizeLinear", "x", "y,scale,start")], given, outputs), given)


@pytest.mark.parametrize("inputs", [[], [""]])
def test_nothing_has_no_element(inputs):
    nodes = [helper.make_node("OptionalHasElement", inputs, ["y"]), node("Relu", "x", "z")]
    given = {"x": floats(3)}
    model = model_of(nodes, given, {"y": "bool", "z": "float32"})
    assert not by_package(model, given)[0] and not by_reference(model, given)[0]


# ---- quantisation, norms and versions --------------------------------------------------------------------------------


@pytest.mark.values
@pytest.mark.parametrize("kind", ["int8", "uint8", "int16"])
@pytest.mark.parametrize(("axis", "block"), [(1, 2), (-2, 3), (0, 1)])
def test_quantisation_by_blocks(axis, block, kind):
    given = {"x": floats(2, 4, 3)}
    shape = [2, 4, 3]
    shape[axis] = -(-shape[axis] // block)
    count = math.prod(shape)
    scales = np.linspace(0.05, 0.5, count, dtype="float32").reshape(shape)
    constants = {"s": scales, "z": np.arange(count).reshape(shape).astype(kind)}
    nodes = [
        node("QuantizeLinear", "x,s,z", "q", axis=axis, block_size=block),
        node("DequantizeLinear", "q,s,z", "y", axis=axis, block_size=block),
        node("DequantizeLinear", "q,s", "w", axis=axis, block_size=block),
    ]
    check(model_of(nodes, given, {"q": kind, "y": "float32", "w": "float32"}, constants, opset=21), given)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("domain", [pytest.param("", marks=newer_judge), "com.microsoft"])
def test_quantisation_of_halves_clips_to_every_type_and_back_to_infinity(domain, kind):
    given = {"x": np.array([-60000, -1.79, 0, 0.99, 2.59, 60000], "float16")}
    constants = {"s": np.array(0.02, "float16"), "z": np.array(2, kind), "t": np.array(600, "float16")}
    nodes = [
        node("QuantizeLinear", "x,s,z", domain=domain),
        node("DequantizeLinear", "y,t,z", "back", domain=domain),
    ]
    model = model_of(nodes, given, {"y": kind, "back": "float16"}, constants, opset=21)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    check(model, given)


@pytest.mark.values
@pytest.mark.parametrize(
    ("opset", "dtype"),
    [(7, "float32"), (8, "float16"), (10, "float32"), (11, "float32"), (13, "float16"), (13, "float64")],
)
@pytest.mark.parametrize("bounds", [{}, {"min": -1.0}, {"max": 1.0}])
def test_clip_without_a_bound_clips_infinities(bounds, opset, dtype):
    given = {"x": np.array([-np.inf, -2, 0, 2, np.inf, np.nan], dtype)}
    if opset < 11:
        check(model_of([node("Clip", "x", **bounds)], given, {"y": dtype}, opset=opset), given)
    else:
        names = ",".join(["x", *(name if name in bounds else "" for name in ("min", "max"))])
        constants = {name: np.array(number, dtype) for name, number in bounds.items()}
        check(model_of([node("Clip", names)], given, {"y": dtype}, constants, opset=opset), given)


def test_a_clip_is_part_of_the_convolution_before_it():
    """As an operator of its own, it would turn the image to channels first and back."""
    given, constants = (
        {"x": floats(1, 16, 8, 8)},
        {"k": floats(16, 16, 1, 1), "low": np.float32(0), "high": np.float32(6)},
    )
    nodes = [node("Conv", "x,k", "c"), node("Clip", "c,low,high", "d"), node("Conv", "d,k")]
    model = model_of(nodes, given, FLOAT, constants)
    names = [each.name for each in compile_model(model, cache=False).report().operators]
    assert [name for name in names if "conv" not in name and "transpose" not in name] == []
    check(model, given)


def test_weights_of_4_bits_are_dequantised_before_the_run():
    """Few enough to stay in the graph, where nothing reads them any more."""
    given, constants = {"x": floats(3, 4)}, {"s": np.float32(0.5)}
    nodes = [node("DequantizeLinear", "q,s", "w"), node("Mul", "x,w")]
    model = model_of(nodes, given, FLOAT, constants, opset=21)
    model.graph.initializer.append(helper.make_tensor("q", TensorProto.INT4, [4], [1, -2, 7, -8]))
    check(model, given)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_mean_and_deviation_of_a_layer_are_of_float32(dtype):
    given = {"x": floats(2, 3, 8).astype(dtype)}
    outputs = {"y": dtype, "mean": "float32", "inverse": "float32"}
    constants = {"s": floats(8).astype(dtype), "b": floats(8).astype(dtype)}
    close = 4e-3 if dtype == "float16" else 1e-5
    model = model_of([node("LayerNormalization", "x,s,b", "y,mean,inverse")], given, outputs, constants)
    check(model, given, rtol=close, atol=close)


def test_the_mask_of_a_dropout_has_the_type_of_the_data_before_version_10():
    given = {"x": floats(2, 3)}
    kept, mask = by_package(model_of([node("Dropout", "x", "y,m")], given, {**FLOAT, "m": "float32"}, opset=9), given)
    np.testing.assert_array_equal(kept, given["x"])
    np.testing.assert_array_equal(mask, np.ones((2, 3), "float32"))


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_places_of_extremes_along_an_axis_from_the_end_before_version_11(operator):
    given = {"x": floats(2, 3, 4)}
    check(model_of([node(operator, "x", axis=-1, keepdims=0)], given, {"y": "int64"}, opset=9), given)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_constant_labels(reduction):
    """Their definitions follow from the types of all operands."""
    given = {"x": floats(3, 5)}
    constants = {"labels": np.array([1, 0, 4]), "weights": np.arange(5, dtype="float32")}
    for operator in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        model = model_of([node(operator, "x,labels,weights", reduction=reduction)], given, FLOAT, constants)
        check(model, given)


def test_largest_elements_of_a_tensor_whose_size_the_run_decides():
    given = {"x": floats(4, 5), "keep": np.array([True, False, True, True, False])}
    nodes = [node("Compress", "x,keep", "few", axis=1), node("ReduceMax", "few,axes", "y", keepdims=0)]
    check(model_of(nodes, given, FLOAT, {"axes": np.array([1])}), given)


@pytest.mark.parametrize("ordered", [0, 1])
def test_different_elements_of_a_matrix(ordered):
    """The positions among all elements are those of the flattened matrix."""
    given = {"x": np.array([[3, 1, 3], [2, 1, 2], [3, 1, 3]])}
    outputs = dict.fromkeys(["y", "first", "places", "counts"], "int64")
    check(model_of([node("Unique", "x", ",".join(outputs), sorted=ordered)], given, outputs), given)


def test_axes_that_are_a_number():
    """As in the standard's own definition of AffineGrid; onnxruntime supports vectors only."""
    given = {"x": floats(2, 1, 3)}
    nodes = [node("Squeeze", "x,one", "s"), node("Unsqueeze", "s,last")]
    (result,) = by_package(model_of(nodes, given, FLOAT, {"one": np.array(1), "last": np.array(-1)}), given)
    np.testing.assert_array_equal(result, given["x"].reshape(2, 3, 1))


def test_a_remainder_of_a_size_that_the_run_decides_is_refused_or_right():
    given = {"x": np.array([3.5, -1.25, 3.5], "float32")}
    for divisors in ([np.inf], [[2.0], [np.inf]]):
        nodes = [node("Unique", "x", "u"), node("Mod", "u,d", fmod=1)]
        check(model_of(nodes, given, FLOAT, {"d": np.float32(divisors)}), given)
    nodes = [node("Unique", "x", "u"), node("Mod", "u,d", fmod=1)]
    with pytest.raises(UnsupportedOperator, match="not known at compile time"):
        by_package(model_of(nodes, given, FLOAT, {"d": np.float32([1, 2])}), given)


def test_an_extent_that_the_run_decides_is_a_result():
    given = {"x": floats(2, 3), "keep": np.array([True, False, True])}
    nodes = [node("Compress", "x,keep", "c", axis=1), node("Shape", "c", "s", start=1), node("Squeeze", "s,first", "y")]
    check(model_of(nodes, given, {"y": "int64"}, {"first": np.array([0])}), given)


@pytest.mark.parametrize(
    ("operator", "constants"),
    [
        ("OneHot", {"i": [0, 2, -1, 7], "d": 3, "v": np.array([np.nan, 1], "float32")}),
        ("OneHot", {"i": [[0, 2], [-1, 7]], "d": [3], "v": np.array([-np.inf, np.inf], "float32")}),
        ("Clip", {"x": np.array([-np.inf, -2, 2, np.inf, np.nan], "float32")}),
        ("Clip", {"x": np.array([-np.inf, -2, 2, np.inf], "float32"), "low": np.float32(-1)}),
        ("Clip", {"x": np.array([-np.inf, -2, 2, np.inf], "float32"), "low": np.float32(-np.inf)}),
    ],
)
def test_constants_are_folded_to_what_operators_give(operator, constants):
    check(model_of([node(operator, ",".join(constants))], {}, FLOAT, constants), {})


def test_a_triangle_of_what_attention_gives():
    """32-bit positions in the kernel are compared with a 64-bit sum of the model."""
    given = {"q": floats(2, 2, 2, 4), "k": floats(2, 2, 3, 4), "v": floats(2, 2, 3, 4)}
    attention = helper.make_node("Attention", ["q", "k", "v"], ["t"], is_causal=1)
    triangle = helper.make_node("Trilu", ["t", "diagonal"], ["y"], upper=1)
    graph = helper.make_graph(
        [attention, triangle],
        "triangle",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in given.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(-1), "diagonal")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    scores = np.einsum("bhqd,bhkd->bhqk", given["q"], given["k"]) / 2
    scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    want = np.triu(np.einsum("bhqk,bhkd->bhqd", shares / shares.sum(-1, keepdims=True), given["v"]), -1)
    np.testing.assert_allclose(compile_model(model, cache=False).run(**given), want, rtol=1e-5, atol=1e-6)
