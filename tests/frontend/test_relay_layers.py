"""Relay's layers compared with plain NumPy: convolutions, matrix multiplications, pools, normalisation."""

from __future__ import annotations

import numpy as np
import pytest
from relay_cases import Case, check
from relay_reference import convolution, pool, transposed

RNG = np.random.default_rng(0)


def rand(*shape):
    return RNG.normal(size=shape).astype("float32")


def f32(values):
    return np.asarray(values, dtype="float32")


X1, X2, X3 = rand(2, 4, 9), rand(2, 4, 8, 7), rand(1, 2, 5, 6, 5)
W1, W2, W3 = rand(6, 4, 3), rand(6, 4, 3, 3), rand(3, 2, 2, 3, 2)
G2, D2, D4 = rand(6, 2, 3, 3), rand(4, 1, 3, 3), rand(8, 1, 3, 3)


def last(x):
    """Channels last."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def kernel_last(w):
    """OI... as ...IO."""
    return np.ascontiguousarray(np.moveaxis(np.moveaxis(w, 0, -1), 0, -2))


CONVOLUTIONS = [
    Case("nn.conv1d(%x, %w)", {"x": X1, "w": W1}, f32(convolution(X1, W1, [1], [0, 0], [1]))),
    Case(
        "nn.conv1d(%x, %w, strides=[2], padding=[1, 2], dilation=[2])",
        {"x": X1, "w": W1},
        f32(convolution(X1, W1, [2], [1, 2], [2])),
    ),
    Case("nn.conv2d(%x, %w)", {"x": X2, "w": W2}, f32(convolution(X2, W2, [1, 1], [0] * 4, [1, 1]))),
    Case(
        "nn.conv2d(%x, %w, strides=[2, 1], padding=[1, 1], channels=6, kernel_size=[3, 3])",
        {"x": X2, "w": W2},
        f32(convolution(X2, W2, [2, 1], [1] * 4, [1, 1])),
    ),
    Case(
        "nn.conv2d(%x, %w, padding=[0, 1, 2, 1], dilation=[2, 1])",
        {"x": X2, "w": W2},
        f32(convolution(X2, W2, [1, 1], [0, 1, 2, 1], [2, 1])),
    ),
    Case(
        "nn.conv2d(%x, %w, groups=2)", {"x": X2, "w": G2}, f32(convolution(X2, G2, [1, 1], [0] * 4, [1, 1], groups=2))
    ),
    Case(
        "nn.conv2d(%x, %w, groups=4, channels=8)",
        {"x": X2, "w": D4},
        f32(convolution(X2, D4, [1, 1], [0] * 4, [1, 1], groups=4)),
    ),
    Case(
        'nn.conv2d(%x, %w, data_layout="NHWC", kernel_layout="HWIO", padding=[1, 1, 1, 1])',
        {"x": last(X2), "w": kernel_last(W2)},
        last(f32(convolution(X2, W2, [1, 1], [1] * 4, [1, 1]))),
    ),
    Case(
        'nn.conv2d(%x, %w, groups=4, data_layout="NHWC", kernel_layout="HWOI")',
        {"x": last(X2), "w": np.ascontiguousarray(D2.transpose(2, 3, 0, 1))},
        last(f32(convolution(X2, D2, [1, 1], [0] * 4, [1, 1], groups=4))),
    ),
    # Two outputs per channel, which Relay also writes as [rows, columns, channels, outputs per channel].
    Case(
        'nn.conv2d(%x, %w, groups=4, channels=8, data_layout="NHWC", kernel_layout="HWOI")',
        {"x": last(X2), "w": np.ascontiguousarray(D4[:, 0].transpose(1, 2, 0).reshape(3, 3, 4, 2))},
        last(f32(convolution(X2, D4, [1, 1], [0] * 4, [1, 1], groups=4))),
    ),
    Case(
        'nn.conv2d(%x, %w, out_layout="NHWC")',
        {"x": X2, "w": W2},
        last(f32(convolution(X2, W2, [1, 1], [0] * 4, [1, 1]))),
    ),
    Case(
        'nn.conv2d(%x, %w, out_dtype="int32")',
        {"x": (X2 * 20).astype("int8"), "w": (W2 * 20).astype("int8")},
        convolution((X2 * 20).astype("int8"), (W2 * 20).astype("int8"), [1, 1], [0] * 4, [1, 1]).astype("int32"),
    ),
    Case(
        "nn.conv3d(%x, %w, padding=[1, 0, 1])",
        {"x": X3, "w": W3},
        f32(convolution(X3, W3, [1, 1, 1], [1, 0, 1, 1, 0, 1], [1, 1, 1])),
    ),
]

T1, T2, T3 = rand(4, 3, 3), rand(4, 3, 3, 2), rand(2, 3, 2, 3, 2)
TRANSPOSED = [
    Case("nn.conv1d_transpose(%x, %w)", {"x": X1, "w": T1}, f32(transposed(X1, T1, [1], [0, 0], [0]))),
    Case(
        "nn.conv1d_transpose(%x, %w, strides=[2], padding=[1, 1], output_padding=[1])",
        {"x": X1, "w": T1},
        f32(transposed(X1, T1, [2], [1, 1], [1])),
    ),
    Case(
        "nn.conv2d_transpose(%x, %w, strides=[2, 2], padding=[1, 0], output_padding=[1, 0])",
        {"x": X2, "w": T2},
        f32(transposed(X2, T2, [2, 2], [1, 0, 1, 0], [1, 0])),
    ),
    Case(
        'nn.conv2d_transpose(%x, %w, kernel_layout="OIHW")',
        {"x": X2, "w": np.ascontiguousarray(T2.transpose(1, 0, 2, 3))},
        f32(transposed(X2, T2, [1, 1], [0] * 4, [0, 0])),
    ),
    Case(
        'nn.conv2d_transpose(%x, %w, data_layout="NHWC", kernel_layout="HWOI")',
        {"x": last(X2), "w": np.ascontiguousarray(T2.transpose(2, 3, 1, 0))},
        last(f32(transposed(X2, T2, [1, 1], [0] * 4, [0, 0]))),
    ),
    Case(
        "nn.conv2d_transpose(%x, %w, groups=2)",
        {"x": X2, "w": T2},
        f32(transposed(X2, T2, [1, 1], [0] * 4, [0, 0], groups=2)),
    ),
    Case(
        "nn.conv3d_transpose(%x, %w, strides=[1, 2, 1])",
        {"x": X3, "w": T3},
        f32(transposed(X3, T3, [1, 2, 1], [0] * 6, [0] * 3)),
    ),
]

A, BT, Q = rand(3, 5, 4), rand(3, 6, 4), rand(3, 4, 4)
PRODUCTS = [
    Case("nn.dense(%a, %b, units=6)", {"a": A[0], "b": BT[0]}, A[0] @ BT[0].T),
    Case("nn.dense(%a, %b, units=None)", {"a": A, "b": BT[0]}, A @ BT[0].T),
    Case(
        'nn.dense(%a, %b, units=6, out_dtype="int32")',
        {"a": (A[0] * 30).astype("int8"), "b": (BT[0] * 30).astype("int8")},
        (A[0] * 30).astype("int8").astype("int32") @ (BT[0] * 30).astype("int8").astype("int32").T,
    ),
    Case("nn.matmul(%a, %b, units=None)", {"a": A[0], "b": Q[0]}, A[0] @ Q[0]),
    Case("nn.matmul(%a, %b, units=6, transpose_b=True)", {"a": A[0], "b": BT[0]}, A[0] @ BT[0].T),
    Case("nn.batch_matmul(%a, %b, transpose_b=True)", {"a": A, "b": BT}, A @ BT.transpose(0, 2, 1)),
    Case("nn.batch_matmul(%a, %b, transpose_b=True)", {"a": A, "b": BT[:1]}, A @ BT[:1].transpose(0, 2, 1)),
    Case("nn.batch_matmul(%a, %b, transpose_a=True)", {"a": BT, "b": rand(3, 6, 2)}, np.zeros((3, 4, 2), "float32")),
    Case("nn.bias_add(%a, %b)", {"a": X2, "b": X1[0, :, 0]}, X2 + X1[0, :, 0][:, None, None]),
    Case("nn.bias_add(%a, %b, axis=-1)", {"a": A, "b": A[0, 0]}, A + A[0, 0]),
    Case("nn.bias_add(%a, %b, axis=-2)", {"a": A, "b": A[0, :, 0]}, A + A[0, :, 0][:, None]),
    Case("nn.batch_flatten(%a)", {"a": X2}, X2.reshape(2, -1)),
]
given = PRODUCTS[7].inputs
PRODUCTS[7] = Case(PRODUCTS[7].text, given, given["a"].transpose(0, 2, 1) @ given["b"])

I2 = RNG.integers(-50, 50, (2, 4, 8, 7)).astype("int32")
POOLS = [
    Case(
        "nn.max_pool1d(%x, pool_size=[3], strides=[2], padding=[1, 1])",
        {"x": X1},
        f32(pool(X1, "max", [3], [2], [1, 1])),
    ),
    Case("nn.avg_pool1d(%x, pool_size=[3])", {"x": X1}, f32(pool(X1, "avg", [3], [1], [0, 0]))),
    Case("nn.max_pool2d(%x, pool_size=[3, 3])", {"x": X2}, f32(pool(X2, "max", [3, 3], [1, 1], [0] * 4))),
    Case(
        "nn.max_pool2d(%x, pool_size=[3, 3], strides=[2, 2], padding=[0, 0, 0, 0], ceil_mode=True)",
        {"x": X2},
        f32(pool(X2, "max", [3, 3], [2, 2], [0] * 4, ceil=True)),
    ),
    Case(
        "nn.max_pool2d(%x, pool_size=[2, 2], dilation=[2, 3])",
        {"x": X2},
        f32(pool(X2, "max", [2, 2], [1, 1], [0] * 4, dilation=[2, 3])),
    ),
    Case("nn.max_pool2d(%x, pool_size=[2, 2])", {"x": I2}, pool(I2, "max", [2, 2], [1, 1], [0] * 4).astype("int32")),
    Case(
        "nn.avg_pool2d(%x, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])",
        {"x": X2},
        f32(pool(X2, "avg", [3, 3], [2, 2], [1] * 4)),
    ),
    Case(
        "nn.avg_pool2d(%x, pool_size=[3, 3], strides=[2, 2], padding=[1, 1], count_include_pad=True)",
        {"x": X2},
        f32(pool(X2, "avg", [3, 3], [2, 2], [1] * 4, include=True)),
    ),
    Case(
        'nn.avg_pool2d(%x, pool_size=[2, 2], layout="NHWC")',
        {"x": last(X2)},
        last(f32(pool(X2, "avg", [2, 2], [1, 1], [0] * 4))),
    ),
    Case(
        "nn.avg_pool2d(%x, pool_size=[2, 2])",
        {"x": I2},
        np.trunc(pool(I2, "avg", [2, 2], [1, 1], [0] * 4)).astype("int32"),
    ),
    Case("nn.max_pool3d(%x, pool_size=[2, 2, 2])", {"x": X3}, f32(pool(X3, "max", [2] * 3, [1] * 3, [0] * 6))),
    Case(
        "nn.avg_pool3d(%x, pool_size=[2, 3, 2], strides=[2, 1, 2])",
        {"x": X3},
        f32(pool(X3, "avg", [2, 3, 2], [2, 1, 2], [0] * 6)),
    ),
    Case("nn.global_avg_pool2d(%x)", {"x": X2}, X2.mean((2, 3), keepdims=True)),
    Case('nn.global_max_pool2d(%x, layout="NHWC")', {"x": last(X2)}, last(X2.max((2, 3), keepdims=True))),
    Case("nn.adaptive_avg_pool1d(%x, output_size=[3])", {"x": X1}, f32(X1.reshape(2, 4, 3, 3).mean(3))),
    Case("nn.adaptive_max_pool1d(%x, output_size=[3])", {"x": X1}, f32(X1.reshape(2, 4, 3, 3).max(3))),
    Case("nn.adaptive_avg_pool2d(%x, output_size=[1, 1])", {"x": X2}, X2.mean((2, 3), keepdims=True)),
    Case(
        "nn.adaptive_avg_pool2d(%x, output_size=[4, 7])",
        {"x": X2},
        f32(X2.reshape(2, 4, 4, 2, 7).mean(3)),
    ),
    Case("nn.adaptive_max_pool2d(%x, output_size=[4, 7])", {"x": X2}, f32(X2.reshape(2, 4, 4, 2, 7).max(3))),
    Case("contrib.adaptive_avg_pool2d(%x, output_size=[1])", {"x": X2}, X2.mean((2, 3), keepdims=True)),
    Case("contrib.adaptive_max_pool2d(%x, output_size=[1])", {"x": X2}, X2.max((2, 3), keepdims=True)),
    Case("nn.adaptive_avg_pool3d(%x, output_size=[5, 3, 5])", {"x": X3}, f32(X3.reshape(1, 2, 5, 3, 2, 5).mean(4))),
    Case("nn.adaptive_max_pool3d(%x, output_size=[1])", {"x": X3}, X3.max((2, 3, 4), keepdims=True)),
]

CHANNELS = np.abs(rand(4)) + 0.5
OFFSETS, MEANS = rand(4), rand(4)


def normal(x, axes, epsilon=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def softmax(x, axis):
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def lrn(x, size, alpha, beta, bias):
    squares = np.pad(x**2, [(0, 0), (size // 2, size // 2), (0, 0), (0, 0)])
    total = sum(squares[:, place : place + x.shape[1]] for place in range(size))
    return x / (bias + alpha / size * total) ** beta


def spread(values):
    return values[:, None, None]


PROBABILITIES, TARGET = softmax(rand(3, 5), 1), softmax(rand(3, 5), 1)
LABELS = np.array([1, 4, 0], "int32")
NORMS = [
    Case(
        "nn.batch_norm(%x, %g, %b, %m, %v)",
        {"x": X2, "g": CHANNELS, "b": OFFSETS, "m": MEANS, "v": CHANNELS},
        [
            f32((X2 - spread(MEANS)) / np.sqrt(spread(CHANNELS) + 1e-5) * spread(CHANNELS) + spread(OFFSETS)),
            MEANS,
            CHANNELS,
        ],
    ),
    Case(
        "nn.batch_norm(%x, %g, %b, %m, %v, axis=3, epsilon=0.01f, center=False, scale=False).0",
        {"x": last(X2), "g": CHANNELS, "b": OFFSETS, "m": MEANS, "v": CHANNELS},
        f32((last(X2) - MEANS) / np.sqrt(CHANNELS + 0.01)),
    ),
    Case("nn.layer_norm(%x, %g, %b)", {"x": A, "g": CHANNELS, "b": OFFSETS}, f32(normal(A, -1) * CHANNELS + OFFSETS)),
    Case(
        "nn.layer_norm(%x, %g, %b, axis=1, epsilon=0.001f)",
        {"x": X2, "g": CHANNELS, "b": OFFSETS},
        f32(normal(X2, 1, 1e-3) * spread(CHANNELS) + spread(OFFSETS)),
    ),
    Case(
        "nn.instance_norm(%x, %g, %b)",
        {"x": X2, "g": CHANNELS, "b": OFFSETS},
        f32(normal(X2, (2, 3)) * spread(CHANNELS) + spread(OFFSETS)),
    ),
    Case(
        "nn.group_norm(%x, %g, %b, num_groups=2)",
        {"x": X2, "g": CHANNELS, "b": OFFSETS},
        f32(normal(X2.reshape(2, 2, 2, 8, 7), (2, 3, 4)).reshape(X2.shape) * spread(CHANNELS) + spread(OFFSETS)),
    ),
    Case("nn.l2_normalize(%x, eps=1e-10f, axis=[1])", {"x": X2}, f32(X2 / np.sqrt((X2**2).sum(1, keepdims=True)))),
    Case("nn.lrn(%x)", {"x": X2}, f32(lrn(X2, 5, 1e-4, 0.75, 2))),
    Case("nn.lrn(%x, size=3, bias=1f, alpha=0.5f, beta=0.5f)", {"x": X2}, f32(lrn(X2, 3, 0.5, 0.5, 1))),
    Case("nn.softmax(%x)", {"x": A}, f32(softmax(A, -1))),
    Case("nn.softmax(%x, axis=1)", {"x": A}, f32(softmax(A, 1))),
    Case("nn.fast_softmax(%x)", {"x": A}, f32(softmax(A, -1))),
    Case("nn.log_softmax(%x, axis=1)", {"x": A}, f32(np.log(softmax(A, 1)))),
    Case(
        "nn.cross_entropy(%p, %t)",
        {"p": PROBABILITIES, "t": TARGET},
        f32(-(np.log(PROBABILITIES) * TARGET).sum() / 3),
    ),
    Case(
        "nn.cross_entropy_with_logits(%p, %t)",
        {"p": PROBABILITIES, "t": TARGET},
        f32(-(PROBABILITIES * TARGET).sum() / 3),
    ),
    Case(
        'nn.nll_loss(%p, %t, %w, reduction="mean", ignore_index=-100)',
        {"p": PROBABILITIES, "t": LABELS, "w": np.ones(5, "float32")},
        f32(-PROBABILITIES[np.arange(3), LABELS].mean()),
    ),
]


@pytest.mark.parametrize(
    "cases",
    [CONVOLUTIONS, TRANSPOSED, PRODUCTS, POOLS, NORMS],
    ids=["convolutions", "transposed", "products", "pools", "norms"],
)
def test_layers(cases):
    check(cases)


def test_deformable_convolution_without_offsets_is_a_plain_one():
    offsets = np.zeros((2, 18, 6, 5), "float32")
    check(
        [
            Case(
                "nn.deformable_conv2d(%x, %o, %w, channels=6, kernel_size=[3, 3])",
                {"x": X2, "o": offsets, "w": W2},
                f32(convolution(X2, W2, [1, 1], [0] * 4, [1, 1])),
            )
        ]
    )
