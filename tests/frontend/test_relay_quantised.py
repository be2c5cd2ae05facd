"""Relay's quantised operators, integer for integer, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from relay_cases import Case, check, outputs
from relay_reference import convolution, pool, quantized, requantized, transposed

import tvm_tiling as tt
from tvm_tiling.errors import UnsupportedOperator
from tvm_tiling.frontend import load_model
from tvm_tiling.frontend.relay.import_relay import read_relay
from tvm_tiling.frontend.relay.operators.qnn_scaling import fixed_point

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(1, 4, 5, 6)).astype("float32")
BYTES = RNG.integers(-128, 128, (1, 4, 5, 6)).astype("int8")
OTHERS = RNG.integers(-128, 128, (1, 4, 5, 6)).astype("int8")
UNSIGNED = RNG.integers(0, 256, (1, 4, 5, 6)).astype("uint8")
WIDE = RNG.integers(-200000, 200000, (1, 4, 5, 6)).astype("int32")
WEIGHT = RNG.integers(-128, 128, (3, 4, 3, 3)).astype("int8")
SCALES = np.array([0.011, 0.5, 0.0003, 0.07], "float32")
F = np.float32
# Ratios of exactly 1/2 and 1/4, where the two rounding modes differ.
HALVES = np.array([-7, -6, -5, -3, -2, -1, 1, 2, 3, 5, 6, 7], "int32")


def spread(values):
    return values[:, None, None]


SCALING = [
    Case('qnn.quantize(%x, 0.02f, 3, out_dtype="int8")', {"x": REAL}, quantized(REAL, 0.02, 3)),
    Case('qnn.quantize(%x, 0.01f, 128, out_dtype="uint8")', {"x": REAL}, quantized(REAL, 0.01, 128, "uint8")),
    Case(
        'qnn.quantize(%x, %s, %z, out_dtype="int8", axis=1)',
        {"x": REAL},
        quantized(REAL, spread(SCALES), spread(np.arange(4))),
        {"s": SCALES, "z": np.arange(4, dtype="int32")},
    ),
    Case(
        'qnn.quantize(%x, 1f, 0, out_dtype="int8")',
        {"x": np.array([-2.5, -0.5, 0.5, 2.5, 300], F)},
        np.array([-3, -1, 1, 3, 127], "int8"),
    ),
    Case("qnn.dequantize(%x, 0.02f, 3)", {"x": BYTES}, (BYTES.astype("int32") - 3).astype(F) * F(0.02)),
    Case(
        "qnn.dequantize(%x, %s, 0, axis=1)",
        {"x": UNSIGNED},
        UNSIGNED.astype(F) * spread(SCALES),
        {"s": SCALES},
    ),
    Case('qnn.dequantize(%x, 0.5f, 0, out_dtype="float16")', {"x": BYTES}, (BYTES * F(0.5)).astype("float16")),
    Case(
        'qnn.requantize(%x, 0.001f, 0, 0.9f, 0, out_dtype="int8")',
        {"x": WIDE},
        requantized(WIDE, 0.001, 0, 0.9, 0, "int8"),
    ),
    Case(
        'qnn.requantize(%x, 0.03f, -5, 0.017f, 9, out_dtype="int8")',
        {"x": BYTES},
        requantized(BYTES, 0.03, -5, 0.017, 9, "int8"),
    ),
    Case(
        'qnn.requantize(%x, 7f, 2, 0.5f, 0, out_dtype="int32")',
        {"x": UNSIGNED},
        requantized(UNSIGNED, 7, 2, 0.5, 0, "int32"),
    ),
    Case(
        'qnn.requantize(%x, %s, 0, 30f, 128, axis=1, out_dtype="uint8")',
        {"x": WIDE},
        requantized(WIDE, SCALES, 0, 30, 128, "uint8", axis=1),
        {"s": SCALES},
    ),
    Case(
        'qnn.requantize(%x, %s, 0, 30f, 1, axis=1, rounding="TONEAREST", out_dtype="int8")',
        {"x": WIDE},
        requantized(WIDE, SCALES, 0, 30, 1, "int8", "TONEAREST", axis=1),
        {"s": SCALES},
    ),
    *(
        Case(
            f'qnn.requantize(%x, 0.5f, 0, 1f, 0, {stated}out_dtype="int8")',
            {"x": HALVES},
            requantized(HALVES, 0.5, 0, 1, 0, "int8", rounding),
        )
        for stated, rounding in (
            ("", "UPWARD"),
            ('rounding="UPWARD", ', "UPWARD"),
            ('rounding="TONEAREST", ', "TONEAREST"),
            ('compute_dtype="float32", ', "UPWARD"),
            ('compute_dtype="float64", rounding="TONEAREST", ', "TONEAREST"),
        )
    ),
]
ROUNDED = {"UPWARD": [-3, -3, -2, -1, -1, 0, 1, 1, 2, 3, 3, 4], "TONEAREST": [-4, -3, -3, -2, -1, -1, 1, 1, 2, 3, 3, 4]}


def centred(x, zero):
    return x.astype("int64") - zero


PADDED = centred(BYTES, 4)
LAYERS = [
    Case(
        'qnn.conv2d(%x, %w, 4, -3, 0.1f, 0.2f, padding=[1, 1], channels=3, kernel_size=[3, 3], out_dtype="int32")',
        {"x": BYTES, "w": WEIGHT},
        convolution(PADDED, centred(WEIGHT, -3), [1, 1], [1] * 4, [1, 1]).astype("int32"),
    ),
    Case(
        'qnn.conv2d(%x, %w, 4, %z, 0.1f, 0.2f, strides=[2, 2], out_dtype="int32")',
        {"x": BYTES, "w": WEIGHT},
        convolution(PADDED, WEIGHT - np.array([1, -2, 3])[:, None, None, None], [2, 2], [0] * 4, [1, 1]).astype(
            "int32"
        ),
        {"z": np.array([1, -2, 3], "int32")},
    ),
    Case(
        'qnn.conv2d(%x, %w, 128, 0, 0.1f, 0.2f, data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32")',
        {
            "x": np.ascontiguousarray(UNSIGNED.transpose(0, 2, 3, 1)),
            "w": np.ascontiguousarray(WEIGHT.transpose(2, 3, 1, 0)),
        },
        convolution(centred(UNSIGNED, 128), WEIGHT, [1, 1], [0] * 4, [1, 1]).astype("int32").transpose(0, 2, 3, 1),
    ),
    Case(
        'qnn.conv2d_transpose(%x, %w, 4, 1, 0.1f, 0.2f, strides=[2, 2], out_dtype="int32")',
        {"x": BYTES, "w": np.ascontiguousarray(WEIGHT.transpose(1, 0, 2, 3))},
        transposed(PADDED, centred(WEIGHT, 1).transpose(1, 0, 2, 3), [2, 2], [0] * 4, [0, 0]).astype("int32"),
    ),
    Case(
        'qnn.dense(%x, %w, 4, %z, 0.1f, 0.2f, units=3, out_dtype="int32")',
        {"x": BYTES.reshape(5, 24), "w": WEIGHT.reshape(-1)[:72].reshape(3, 24)},
        (PADDED.reshape(5, 24) @ (WEIGHT.reshape(-1)[:72].reshape(3, 24) - np.array([[1], [0], [-1]])).T).astype(
            "int32"
        ),
        {"z": np.array([1, 0, -1], "int32")},
    ),
    Case(
        'qnn.batch_matmul(%x, %w, 4, -3, 0.1f, 0.2f, out_dtype="int32", transpose_b=True)',
        {"x": BYTES[0], "w": WEIGHT.reshape(-1)[:72].reshape(4, 3, 6)},
        (PADDED[0] @ centred(WEIGHT.reshape(-1)[:72].reshape(4, 3, 6), -3).transpose(0, 2, 1)).astype("int32"),
    ),
]


FLAT = WEIGHT.reshape(-1)[:72].reshape(3, 24)
# Zero points of 0, and those that a known weight makes constant.
LAYERS += [
    Case(
        'qnn.conv2d(%x, %w, 0, 0, 0.1f, 0.2f, padding=[1, 1], out_dtype="int32")',
        {"x": BYTES, "w": WEIGHT},
        convolution(BYTES, WEIGHT, [1, 1], [1] * 4, [1, 1]).astype("int32"),
    ),
    Case(
        'qnn.conv2d(%x, %w, 4, 0, 0.1f, 0.2f, strides=[2, 1], out_dtype="int32")',
        {"x": BYTES},
        convolution(PADDED, WEIGHT, [2, 1], [0] * 4, [1, 1]).astype("int32"),
        {"w": WEIGHT},
    ),
    Case(
        'qnn.conv2d(%x, %w, 4, 0, 0.1f, 0.2f, padding=[1, 1], out_dtype="int32")',
        {"x": BYTES},
        convolution(PADDED, WEIGHT, [1, 1], [1] * 4, [1, 1]).astype("int32"),
        {"w": WEIGHT},
    ),
    Case(
        'qnn.conv2d(%x, %w, 4, 0, 0.1f, 0.2f, data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32")',
        {"x": np.ascontiguousarray(BYTES.transpose(0, 2, 3, 1))},
        convolution(PADDED, WEIGHT, [1, 1], [0] * 4, [1, 1]).astype("int32").transpose(0, 2, 3, 1),
        {"w": np.ascontiguousarray(WEIGHT.transpose(2, 3, 1, 0))},
    ),
    Case(
        'qnn.dense(%x, %w, 4, 0, 0.1f, 0.2f, units=3, out_dtype="int32")',
        {"x": BYTES.reshape(5, 24)},
        (PADDED.reshape(5, 24) @ FLAT.T.astype("int64")).astype("int32"),
        {"w": FLAT},
    ),
    Case(
        'qnn.dense(%x, %w, 0, 0, 0.1f, 0.2f, units=3, out_dtype="int32")',
        {"x": BYTES.reshape(5, 24), "w": FLAT},
        (BYTES.reshape(5, 24).astype("int64") @ FLAT.T.astype("int64")).astype("int32"),
    ),
]


def saturate(x, dtype="int8"):
    return np.clip(x, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)


A, B = (requantized(x, s, z, 0.3, -7, "int32").astype("int64") for x, s, z in ((BYTES, 0.1, 3), (OTHERS, 0.2, -5)))
SAME = BYTES.astype("int64")
SUMS = [
    Case("qnn.add(%a, %b, 0.1f, 3, 0.2f, -5, 0.3f, -7)", {"a": BYTES, "b": OTHERS}, saturate(A + B + 7)),
    Case("qnn.subtract(%a, %b, 0.1f, 3, 0.2f, -5, 0.3f, -7)", {"a": BYTES, "b": OTHERS}, saturate(A - B - 7)),
    Case("qnn.add(%a, %b, 0.3f, -7, 0.2f, -5, 0.3f, -7)", {"a": BYTES, "b": OTHERS}, saturate(SAME + B + 7)),
    Case(
        "qnn.mul(%a, %b, 0.1f, 3, 0.2f, -5, 0.3f, -7)",
        {"a": BYTES, "b": OTHERS},
        requantized(centred(BYTES, 3) * centred(OTHERS, -5), F(0.1) * F(0.2), 0, 0.3, -7, "int8"),
    ),
    Case(
        "qnn.concatenate((%a, %b), (0.1f, 0.3f), (3, -7), 0.3f, -7, axis=1)",
        {"a": BYTES, "b": OTHERS},
        np.concatenate([requantized(BYTES, 0.1, 3, 0.3, -7, "int8"), OTHERS], 1),
    ),
    Case(
        "qnn.avg_pool2d(%a, 0.1f, 3, 0.3f, -7, pool_size=[2, 2])",
        {"a": BYTES},
        np.trunc(pool(A.astype("int32"), "avg", [2, 2], [1, 1], [0] * 4)).astype("int8"),
    ),
]
ALPHA, REST = fixed_point(0.1), fixed_point(0.9)


def times(values, ratio):
    factor, shift = ratio
    return (np.asarray(values, "int64") * factor + (1 << (30 - shift))) >> (31 - shift)


SUMS.append(
    Case(
        "qnn.leaky_relu(%a, 0.1f, 3, 0.3f, -7, alpha=0.1f)",
        {"a": BYTES},
        saturate(np.where(BYTES < 3, times(A, ALPHA) + times(-7, REST), A)),
    )
)
REALS = (BYTES.astype("int32") - 3).astype(F) * F(0.03)
FUNCTIONS = {
    "abs": np.abs,
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
}


@pytest.mark.parametrize("cases", [SCALING, LAYERS, SUMS], ids=["scaling", "layers", "sums"])
def test_operators(cases):
    check(cases)


def test_the_reference_rounds_as_it_should():
    for rounding, wanted in ROUNDED.items():
        assert requantized(HALVES, 0.5, 0, 1, 0, "int8", rounding).tolist() == wanted


def test_functions_of_quantised_elements():
    positive = np.maximum(BYTES, 4)
    reals = (positive.astype("int32") - 3).astype(F) * F(0.03)
    more = {"sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "log": np.log}
    check(
        [
            *(
                Case(
                    f"qnn.{name}(%x, 0.03f, 3, 0.05f, -4)", {"x": BYTES}, quantized(function(REALS).astype(F), 0.05, -4)
                )
                for name, function in FUNCTIONS.items()
            ),
            *(
                Case(
                    f"qnn.{name}(%x, 0.03f, 3, 0.05f, -4)",
                    {"x": positive},
                    quantized(function(reals).astype(F), 0.05, -4),
                )
                for name, function in more.items()
            ),
        ]
    )


def test_softmax_of_integers_is_close_to_that_of_reals():
    x = RNG.integers(-40, 40, (3, 8)).astype("int8")
    powers = np.exp((x - x.max(1, keepdims=True)) * 0.05)
    text = b"def @main(%x: Tensor[(3, 8), int8]) { qnn.softmax(%x, 0.05f, 0, 0.0078125f, 0) }"
    model = read_relay(text, shapes={}, batch=None, params=None, where="softmax").imported
    found = outputs(model.module, [x])[0]
    assert found.dtype == "int8"
    np.testing.assert_allclose(found / 128, powers / powers.sum(1, keepdims=True), atol=0.03)


def test_until_0_6_scales_were_attributes():
    check(
        [
            Case(
                'qnn.quantize(%x, out_dtype="int8", output_zero_point=3, output_scale=0.02f)',
                {"x": REAL},
                quantized(REAL, 0.02, 3),
            ),
            Case(
                "qnn.dequantize(%x, input_zero_point=3, input_scale=0.02f)",
                {"x": BYTES},
                (BYTES.astype("int32") - 3).astype(F) * F(0.02),
            ),
            Case(
                "qnn.requantize(%x, input_scale=0.001f, input_zero_point=0, output_scale=0.9f, output_zero_point=2, "
                'out_dtype="int8")',
                {"x": WIDE},
                requantized(WIDE, 0.001, 0, 0.9, 2, "int8"),
            ),
            Case(
                'qnn.conv2d(%x, %w, input_zero_point=4, kernel_zero_point=-3, out_dtype="int32")',
                {"x": BYTES, "w": WEIGHT},
                convolution(PADDED, centred(WEIGHT, -3), [1, 1], [0] * 4, [1, 1]).astype("int32"),
            ),
            Case(
                'qnn.dense(%x, %w, units=3, out_dtype="int32", input_zero_point=4, kernel_zero_point=0)',
                {"x": BYTES.reshape(5, 24), "w": WEIGHT.reshape(-1)[:72].reshape(3, 24)},
                (PADDED.reshape(5, 24) @ WEIGHT.reshape(-1)[:72].reshape(3, 24).T.astype("int64")).astype("int32"),
            ),
            Case(
                "qnn.add(%a, %b, lhs_zero_point=3, lhs_scale=0.1f, rhs_zero_point=-5, rhs_scale=0.2f, "
                "output_zero_point=-7, output_scale=0.3f)",
                {"a": BYTES, "b": OTHERS},
                saturate(A + B + 7),
            ),
            Case(
                "qnn.concatenate((%a, %b), input_scales=[0.1f, 0.3f], input_zero_points=[3, -7], output_zero_point=-7, "
                "output_scale=0.3f, axis=1)",
                {"a": BYTES, "b": OTHERS},
                np.concatenate([requantized(BYTES, 0.1, 3, 0.3, -7, "int8"), OTHERS], 1),
            ),
        ],
        header="v0.0.4",
    )


def test_ratios_of_scales():
    assert fixed_point(0.5) == (1 << 30, 0)
    assert fixed_point(1.0) == (1 << 30, 1)
    assert fixed_point(0) == (0, 0)
    assert fixed_point(1 - 2**-40) == (1 << 30, 1)
    for ratio in (-1.0, float("inf"), float("nan"), 2.0**40, 2.0**-40):
        with pytest.raises(ValueError, match="ratio of scales"):
            fixed_point(ratio)


def test_scales_that_are_not_known_are_refused():
    text = b'def @main(%x: Tensor[(2), int32], %s: float32) { qnn.requantize(%x, %s, 0, 1f, 0, out_dtype="int8") }'
    said = r"qnn.requantize: input_scale \(operand 2\) is not known at compile time; expected a constant \(line 1\)"
    with pytest.raises(UnsupportedOperator, match=said):
        load_model(text)
    assert load_model(text, params={"s": np.array(0.5, "float32")}).input_names == ("x",)


def test_integers_are_exact_on_the_simulated_accelerator():
    text = """def @main(%x: Tensor[(1, 16, 8, 8), int8], %w: Tensor[(16, 16, 3, 3), int8]) {
  %0 = qnn.conv2d(%x, %w, 4, 0, 0.1f, 0.2f, channels=16, kernel_size=[3, 3], out_dtype="int32");
  qnn.requantize(%0, 0.02f, 0, 3f, 1, out_dtype="int8")
}"""
    x, w = (RNG.integers(-128, 128, shape).astype("int8") for shape in ((1, 16, 8, 8), (16, 16, 3, 3)))
    executable = tt.compile(text.encode(), params={"w": w}, target="vsim/vta")
    found, report = executable.simulate(x)
    product = convolution(centred(x, 4), w, [1, 1], [0] * 4, [1, 1])
    np.testing.assert_array_equal(found, requantized(product, 0.02, 0, 3, 1, "int8"))
    assert report.cycles > 0


def test_scales_of_another_number_than_channels_are_refused():
    text = """def @main(%x: Tensor[(1, 6, 2), int32], %s: Tensor[(4), float32]) {
  qnn.requantize(%x, %s, 0, 30f, 1, axis=1, out_dtype="int8")
}"""
    with pytest.raises(UnsupportedOperator, match=r"qnn\.requantize: 6 elements do not match 4"):
        load_model(text.encode(), params={"s": np.ones(4, "float32")})
