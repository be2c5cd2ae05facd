"""8-bit matrix multiplications and convolutions with constant weights, compared with onnxruntime without optimisations.

Weights have 7 bits: on CPUs without VNNI onnxruntime adds products of uint8 and int8 in pairs of 16 bits, and
saturates.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_tiling as tt

onnxruntime = pytest.importorskip("onnxruntime")

from onnx_judge import newer_judge  # noqa: E402

OF = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8, "uint8": TensorProto.UINT8}


def model_of(nodes, given, constants, result=TensorProto.INT32):
    """Return a model whose output is the last node's; inputs by name as arrays."""
    graph = helper.make_graph(
        nodes,
        "integers",
        [helper.make_tensor_value_info(name, OF[str(array.dtype)], array.shape) for name, array in given.items()],
        [helper.make_tensor_value_info(nodes[-1].output[0], result, None)],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()],
    )
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


def both(model, given):
    """Return (ours, onnxruntime's), and the executable."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    executable = tt.compile(model)
    return executable.run(**given), session.run(None, given)[0], executable


def eight_bits(rng, dtype, *shape):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def weights_of(rng, dtype, *shape):
    return (
        rng.integers(-63, 63, shape, endpoint=True).astype("int8")
        if dtype == "int8"
        else eight_bits(rng, dtype, *shape)
    )


@pytest.mark.pairs
@pytest.mark.parametrize("computed", [False, True], ids=["constant zero", "computed zero"])
@pytest.mark.parametrize("columns", [False, True], ids=["one", "each column"])
@pytest.mark.parametrize("types", [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")], ids="-".join)
def test_gemms_with_zero_points(types, columns, computed):
    rng = np.random.default_rng(3)
    given = {"a": eight_bits(rng, types[0], 2, 5, 37)}
    zero = np.asarray(7, types[0])
    constants = {
        "b": weights_of(rng, types[1], 37, 19),
        "bz": eight_bits(rng, types[1], 19) if columns and types[1] == "uint8" else np.asarray(3, types[1]),
    }
    (given if computed else constants)["az"] = zero
    model = model_of([helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])], given, constants)
    got, want, executable = both(model, given)
    np.testing.assert_array_equal(got, want)
    assert [o.workload["dtype"] for o in executable.report().operators if o.workload is not None] == ["int8"]


@newer_judge
@pytest.mark.values
@pytest.mark.parametrize(
    "attributes", [{}, {"pads": [1, 2, 1, 0], "strides": [2, 1]}, {"auto_pad": "SAME_UPPER"}], ids=str
)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_convolutions_with_a_zero_point_that_is_computed(dtype, attributes):
    rng = np.random.default_rng(4)
    given = {"x": eight_bits(rng, dtype, 1, 8, 9, 10), "xz": np.asarray(11, dtype)}
    constants = {"w": weights_of(rng, "int8", 12, 8, 3, 3)}
    if dtype == "int8":
        # onnxruntime supports uint8 only: the same numbers and zero point, shifted by 128.
        higher = {name: np.asarray(array.astype(int) + 128, "uint8") for name, array in given.items()}
    else:
        higher = given
    node = helper.make_node("ConvInteger", ["x", "w", "xz"], ["y"], **attributes)
    _, want, _ = both(model_of([node], higher, constants), higher)
    got = tt.compile(model_of([node], given, constants)).run(**given)
    np.testing.assert_array_equal(got, want)


def test_dynamic_gemms_are_near():
    rng = np.random.default_rng(5)
    given = {"a": rng.standard_normal((6, 40)).astype(np.float32)}
    constants = {
        "b": weights_of(rng, "int8", 40, 24),
        "bs": rng.uniform(0.01, 0.02, 24).astype(np.float32),
        "bias": rng.standard_normal(24).astype(np.float32),
    }
    node = helper.make_node("DynamicQuantizeMatMul", ["a", "b", "bs", "", "bias"], ["y"], domain="com.microsoft")
    got, want, executable = both(model_of([node], given, constants, TensorProto.FLOAT), given)
    assert "int8" in [o.workload["dtype"] for o in executable.report().operators if o.workload is not None]
    # A number next to a rounding boundary may be rounded to the other side.
    np.testing.assert_allclose(got, want, atol=2 * 0.02 * 63 * float(np.ptp(given["a"])) / 255)


def test_products_times_both_scales():
    rng = np.random.default_rng(6)
    given = {"a": eight_bits(rng, "uint8", 6, 40), "as": np.float32(0.03), "az": np.uint8(120)}
    given = {name: np.asarray(value) for name, value in given.items()}
    constants = {"b": weights_of(rng, "int8", 40, 24), "bs": np.float32(0.02), "bias": np.ones(24, np.float32)}
    inputs = ["a", "b", "as", "bs", "az", "", "bias"]
    node = helper.make_node("MatMulIntegerToFloat", inputs, ["y"], domain="com.microsoft")
    got, want, _ = both(model_of([node], given, constants, TensorProto.FLOAT), given)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.pairs
@pytest.mark.parametrize("stored", ["int8", "uint8"])
@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_lstm_of_8_bit_weights(stored, by_channel, direction):
    """Compared with the float LSTM of the stored weights, and close to onnxruntime, which rounds inputs too."""
    rng = np.random.default_rng(8)
    directions, hidden, inputs = 1 + (direction == "bidirectional"), 12, 10
    given = {"x": rng.standard_normal((5, 2, inputs)).astype(np.float32)}
    shape = (directions, 4 * hidden) if by_channel else (directions,)
    constants, floats = {}, {}
    for name, terms in (("w", inputs), ("r", hidden)):
        values = weights_of(rng, stored, directions, terms, 4 * hidden)
        scale = rng.uniform(0.002, 0.004, shape).astype(np.float32)
        zero = np.full(shape, 128 if stored == "uint8" else 0, stored)
        spread = (directions, 1, -1)
        exact = (values.astype(np.float32) - zero.reshape(spread)) * scale.reshape(spread)
        floats[name] = np.ascontiguousarray(exact.transpose(0, 2, 1), np.float32)
        constants |= {name: values, f"{name}s": scale, f"{name}z": zero}
    bias = rng.standard_normal((directions, 8 * hidden)).astype(np.float32)
    given_to = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    options = {"hidden_size": hidden, "direction": direction}
    node = helper.make_node("DynamicQuantizeLSTM", given_to, ["y"], domain="com.microsoft", **options)
    got, near, _ = both(model_of([node], given, constants | {"b": bias}, TensorProto.FLOAT), given)
    plain = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], **options)
    _, want, _ = both(model_of([plain], given, floats | {"b": bias}, TensorProto.FLOAT), given)
    np.testing.assert_allclose(got, want, atol=2e-6)
    np.testing.assert_allclose(got, near, atol=0.03)


@pytest.mark.values
@pytest.mark.parametrize("opset", [13, 17, 19, 21, pytest.param(23, marks=newer_judge)])
@pytest.mark.parametrize("operator", ["Gemm", "MatMul", "Conv"])
def test_pairs_around_a_gemm_are_integers_at_any_version(operator, opset):
    rng = np.random.default_rng(9)
    shape, kernel = ((2, 12, 7, 6), (20, 12, 3, 3)) if operator == "Conv" else ((6, 12), (12, 20))
    given = {"x": rng.standard_normal(shape).astype(np.float32)}
    axis = 0 if operator == "Conv" else 1
    scales = rng.uniform(0.005, 0.01, 20).astype(np.float32)
    constants = {
        "w": weights_of(rng, "int8", *kernel),
        "ws": scales,
        "wz": np.zeros(20, np.int8),
        "b": rng.integers(-500, 500, 20).astype(np.int32),
        "bs": (scales * 0.02).astype(np.float32),
        "bz": np.zeros(20, np.int32),
        "xs": np.float32(0.02),
        "xz": np.uint8(120),
        "ys": np.float32(0.05),
        "yz": np.uint8(128),
    }
    biased = operator != "MatMul"
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=axis),
        *([helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0)] if biased else []),
        helper.make_node(operator, ["xd", "wd", "bd"][: 2 + biased], ["yd"]),
        helper.make_node("QuantizeLinear", ["yd", "ys", "yz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]),
    ]
    constants = {name: np.asarray(value) for name, value in constants.items() if biased or name[0] != "b"}
    model = model_of(nodes, given, constants, TensorProto.FLOAT)
    model.opset_import[0].version, model.ir_version = opset, 10
    got, want, executable = both(model, given)
    assert [o.workload["dtype"] for o in executable.report().operators if o.workload is not None] == ["int8"]
    np.testing.assert_allclose(got, want, atol=0.05 * 1.001)  # one step, next to a rounding boundary
    assert np.mean(got != want) < 0.05


BAD = {
    "a scale of 0": ({"s": np.float32(0)}, "a scale is 0; expected positive numbers"),
    "a scale of NaN": ({"s": np.float32("nan")}, "a scale is nan; expected positive numbers"),
    "a scale for each of other places": (
        {"s": np.ones(3, np.float32), "z": np.zeros(3, np.uint8)},
        r"scales have shape \(3,\) for data of shape \(2, 5\) along axis 1",
    ),
    "zero points of another number": (
        {"s": np.ones(5, np.float32), "z": np.zeros(4, np.uint8)},
        r"zero points have shape \(4,\) for data of shape \(2, 5\) along axis 1",
    ),
    "a zero point of another type": ({"z": np.int8(0)}, "the zero point has type int8; expected uint8"),
    "integers for scales": ({"s": np.int32(1)}, "scales have type int32; expected floats"),
}


@pytest.mark.parametrize("case", BAD)
def test_scales_that_do_not_fit_are_refused(case):
    changed, why = BAD[case]
    constants = {"s": np.float32(0.1), "z": np.uint8(0), **changed}
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"])
    given = {"x": np.zeros((2, 5), np.uint8)}
    with pytest.raises(tt.TilingError, match=why):
        tt.compile(model_of([node], given, constants, TensorProto.FLOAT))


@pytest.mark.parametrize(
    ("node", "constants", "why"),
    [
        (
            ("QuantizeLinear", "xsz"),
            {"s": np.float32(1), "z": np.int32(0)},
            "the zero point has type int32; expected int8, ",
        ),
        (
            ("QuantizeLinear", "xsz"),
            {"s": np.float32(1), "z": np.float32(0)},
            "the zero point has type float32; expected",
        ),
        (
            ("MatMulInteger", "qwzv"),
            {"z": np.uint8(3), "v": np.zeros(5, np.int8)},
            r"zero points have shape \(5,\) for w",
        ),
        (
            ("ConvInteger", "iwzv"),
            {"z": np.uint8(3), "v": np.ones(3, np.int8)},
            r"zero points have shape \(3,\) for weig",
        ),
        (
            ("DequantizeLinear", "qs"),
            {"s": np.ones((2, 2), np.float32)},
            r"expected \(2, 4\) for blocks of 2 along",
        ),
    ],
)
def test_zero_points_and_blocks_that_do_not_fit_are_refused(node, constants, why):
    operator, names = node
    shapes = {"x": (2, 8), "q": (2, 8), "i": (1, 2, 5, 5)}
    given = {names[0]: np.zeros(shapes[names[0]], np.float32 if names[0] == "x" else np.uint8)}
    if "w" in names:
        constants["w"] = np.ones((4, 2, 3, 3) if operator == "ConvInteger" else (8, 6), np.int8)
    attributes = {"block_size": 2, "axis": 1} if operator == "DequantizeLinear" else {}
    model = model_of(
        [helper.make_node(operator, list(names), ["y"], **attributes)], given, constants, TensorProto.FLOAT
    )
    model.opset_import[0].version = 21
    with pytest.raises(tt.TilingError, match=why):
        tt.compile(model, cache=False)


@pytest.mark.parametrize("operator", ["DequantizeLinear", "QLinearConv"])
def test_one_scale_and_zero_points_of_channels(operator):
    rng = np.random.default_rng(5)
    zeros = np.array([1, -2, 3, 0], np.int8)
    w = rng.integers(-99, 99, (4, 3, 3, 3)).astype(np.int8)
    s = np.float32(0.1)
    if operator == "DequantizeLinear":
        node, given = helper.make_node(operator, ["w", "s", "z"], ["y"], axis=0), {"w": w}
        want = s * (w - zeros.astype(np.float32).reshape(4, 1, 1, 1))
        got = tt.compile(model_of([node], given, {"s": s, "z": zeros}, TensorProto.FLOAT), cache=False).run(w)
    else:
        x = rng.integers(0, 255, (1, 3, 3, 3)).astype(np.uint8)
        parts = {"s": s, "u": np.uint8(9), "w": w, "z": zeros, "t": np.float32(7)}
        node = helper.make_node(operator, ["x", "s", "u", "w", "s", "z", "t", "u"], ["y"])
        sums = np.einsum("ncij,kcij->nk", x - 9.0, w - zeros.reshape(4, 1, 1, 1).astype(float)).reshape(1, 4, 1, 1)
        want = np.clip(np.round(sums * 0.01 / 7) + 9, 0, 255)
        got = tt.compile(model_of([node], {"x": x}, parts, TensorProto.UINT8), cache=False).run(x)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_scale_of_0_of_an_operator_of_the_quantizer_is_refused():
    given = {"x": np.zeros((2, 5), np.uint8)}
    constants = {"s": np.float32(0.1), "z": np.uint8(0), "none": np.float32(0)}
    node = helper.make_node("QLinearSigmoid", ["x", "s", "z", "none", "z"], ["y"], domain="com.microsoft")
    with pytest.raises(tt.TilingError, match="a scale is 0; expected positive numbers"):
        tt.compile(model_of([node], given, constants, TensorProto.UINT8))
