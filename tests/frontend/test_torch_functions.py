"""Unary functions and activations of PyTorch programs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_compare import compare, compiled  # noqa: E402

from tvm_tiling.errors import UnsupportedOperator  # noqa: E402

functional = torch.nn.functional
POINTS = torch.cat(
    [torch.linspace(-4, 4, 81), torch.tensor([1e-30, -1e-7, 3e-5, -88.0, 90.0, float("inf"), -float("inf")])]
)
NEAR_ZERO = torch.tensor(
    [1e-12, -1e-9, 3e-7, -2e-5, 1e-3, -0.02, 0.1, -0.3, 0.39, 0.41, 0.5, -0.5, 0.99, -0.99, 1.01, 3.0]
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log1p_and_expm1_near_zero(dtype):
    compare(
        lambda x: (x.log1p(), x.expm1(), x.tanh(), x.sinh(), x.atanh(), x.asinh(), x.asin(), x.erf()),
        NEAR_ZERO.to(dtype),
        rtol=1e-6,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log1p_and_expm1_at_the_edges(dtype):
    edges = torch.tensor([0.0, -0.0, -1.0, -2.0, float("inf"), -float("inf"), float("nan"), 200.0, -200.0], dtype=dtype)
    compare(lambda x: (x.log1p(), x.expm1()), edges)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_functions_of_all_types(dtype):
    x = POINTS[:81].to(dtype)
    compare(
        lambda x: (
            x.exp(), x.sin(), x.cos(), x.tan(), x.sinh(), x.cosh(), x.tanh(), x.atan(), x.asinh(), x.erf(), x.erfc(),
            x.sigmoid(), x.abs().sqrt(), x.abs().log(), x.abs().log2(), x.abs().log10(), x.exp2(), x.abs().rsqrt(),
            x.reciprocal(), x.acos(), x.asin(), x.atanh(), x.abs().acosh(), x.abs().lgamma(),
        ),
        x,
        rtol=1e-5 if dtype is not torch.float64 else 1e-9,
        atol=1e-6 if dtype is not torch.float64 else 1e-12,
    )  # fmt: skip


def test_selu_elu_and_celu_with_their_factors():
    compare(
        lambda x: (
            functional.selu(x),
            functional.elu(x, 1.7),
            functional.celu(x, 0.6),
            torch.ops.aten.elu(x, 1.5, 2.0, 0.5),
        ),
        POINTS,
    )


def test_activations():
    compare(
        lambda x: (
            functional.gelu(x),
            functional.gelu(x, approximate="tanh"),
            functional.silu(x),
            functional.leaky_relu(x, 0.2),
            functional.hardtanh(x, -0.5, 2),
            functional.softplus(x, 2, 3),
            functional.mish(x),
            functional.hardswish(x),
            functional.logsigmoid(x),
        ),
        POINTS[:-2],
        atol=1e-6,
    )


def test_rounding_of_halves_and_decimals():
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -2.5, 0.125, 12345.678, -0.0])
    compare(lambda x: (x.round(), x.round(decimals=2), x.round(decimals=-2), x.trunc(), x.floor(), x.ceil()), x)
    compare(lambda i: (i.round(), i.trunc(), i.floor(), i.ceil(), i.abs(), i.sign()), torch.tensor([-3, 0, 4]))


# ---- counts ---------------------------------------------------------------------------------------------------------


def test_the_airy_function_is_pytorchs():
    far = torch.tensor([0.0, -0.0, 90.0, 103.8, 104.0, 1e9, -100.0, float("inf"), -float("inf"), float("nan")])
    edges = torch.tensor([2.09, -2.09, -2.0900001, -16.0, -15.9999999, 16.0])
    points = torch.cat([torch.linspace(-30, 30, 4001, dtype=torch.float64), far, edges])
    compare(torch.special.airy_ai, points, rtol=1e-12, atol=1e-13)
    compare(torch.special.airy_ai, torch.linspace(-9, 9, 181), rtol=1e-5, atol=1e-6)
    compare(torch.special.airy_ai, torch.arange(-5, 6), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not hasattr(torch, "hash_tensor"), reason="this release of PyTorch has no hash_tensor")
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool]
)
def test_hashes_of_elements(dtype):
    values = (5 * torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))).to(dtype)

    def run(x):
        hashed = torch.hash_tensor
        return hashed(x), hashed(x, dim=1), hashed(x, dim=(0, 2), keepdim=True), hashed(x[0, 0, 0]), hashed(x[:0], 1)

    compare(run, values)


@pytest.mark.parametrize("density", [False, True])
def test_histograms_of_points(density):
    random = torch.Generator().manual_seed(0)
    points, weight = torch.randn(5, 4, 2, generator=random), torch.rand(5, 4, generator=random)
    edges = [torch.tensor([-1.0, 0.0, 0.25, 2.0]), torch.tensor([-2.0, 0.5, 1.0])]

    def counted(x, w, *edges):
        return [
            *(found for given in ({}, {"range": [-1.0, 1.0, -0.5, 2.0]}) for found in flat(x, [3, 4], **given)),
            *flat(x, [3, 4], weight=w),
            *flat(x, list(edges), weight=w),
            *torch.histogram(x, 5, density=density),
        ]

    def flat(x, bins, **given):
        found = torch.histogramdd(x, bins, density=density, **given)
        return [found.hist, *found.bin_edges]

    compare(counted, points, weight, *edges, rtol=1e-5, atol=1e-6)


def test_resizing_keeps_the_first_elements():
    compare(lambda x: (x * 2).resize_(2, 3), torch.arange(8.0).reshape(2, 4))
    compare(lambda x: (x * 2).resize_as_(x.reshape(4, 2)), torch.arange(8.0).reshape(2, 4))
    compare(lambda x: (x * 2).t().resize_(2, 3), torch.arange(8.0).reshape(2, 4))
    with pytest.raises(UnsupportedOperator, match="expected no more elements, in order"):
        compiled(lambda x: (x * 2).resize_(3, 3), torch.arange(8.0).reshape(2, 4))
