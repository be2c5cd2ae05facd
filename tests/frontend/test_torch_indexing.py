"""Indexed reads and writes of PyTorch programs: types and sums as in PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch_compare import Function, compare, compiled  # noqa: E402

import tvm_tiling  # noqa: E402
from tvm_tiling.errors import UnsupportedOperator, WorkloadError  # noqa: E402

FLAGS = torch.tensor([True, False, True, False, False])
PLACES = torch.tensor([0, 1, 1, 2, 4])
MORE = torch.tensor([False, True, False, True, False])


def put(x, indices, values):
    return torch.ops.aten.index_put(x, indices, values, True)


def test_sums_of_bools_at_places_are_any_and_gemms_all():
    compare(
        lambda x, i, y: (
            x.scatter_add(0, i, y),
            x.scatter(0, i, True, reduce="add"),
            x.scatter(0, i, y, reduce="multiply"),
            x.index_add(0, i, y),
            x.put(i, y, accumulate=True),
            put(x, [i], y),
            put(x, [y], torch.tensor(True)),
            *(x.scatter_reduce(0, i, y, name) for name in ("sum", "prod", "amax", "amin")),
            *(x.scatter_reduce(0, i, y, name, include_self=False) for name in ("sum", "prod", "amax", "amin")),
        ),
        *(FLAGS, PLACES, MORE),
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_many_sums_in_half_precision_are_rounded_once(dtype):
    # A running sum in the type itself would stop at 256 or 2048.
    compare(
        lambda x, i, y: (
            x.scatter_add(0, i, y),
            x.scatter_reduce(0, i, y, "sum"),
            x[:, None].expand(2, 2).index_add(0, i, y[:, None].expand(-1, 2)),
        ),
        *(torch.zeros(2, dtype=dtype), torch.zeros(5000, dtype=torch.long), torch.ones(5000, dtype=dtype)),
    )


def test_a_constant_axis_of_one_element_may_have_any_stride():
    compare(lambda x: (x.index_fill(0, torch.tensor([0]), torch.tensor(2.5)), x + torch.ones(()).expand(1)), MORE * 1.0)


def test_take_by_a_place_without_axes():
    compare(lambda x, i: (x.take(i[2]), x[3].take(i[0] * 0)), MORE, PLACES)


def test_classes_as_one_hot_rows():
    compare(lambda i: (F.one_hot(i, 5), F.one_hot(i.reshape(1, 5), 7).float(), F.one_hot(i[1], 5)), PLACES)


def test_a_class_outside_of_one_hot_ends_the_run():
    with pytest.raises(WorkloadError, match=r"one_hot: class 4 at \[4\] is out of range; expected 0 to 3"):
        tvm_tiling.compile(torch.export.export(Function(lambda i: F.one_hot(i, 4)), (PLACES % 4,))).run(PLACES)


def test_what_pytorch_cannot_decompose_is_refused(monkeypatch):
    def decompositions():
        raise RuntimeError("no decomposition.\nSecond line")

    monkeypatch.setattr("tvm_tiling.frontend.torch.import_torch.decompositions", decompositions)
    with pytest.raises(UnsupportedOperator, match=r"PyTorch cannot decompose it: no decomposition$"):
        compiled(lambda x: x.mul_(2), MORE * 1.0)


@pytest.mark.parametrize("size", [1, 3, 7])
def test_places_that_are_not_zero_in_a_fixed_number_of_rows(size):
    values = torch.tensor([[0.0, 2.0, float("nan")], [-0.0, 0.0, 1.0]])
    for given in (values, values[0], values > 1, values[:0]):
        compare(lambda x: torch.nonzero_static(x, size=size), given)
    compare(lambda x: torch.nonzero_static(x, size=size, fill_value=7), values)


def test_one_element_of_the_memory():
    x = torch.arange(6.0).reshape(2, 3)
    compare(lambda x: (x.as_strided((), (), 4), x.as_strided_scatter(x[0, 0] - 7, (), (), 4)), x)
    compare(lambda x: (x * 2).resize_(()), x[0, 0])
