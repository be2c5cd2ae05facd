"""Arguments of a model: arrays, PyTorch tensors, any DLPack tensor, lists."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.errors import WorkloadError


def doubled(dtype):
    """A model that adds its input to itself."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.add(x, x))
        builder.emit_func_output(out)
    return tt.compile(builder.get(), cache=False)


@pytest.fixture(scope="module")
def model():
    return doubled("float32")


@pytest.fixture(scope="module")
def half():
    return doubled("bfloat16")


VALUES = np.arange(6, dtype="float32").reshape(2, 3)


def test_bfloat16_goes_in_and_out(half):
    given = VALUES.astype(ml_dtypes.bfloat16)
    got = half.run(given)
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(got.astype("float32"), 2 * VALUES)


def test_anything_with_dlpack_is_taken(model):
    np.testing.assert_array_equal(model.run(tvm.runtime.tensor(VALUES)), 2 * VALUES)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([[1.0, 2.0], [3.0]], "input 'x' is not an array: its rows differ in length"),
        (object(), "input 'x' is object"),
        ("abc", "input 'x' is <U3"),
        ([[10**400] * 3] * 2, "input 'x' is"),
        (np.ma.masked_less(VALUES, 1), "input 'x' has masked elements"),
    ],
)
def test_what_is_not_an_array_is_refused_by_name(model, given, said):
    with pytest.raises(WorkloadError, match=said):
        model.run(given)


def test_a_masked_array_without_masked_elements_is_taken(model):
    np.testing.assert_array_equal(model.run(np.ma.array(VALUES)), 2 * VALUES)


def test_tensors_of_pytorch_are_taken(model, half):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(VALUES)
    for tensor in (x, x.clone().requires_grad_(), torch.nn.Parameter(x), x.t().contiguous().t(), torch._neg_view(-x)):
        np.testing.assert_array_equal(model.run(tensor), 2 * VALUES)
    got = half.run(x.bfloat16().requires_grad_())
    np.testing.assert_array_equal(got.astype("float32"), 2 * VALUES)


@pytest.mark.parametrize("kind", ["sparse", "meta", "quantised", "complex", "nested"])
def test_tensors_that_are_not_arrays_are_refused(model, kind):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(VALUES)
    given = {
        "sparse": lambda: x.to_sparse(),
        "meta": lambda: x.to("meta"),
        "quantised": lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
        "complex": lambda: x.to(torch.complex64).conj(),
        "nested": lambda: torch.nested.nested_tensor([x[0], x[1, :2]]),
    }[kind]()
    with pytest.raises(WorkloadError, match="input 'x' is"):
        model.run(given)
