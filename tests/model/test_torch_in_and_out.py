"""PyTorch tensors as inputs and outputs of a run: memory, types, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tvm_tiling as tt  # noqa: E402
from tvm_tiling.errors import WorkloadError  # noqa: E402


class Net(torch.nn.Module):
    """Two outputs, the second a view."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(24, 10)

    def forward(self, x):
        y = torch.relu(self.linear(x))
        return torch.softmax(y, -1), y.reshape(-1)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def compiled(net):
    return tt.compile(net, example_inputs=(torch.zeros(6, 24),), cache=False)


def expected(net, x):
    with torch.no_grad():
        return net(x)


def assert_close(found, wanted):
    for got, value in zip(found, wanted, strict=True):
        assert isinstance(got, torch.Tensor) and got.dtype == value.dtype
        torch.testing.assert_close(got, value, rtol=1e-5, atol=1e-6)


def test_calls_give_the_kind_of_their_inputs(net, compiled):
    x = torch.rand(6, 24)
    assert_close(compiled(x), expected(net, x))
    (name,) = compiled.signature.input_names
    assert_close(compiled(**{name: x}), expected(net, x))
    assert all(type(got) is np.ndarray for got in compiled.run(x))
    assert all(type(got) is np.ndarray for got in compiled(x.numpy()))


@pytest.mark.parametrize(
    "x",
    [
        torch.rand(24, 6).T,
        torch.rand(6, 48)[:, ::2],
        torch.rand(200)[3:147].reshape(6, 24),
        torch.rand(6, 24).requires_grad_(),
        torch.nn.Parameter(torch.rand(6, 24)),
        torch.rand(1, 24).expand(6, 24),
    ],
    ids=["transposed", "gaps", "unaligned", "with a gradient", "a parameter", "expanded"],
)
def test_any_dense_tensor_is_an_input(net, compiled, x):
    before = x.detach().clone()
    assert_close(compiled(x), expected(net, x))
    assert torch.equal(x, before)


def test_results_are_written_to_tensors(net, compiled):
    x, out = torch.rand(6, 24), (torch.full((6, 10), -1.0), torch.full((60,), -1.0))
    addresses = [tensor.data_ptr() for tensor in out]
    for call in (compiled, compiled.run):
        found = call(x, out=out)
        assert all(got is tensor for got, tensor in zip(found, out, strict=True))
        assert [tensor.data_ptr() for tensor in out] == addresses
        assert_close(out, expected(net, x))
        for tensor in out:
            tensor.fill_(-1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8, torch.int64, torch.bool, torch.float64])
def test_types(dtype):
    class Both(torch.nn.Module):
        def forward(self, x, y):
            return torch.logical_or(x, y) if dtype == torch.bool else torch.maximum(x, y)

    x, y = ((torch.rand(5, 7) * 9).to(dtype) for _ in range(2))
    exe = tt.compile(Both(), example_inputs=(x, y), cache=False)
    found, out = exe(x, y), torch.zeros(5, 7, dtype=dtype)
    assert found.dtype == dtype and torch.equal(found, Both()(x, y))
    assert exe.run(x, y, out=out) is out and torch.equal(out, found)


def test_what_is_refused(compiled):
    x, flat = torch.rand(6, 24), torch.zeros(60)
    for out, message in (
        (torch.zeros(6, 10, requires_grad=True), "requires gradients"),
        (torch.zeros(10, 6).T, "has strides"),
        (torch.zeros(6, 10, dtype=torch.float64), "has type float64; expected float32"),
        (torch.zeros(6, 10, device="meta"), "on device 'meta'"),
        (torch.zeros(6, 10).to_sparse(), "sparse"),
        (torch._neg_view(torch.zeros(6, 10)), "another form"),
    ):
        with pytest.raises(WorkloadError, match=message) as error:
            compiled.run(x, out=(out, flat))
        assert str(error.value).startswith("out '") and "\n" not in str(error.value)
    with pytest.raises(WorkloadError, match="on device 'meta'"):
        compiled(torch.zeros(6, 24, device="meta"))


def test_tensors_of_tvm(net, compiled):
    import tvm

    x = torch.rand(6, 24)
    found = compiled(tvm.runtime.tensor(x.numpy()))
    assert all(isinstance(got, tvm.runtime.Tensor) for got in found)
    for got, value in zip(found, expected(net, x), strict=True):
        np.testing.assert_allclose(got.numpy(), value.numpy(), rtol=1e-5, atol=1e-6)
