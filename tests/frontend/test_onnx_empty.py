"""ONNX operators on tensors without elements, compared with onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_judge import by_package, check, model_of, newer_judge

from tvm_tiling.errors import UnsupportedOperator

FLOAT = {"y": "float32"}


def floats(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def one(operator, given, constants=None, kind="float32", **attributes):
    """Return a model of one operator, with inputs followed by constants."""
    constants = constants or {}
    node = helper.make_node(operator, [*given, *constants], ["y"], **attributes)
    return model_of([node], given, {"y": kind}, constants)


@pytest.mark.values
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(("reverse", "exclusive"), [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3)])
def test_running_sums_of_nothing(shape, axis, reverse, exclusive):
    given = {"x": floats(*shape)}
    check(one("CumSum", given, {"a": np.array(axis)}, reverse=reverse, exclusive=exclusive), given)


@pytest.mark.parametrize("shape", [(0, 3, 2, 2), (2, 3, 0, 2), (2, 0, 2, 2)])
def test_mean_variance_normalization_of_nothing(shape):
    given = {"x": floats(*shape)}
    check(one("MeanVarianceNormalization", given), given)


# By name: operator, shape of its input, constants, attributes.
CASES = {
    "matmul over nothing": ("MatMul", (2, 0), {"w": floats(0, 3)}, {}),
    "matmul of no rows": ("MatMul", (0, 4), {"w": floats(4, 3)}, {}),
    "gemm": ("Gemm", (2, 0), {"w": floats(0, 3), "b": floats(3)}, {}),
    "softmax": ("Softmax", (2, 0), {}, {}),
    "layer norm": ("LayerNormalization", (0, 2), {"s": floats(2)}, {}),
    "conv": ("Conv", (0, 2, 5, 5), {"w": floats(3, 2, 3, 3)}, {}),
    "pool": ("MaxPool", (0, 2, 5, 5), {}, {"kernel_shape": [2, 2]}),
    "pad to something": ("Pad", (2, 0), {"p": np.array([0, 2, 0, 1])}, {}),
    "concat": ("Concat", (2, 0), {"c": floats(2, 3)}, {"axis": 1}),
    "reshape": ("Reshape", (2, 0), {"s": np.array([0, 7])}, {"allowzero": 1}),
    "expand": ("Expand", (2, 1), {"s": np.array([2, 0])}, {}),
    "gather": ("Gather", (2, 3), {"i": np.array([], "int64")}, {}),
    "tile": ("Tile", (2, 4), {"r": np.array([0, 2])}, {}),
    "sum": ("ReduceSum", (2, 0, 3), {"a": np.array([1])}, {}),
    "product": ("ReduceProd", (2, 0, 3), {"a": np.array([1])}, {}),
    "einsum over nothing": ("Einsum", (2, 0), {"w": floats(0, 3)}, {"equation": "ij,jk->ik"}),
    "einsum of batches over nothing": ("Einsum", (2, 3, 0), {"w": floats(2, 0, 4)}, {"equation": "bij,bjk->bik"}),
    "einsum to one": ("Einsum", (2, 0), {"w": floats(0)}, {"equation": "ij,j->"}),
    "resize": ("Upsample", (0, 1, 4, 4), {"s": np.array([1, 1, 2, 2], "float32")}, {}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=newer_judge) if name.startswith("einsum") else name for name in CASES]
)
def test_nothing(name):
    operator, shape, constants, attributes = CASES[name]
    given = {"x": floats(*shape)}
    model = one(operator, given, constants, **attributes)
    if operator == "Upsample":
        model.opset_import[0].version = 9
    check(model, given)


def test_a_convolution_of_no_channels():
    """It is zeros, for which onnxruntime 1.23 may return memory that was not written."""
    given = {"x": floats(2, 0, 5, 5)}
    (result,) = by_package(one("Conv", given, {"w": floats(3, 0, 3, 3)}), given)
    np.testing.assert_array_equal(result, np.zeros((2, 3, 3, 3), "float32"))


@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
@pytest.mark.parametrize(("operator", "operands"), [("Mul", ["s", "v"]), ("Div", ["v", "s"]), ("Div", ["s", "v"])])
def test_products_and_quotients_of_a_sum_of_nothing(operator, operands, kind):
    """It is a zero within the expression of the operator: infinities, NaN and signs stay."""
    numbers, zero = np.array([1.5, -2.0, 0.0, -0.0, np.inf, -np.inf, np.nan], kind), np.zeros((), kind)
    given = {"x": np.zeros((1, 0), kind), "w": np.zeros((0, 1), kind), "v": numbers}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node(operator, operands, ["y"])]
    (result,) = by_package(model_of(nodes, given, {"y": kind}), given)
    with np.errstate(all="ignore"):
        left, right = ({"s": zero, "v": numbers}[name] for name in operands)
        wanted = left * right if operator == "Mul" else left / right
    known = ~np.isnan(wanted)
    np.testing.assert_array_equal(result, wanted[None])
    np.testing.assert_array_equal(np.signbit(result[0][known]), np.signbit(wanted[known]))


def test_bits_of_a_sum_of_nothing():
    given = {"x": np.zeros((0, 3), "int32")}
    nodes = [
        helper.make_node("ReduceSum", ["x", "a"], ["s"], keepdims=0),
        helper.make_node("BitCast", ["s"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    model = model_of(nodes, given, FLOAT, {"a": np.array([0])})
    model.opset_import[0].version = 26
    (result,) = by_package(model, given)
    np.testing.assert_array_equal(result, np.zeros(3, "float32"))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_rows_of_nothing(operator, shape):
    given = {"x": floats(*shape)}
    check(one(operator, given), given)


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_rows_of_nothing_before_version_13(operator):
    given = {"x": floats(0, 3, 1)}
    model = one(operator, given, axis=1)
    model.opset_import[0].version = 11
    check(model, given)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("shape", [(0, 4, 2, 2), (1, 0, 2, 2), (1, 4, 0, 2), (1, 4, 2, 0)])
def test_pixels_of_nothing_become_depth_and_back(shape, mode):
    given = {"x": floats(*shape)}
    check(one("DepthToSpace", given, blocksize=2, mode=mode), given)
    if mode == "DCR":
        check(one("SpaceToDepth", given, blocksize=2), given)


@pytest.mark.parametrize(
    ("operator", "shape", "dynamic", "constants", "attributes"),
    [
        ("Tile", (2, 0), 0, {"r": np.array([2, 3])}, {}),
        ("Tile", (0, 3), 1, {"r": np.array([2, 3])}, {}),
        ("DepthToSpace", (1, 4, 0, 2), 0, {}, {"blocksize": 2}),
        ("SpaceToDepth", (1, 0, 2, 2), 2, {}, {"blocksize": 2}),
    ],
)
def test_known_axes_without_elements_beside_a_dynamic_one(operator, shape, dynamic, constants, attributes):
    given = {"x": floats(*shape)}
    model = one(operator, given, constants, **attributes)
    model.graph.input[0].type.tensor_type.shape.dim[dynamic].dim_param = "n"
    check(model, given)


@pytest.mark.parametrize("operator", ["Max", "Min", "Sum", "Mean"])
def test_several_operands_without_elements(operator):
    """An extent of 1 broadcasts to 0."""
    given = {"x": floats(2, 0, 3), "y": floats(1, 1)}
    check(model_of([helper.make_node(operator, ["x", "y", "x"], ["z"])], given, {"z": "float32"}), given)


def test_a_shape_of_nothing_beside_another_use():
    """One zero extent for two, which Relax would take for the previous extent."""
    given = {"x": floats(5, 0, 7)}
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("Reshape", ["s", "shape"], ["r"], allowzero=1),
        helper.make_node("Softplus", ["r"], ["y"]),
        helper.make_node("Exp", ["s"], ["z"]),
    ]
    check(model_of(nodes, given, {**FLOAT, "z": "float32"}, {"shape": np.array([0])}), given)


@pytest.mark.parametrize(("shape", "k"), [((3, 4), 0), pytest.param((0, 4), 2, marks=newer_judge), ((4, 0), 0)])
def test_the_largest_of_nothing(shape, k):
    given = {"x": floats(*shape)}
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"])
    check(model_of([node], given, {**FLOAT, "i": "int64"}, {"k": np.array([k])}), given)


@pytest.mark.parametrize(("steps", "batch"), [(0, 2), (4, 0)])
@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers_of_no_steps_or_rows(operator, gates, steps, batch):
    given = {"x": floats(steps, batch, 5)}
    constants = {"w": floats(1, gates * 3, 5), "r": floats(1, gates * 3, 3)}
    node = helper.make_node(operator, ["x", "w", "r"], ["y", "h"], hidden_size=3)
    states, last = by_package(model_of([node], given, {**FLOAT, "h": "float32"}, constants), given)
    assert states.shape == (steps, 1, batch, 3)
    np.testing.assert_array_equal(last, np.zeros((1, batch, 3), "float32"))


@pytest.mark.values
@pytest.mark.parametrize(("operator", "gates"), [pytest.param("RNN", 1, marks=newer_judge), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("functions", [None, "Softsign"])
def test_sequences_without_steps_end_in_zeros(functions, operator, gates):
    rng, given, activations = np.random.default_rng(0), {"x": floats(3, 2, 3)}, {}
    shapes = {"w": (1, 2 * gates, 3), "r": (1, 2 * gates, 2), "h": (1, 2, 2), "c": (1, 2, 2)}
    constants = {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    constants["n"] = np.array([2, 0], "int32")
    names, results = ("x,w,r,,n,h,c", "y,h1,c1") if operator == "LSTM" else ("x,w,r,,n,h", "y,h1")
    if functions:
        activations = {"activations": [functions] * {"RNN": 1, "GRU": 2, "LSTM": 3}[operator]}
    node = helper.make_node(operator, names.split(","), results.split(","), hidden_size=2, **activations)
    check(model_of([node], given, dict.fromkeys(results.split(","), "float32"), constants), given)


def test_the_mean_of_no_integers_is_refused():
    with pytest.raises(UnsupportedOperator, match="the mean of no integers is undefined"):
        by_package(one("ReduceMean", {"x": np.zeros(0, "int64")}, kind="int64"), {"x": np.zeros(0, "int64")})
