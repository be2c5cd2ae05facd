"""Sums, extremes, running sums, sorting and tensor creation in PyTorch programs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_compare import compare  # noqa: E402

NAN = float("nan")
X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
HOLES = torch.tensor([[1.0, NAN, 3.0, NAN], [float("inf"), 2.0, -1.0, 2.0], [-0.0, 0.0, -float("inf"), 0.0]])


def test_running_sums_of_integers_are_wide():
    compare(lambda i: (i.cumsum(0), i.cumsum(-1), i.cumprod(0), i.cumsum(0, dtype=torch.int32)), torch.arange(6).int())


def test_running_sums_of_bools_count():
    compare(lambda x: ((x > 0).cumsum(-1), (x > 0).long().cumsum(-1) - 1), X)


def test_sums_and_means_of_types():
    i = torch.arange(-5, 7).reshape(3, 4)
    compare(lambda i: (i.int().sum(), (i > 0).sum(1), i.sum(dtype=torch.float32), i.prod(1), i.float().mean(0)), i)
    compare(lambda x: (x.mean(), x.mean((0, 2), keepdim=True), x.sum(-1), x.sum(dtype=torch.float64), x.prod()), X)


def test_sums_and_gemms_of_bools_as_bools_are_any_and_all():
    i = torch.tensor([[0.5, 0.0, 2.0], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    compare(
        lambda x: (
            x.sum(1, dtype=torch.bool),
            x.prod(1, dtype=torch.bool),
            (x > 0).prod(0, keepdim=True, dtype=torch.bool),
            x.sum(dtype=torch.bool),
        ),
        i,
    )


@pytest.mark.parametrize("correction", [0, 1, 2, 0.5, 12])
def test_variance_of_any_correction(correction):
    compare(
        lambda x: (
            x.var(1, correction=correction),
            *torch.var_mean(x, (0, 1), correction=correction, keepdim=True),
            x.std((0, 1), correction=correction),
        ),
        X,
    )


def test_extremes_and_their_places_with_nan():
    compare(
        lambda x: (
            *x.max(1),
            *x.min(1, keepdim=True),
            x.amax(),
            x.amin(0),
            x.argmax(),
            x.argmin(1),
            x.max(),
            x.aminmax()[0],
        ),
        HOLES,
    )


def test_truth_of_all_and_any():
    compare(lambda x: (x.any(), x.any(1), x.all(0), (x > 0).all(), x.byte().any(1)), torch.tensor([[0, 2], [0, 0]]))


@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable_and_puts_nan_last(descending):
    compare(
        lambda x: (
            *torch.sort(x, dim=1, descending=descending, stable=True),
            torch.argsort(x, dim=0, descending=descending, stable=True),
        ),
        HOLES,
    )
    compare(lambda x: x.topk(2, 1, largest=descending)[0], HOLES)
    places = torch.tensor([3, 3, -1, 2**62, -(2**63), 0])
    compare(lambda i: tuple(torch.sort(i, dim=0, stable=True, descending=descending)), places)


@pytest.mark.parametrize("order", [0, 1, 2, 3.5, float("inf"), -float("inf")])
def test_norms(order):
    compare(lambda x: (torch.linalg.vector_norm(x, order), torch.linalg.vector_norm(x, order, (0, 2), True)), X)


def test_softmax_of_any_axis_and_rank():
    compare(lambda x: (x.softmax(0), x.log_softmax(1), x[0, 0, 0].softmax(0), x.softmax(-1, dtype=torch.float64)), X)


def test_created_tensors():
    compare(
        lambda x: (
            torch.arange(0, 1, 0.1),
            torch.arange(5, -5, -3),
            torch.arange(70000, dtype=torch.float32) * 0.5,
            torch.full((2, 3), True),
            torch.full_like(x, 7, dtype=torch.int32),
            torch.linspace(0, 1, 7),
            torch.eye(3, 5),
            torch.zeros_like(x).fill_(2.5),
            torch.tensor(3),
            x.new_ones(2),
        ),
        X,
    )


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dim", [0, 1])
def test_the_largest_with_nan_and_infinity(dim, largest):
    x = torch.randperm(600, generator=torch.Generator().manual_seed(2)).reshape(20, 30).float()
    x[3, 4], x[5, 6] = NAN, float("inf")
    compare(lambda given: tuple(given.topk(3, dim=dim, largest=largest)), x)
