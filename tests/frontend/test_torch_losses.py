"""Losses that PyTorch computes by dedicated operators."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional
if not hasattr(F, "linear_cross_entropy"):
    pytest.skip("PyTorch before 2.13 has no linear_cross_entropy", allow_module_level=True)

from torch_compare import compare, compiled  # noqa: E402

from tvm_tiling.errors import WorkloadError  # noqa: E402

OPTIONS = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=2)
X, MATRIX, BIAS = (torch.randn(size, generator=torch.Generator().manual_seed(0)) for size in ((4, 6), (5, 6), (5,)))
WEIGHT = torch.rand(5, generator=torch.Generator().manual_seed(1))
TARGET = torch.tensor([0, 4, -7, 2])
PROBABILITIES = torch.rand(4, 5, generator=torch.Generator().manual_seed(2)).softmax(1)


def loss(*arguments, **options):
    return F.linear_cross_entropy(*arguments, options=OPTIONS, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_linear_cross_entropy(dtype):
    def run(x, matrix, target, bias, weight):
        return [
            value
            for reduction in ("none", "mean", "sum")
            for value in (
                loss(x, matrix, target, ignore_index=-7, reduction=reduction),
                loss(x, matrix, target, linear_bias=bias, weight=weight, ignore_index=-7, reduction=reduction),
            )
        ]

    compare(run, *(value.to(dtype) for value in (X, MATRIX)), TARGET, *(value.to(dtype) for value in (BIAS, WEIGHT)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_linear_cross_entropy_of_probabilities(dtype):
    def run(x, matrix, target, bias, weight):
        return [
            value
            for reduction in ("mean", "sum")
            for value in (
                loss(x, matrix, target, reduction=reduction),
                loss(x, matrix, target, linear_bias=bias, weight=weight, reduction=reduction),
            )
        ]

    try:
        loss(X, MATRIX, PROBABILITIES)
    except (NotImplementedError, RuntimeError, TypeError):
        pytest.skip("this PyTorch takes no probabilities here")
    compare(run, *(value.to(dtype) for value in (X, MATRIX, PROBABILITIES, BIAS, WEIGHT)))


def test_a_class_outside_ends_the_run():
    with pytest.raises(
        WorkloadError, match=r"linear_cross_entropy: target 5 at \[1\] is out of range; expected 0 to 4"
    ):
        compiled(loss, X, MATRIX, TARGET.clamp(0) + (TARGET == 4).long())
