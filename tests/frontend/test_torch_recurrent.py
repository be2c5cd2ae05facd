"""LSTM, GRU and RNN of every float type, with projections, and cells."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_compare import compare  # noqa: E402

TOLERANCE = {torch.float64: (1e-9, 1e-12), torch.float16: (4e-3, 2e-3), torch.bfloat16: (3e-2, 1e-2)}


def flat(module, *inputs):
    """Return the module's outputs and states as a flat tuple of tensors."""
    return torch.utils._pytree.tree_leaves(module(*inputs))


def made(cell, dtype, **options):
    torch.manual_seed(0)
    return cell(3, 5, **options).to(dtype).eval()


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_layers_of_other_types_than_float32(dtype):
    layers = [
        made(torch.nn.LSTM, dtype, num_layers=2, bidirectional=True, batch_first=True),
        made(torch.nn.GRU, dtype, bidirectional=True, bias=False),
        made(torch.nn.GRU, dtype, num_layers=2),
        made(torch.nn.RNN, dtype, nonlinearity="relu"),
        made(torch.nn.RNN, dtype, bias=False),
    ]
    rtol, atol = TOLERANCE[dtype]
    x = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(1)).to(dtype)
    compare(lambda x: [value for layer in layers for value in flat(layer, x)], x, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_projected_states(dtype):
    layer = made(torch.nn.LSTM, dtype, num_layers=2, bidirectional=True, proj_size=2)
    x, h, c = (torch.rand(size, dtype=dtype) for size in ((4, 2, 3), (4, 2, 2), (4, 2, 5)))
    compare(lambda x, h, c: flat(layer, x, (h, c)), x, h, c, rtol=1e-5, atol=1e-6)
