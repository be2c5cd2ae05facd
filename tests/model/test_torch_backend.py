"""torch.compile with this package as its backend: results, shapes by specialisation, graph breaks, refusals."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.dense = torch.nn.Linear(8, 5)

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x)))
        return self.dense(y.mean(dim=(2, 3)))


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    torch.manual_seed(0)
    torch.compiler.reset()


def test_results_are_torchs_for_every_shape():
    from tvm_tiling.model.torch_backend import backend

    net = Net().eval()
    compiled = torch.compile(net, backend=backend, dynamic=False)
    with torch.no_grad():
        for size in (9, 12):
            x = torch.randn(2, 3, size, size)
            np.testing.assert_allclose(compiled(x).numpy(), net(x).numpy(), rtol=1e-4, atol=1e-5)


def test_graph_breaks_are_torchs():
    from tvm_tiling.model.torch_backend import backend

    def steps(x):
        y = torch.tanh(x) * 2
        torch._dynamo.graph_break()
        return torch.relu(y) + 1

    x = torch.randn(7, 5)
    with torch.no_grad():
        got = torch.compile(steps, backend=backend, dynamic=False)(x)
    np.testing.assert_allclose(got.numpy(), steps(x).numpy(), rtol=1e-5, atol=1e-6)


def test_training_is_refused():
    from tvm_tiling.model.torch_backend import backend

    x = torch.randn(1, 3, 9, 9, requires_grad=True)
    with pytest.raises(Exception, match="gradients are asked for; accepted: inference"):
        torch.compile(Net(), backend=backend, dynamic=False)(x)


@pytest.mark.parametrize(("cell", "sequences"), [("LSTM", (2,)), ("GRU", (2,)), ("RNN", ())])
def test_recurrent_layers_come_whole_where_torch_is_told_to_trace_them(cell, sequences, monkeypatch):
    from tvm_tiling.model import torch_backend

    made = []
    compile_model = torch_backend.compile_model
    monkeypatch.setattr(torch_backend, "compile_model", lambda program: made.append(compile_model(program)) or made[-1])
    net, x = getattr(torch.nn, cell)(12, 20, num_layers=2).eval(), torch.randn(5, *sequences, 12)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        outputs, _ = torch.compile(net, backend=torch_backend.backend, dynamic=False)(x)
        np.testing.assert_allclose(outputs.numpy(), net(x)[0].numpy(), atol=2e-6)
    assert sum(operator.calls for operator in made[0].operators if operator.kind == "recurrence") == 2


@pytest.mark.parametrize("cell", ["LSTM", "RNN"])
def test_symbolic_sizes_are_refused(cell):
    from tvm_tiling.model.torch_backend import backend

    net = getattr(torch.nn, cell)(12, 20).eval()
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(net, backend=backend, dynamic=True)
        with pytest.raises(Exception, match="has a symbolic size; accepted: tensors, with dynamic=False"):
            compiled(torch.randn(5, 12))
