"""Exported programs with dynamic shapes: symbols as variables, PyTorch's conditions as guards, eager results."""

from __future__ import annotations

import math

import numpy as np
import pytest
from open_judge import check, guards

import tvm_tiling as tt
from tvm_tiling.errors import ModelFormatError, TilingError, WorkloadError
from tvm_tiling.frontend import load_model
from tvm_tiling.sizes import Named

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.export import Dim, export  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

AUTO = Dim.AUTO


class Function(nn.Module):
    """Return a function as a module."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *args):
        return self.function(*self.parts, *args)


def loaded(module, examples, dynamic, **given):
    return load_model(export(module.eval(), examples, dynamic_shapes=(dynamic,)), leave_open=True, **given)


def judged(function, examples, dynamic, *at, parts=()):
    module = Function(function, *parts)
    imported = loaded(module, examples, dynamic)

    def wanted(arrays):
        with torch.no_grad():
            found = module(*map(torch.from_numpy, arrays))
        return [found.numpy()] if isinstance(found, torch.Tensor) else [value.numpy() for value in found]

    check(imported, at, wanted)
    return imported


def test_dims_are_sizes_by_their_names_and_ranges():
    batch, seq = Dim("batch"), Dim("seq", min=2, max=64)
    examples = (torch.randn(3, 5, 4), torch.randn(3, 1, 4))
    dynamic = ({0: batch, 1: seq}, {0: batch})
    imported = judged(lambda x, y: x + y, examples, dynamic, {"batch": 1, "seq": 2}, {"batch": 3, "seq": 9})
    assert imported.input_shapes == ((Named("batch"), Named("seq"), 4), (Named("batch"), 1, 4))
    assert [(size.name, size.least, size.most) for size in imported.open_sizes.sizes][1] == ("seq", 2, 64)
    assert not imported.open_sizes.guards


def test_some_sizes_may_be_given():
    batch, seq = Dim("batch"), Dim("seq", min=2, max=64)
    module, examples = Function(lambda x: x.relu()), (torch.randn(3, 5),)
    dynamic = ({0: batch, 1: seq},)
    assert loaded(module, examples, dynamic, dims={"seq": 7}).input_shapes == ((Named("batch"), 7),)
    assert not loaded(module, examples, dynamic, batch=2, dims={"seq": 7}).open_sizes
    with pytest.raises(ModelFormatError, match="a size is 70; the program accepts 2 to 64"):
        loaded(module, examples, dynamic, dims={"seq": 70})
    with pytest.raises(ModelFormatError, match="is dynamic; expected"):
        load_model(export(module, examples, dynamic_shapes=(dynamic,)))


def test_what_pytorch_took_for_granted_is_a_guard():
    def parts(x, y):
        return x.view(x.shape[0], 2, -1).sum(1) + y

    examples = (torch.randn(4, 6), torch.randn(4, 3))
    imported = judged(parts, examples, ({0: AUTO, 1: AUTO},) * 2, {"args_0[0]": 3, "args_0[1]": 10, "args_1[1]": 5})
    assert "args_0[1] % 2 == 0" in guards(imported)
    assert "args_0[1] // 2 == args_1[1]" in guards(imported)


def test_caches_that_grow():
    def step(q, k, past):
        keys = torch.cat((past, k), 2)
        scores = q @ keys.transpose(2, 3) / math.sqrt(4)
        return scores.softmax(-1) @ keys, keys

    new = torch.randn(2, 3, 5, 4)
    dynamic = ({0: AUTO, 2: AUTO}, {0: AUTO, 2: AUTO}, {0: AUTO, 2: AUTO})
    at = {"args_0[0]": 2, "args_0[2]": 3, "args_1[2]": 4, "args_2[2]": 6}
    imported = judged(step, (new, new.clone(), torch.randn(2, 3, 7, 4)), dynamic, at)
    assert imported.open_sizes.names == tuple(at)


def at_each_size(function, examples, dynamic, at, **ranges):
    """One executable of ranges that start at 0 gives eager results for inputs of these shapes."""
    module = Function(function).eval()
    executable = tt.compile(export(module, examples, dynamic_shapes=(dynamic,)), cache=False, **ranges)
    for shapes in at:
        given = [torch.randn(shape) for shape in shapes]
        wanted = module(*given)
        for found, want in zip(executable.run(*(value.numpy() for value in given)), wanted, strict=True):
            assert found.shape == tuple(want.shape), shapes
            np.testing.assert_allclose(found, want.detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=str(shapes))
    return executable


def test_sizes_that_may_be_0():
    def step(x, past):
        keys = torch.cat((past, x), 1)
        read = (x @ keys.transpose(1, 2)).softmax(-1) @ keys
        return read, keys, past.sum(1), past.mean(1), F.layer_norm(past, (4,)), past.relu()

    dynamic = ({0: Dim("b"), 1: Dim("s")}, {0: Dim("b"), 1: Dim("past")})
    at = [
        ((b, s, 4), (b, past, 4)) for b, s, past in ((2, 3, 5), (2, 3, 0), (1, 1, 1), (0, 3, 2), (2, 0, 1), (1, 0, 0))
    ]
    examples = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    executable = at_each_size(step, examples, dynamic, at, batch=(0, 8), dims={"past": (0, 64), "s": (0, 9)})
    assert [size.least for size in executable.signature.open_sizes.sizes] == [0, 0, 0]


def test_what_pytorch_refuses_of_no_elements_is_refused():
    examples, dynamic = (torch.randn(2, 6, 5),), ({0: Dim("b"), 2: Dim("v")},)
    for function in (
        lambda x: (x.amax(2), x + 1),
        lambda x: (x.argmax(2), x + 1),
        lambda x: (x.max(2).values, x + 1),
        lambda x: (F.conv1d(x, torch.ones(2, 6, 2), padding=1), x + 1),
    ):
        executable = at_each_size(
            function, examples, dynamic, [((1, 6, 5),), ((2, 6, 1),)], dims={"v": (0, 9)}, batch=(0, 3)
        )
        with pytest.raises(WorkloadError, match="the model requires 1 <= v"):
            executable.run(np.zeros((2, 6, 0), "float32"))


def test_multiples_of_a_dim():
    half = Dim("half", min=2, max=20)
    imported = loaded(Function(lambda x: x.relu()), (torch.randn(8),), ({0: 2 * half},))
    (size,) = imported.open_sizes.sizes
    assert (size.least, size.most) == (4, 40)
    assert guards(imported) == [f"{size.name} % 2 == 0"]
    assert imported.input_shapes == ((Named(size.name),),)


CASES = {
    "slices": lambda x: (x[:, 1:].relu(), x[:, -1], x[:, ::2], x[:, -3:], x.flip(1)),
    "lengths as numbers": lambda x: (x * x.shape[1], x / x.shape[1], torch.arange(x.shape[1]) * 2),
    "reductions": lambda x: (x.sum(1), x.mean(0), x.amax(1), x.argmax(1), x.cumsum(1)),
    "joined and parted": lambda x: (torch.cat((x, x), 1), torch.stack((x, x)), *x.chunk(2, 2)),
    "elements": lambda x: (x.tanh(), F.gelu(x), F.silu(x), F.elu(x), x.clamp(-1, 1), x.softmax(1), (x > 0) & (x < 1)),
    "padding": lambda x: F.pad(x, (1, 2, 0, 3)),
    "rows of tables": lambda x: (
        torch.arange(64.0).view(16, 4)[torch.arange(x.shape[1])] + x,
        x[:, x[0, :, 0].long() * 0],
    ),
    "norms": lambda x: (F.layer_norm(x, (4,)), x.pow(2).mean(-1, keepdim=True).rsqrt() * x),
    "masks": lambda x: x.masked_fill(torch.arange(x.shape[1])[:, None] > 2, -1.0),
}


@pytest.mark.parametrize("name", CASES)
def test_operators(name):
    dynamic = ({0: AUTO, 1: AUTO},)
    imported = loaded(Function(CASES[name]), (torch.randn(3, 6, 4),), dynamic)
    first, second = imported.open_sizes.names
    judged(CASES[name], (torch.randn(3, 6, 4),), dynamic, {first: 2, second: 5}, {first: 4, second: 9})


def test_layers():
    linear, lstm = nn.Linear(4, 8), nn.LSTM(8, 6, batch_first=True, bidirectional=True)

    def run(project, cells, x):
        heads = project(x).view(x.shape[0], -1, 2, 4).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return cells(mixed.transpose(1, 2).flatten(2))[0]

    module = Function(run, linear, lstm)
    dynamic = ({0: AUTO},)
    imported = loaded(module, (torch.randn(3, 6, 4),), dynamic)
    (batch,) = imported.open_sizes.names
    judged(run, (torch.randn(3, 6, 4),), dynamic, {batch: 2}, {batch: 5}, parts=(linear, lstm))


def test_images():
    def run(first, norm, second, x):
        x = F.max_pool2d(norm(first(x)).relu(), 3, 2, 1)
        up = F.interpolate(second(x), scale_factor=2.0, mode="nearest")
        return F.adaptive_avg_pool2d(x, 1).flatten(1), F.avg_pool2d(up, 2)

    parts = (nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1))
    dynamic = ({0: AUTO, 2: AUTO, 3: AUTO},)
    imported = loaded(Function(run, *parts), (torch.randn(2, 3, 32, 36),), dynamic)
    names = imported.open_sizes.names
    at = [dict(zip(names, sizes, strict=True)) for sizes in ((2, 31, 40), (3, 48, 33))]
    judged(run, (torch.randn(2, 3, 32, 36),), dynamic, *at, parts=parts)


REFUSED = {
    "no operator for open sizes": lambda x: torch.linalg.det(x @ x.transpose(1, 2)),
    "a root of a size": lambda x: x * (x.shape[1] ** 0.5),
    "a pool to several elements": lambda x: F.adaptive_avg_pool1d(x.transpose(1, 2), 3),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_one_sentence(name):
    with pytest.raises(TilingError) as refused:
        loaded(Function(REFUSED[name]), (torch.randn(3, 6, 4),), ({0: AUTO, 1: AUTO},))
    assert "\n" not in str(refused.value)
