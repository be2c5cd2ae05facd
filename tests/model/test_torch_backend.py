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
def test_graphs_of_open_sizes_are_compiled_for_the_sizes_that_come(cell):
    from tvm_tiling.model.torch_backend import backend

    net = getattr(torch.nn, cell)(12, 20).eval()
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(net, backend=backend, dynamic=True)
        for steps in (5, 3, 5):
            x = torch.randn(steps, 12)
            np.testing.assert_allclose(compiled(x)[0].numpy(), net(x)[0].numpy(), atol=2e-6)


def test_a_second_shape_and_a_second_network_of_a_class_need_no_option():
    from tvm_tiling.model.torch_backend import backend

    with torch.no_grad():
        for width in (8, 24):
            net = torch.nn.Sequential(torch.nn.Linear(width, 16), torch.nn.ReLU(), torch.nn.Linear(16, width)).eval()
            compiled = torch.compile(net, backend=backend)
            for batch in (4, 7, 1, 9):
                x = torch.randn(batch, width)
                np.testing.assert_allclose(compiled(x).numpy(), net(x).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_and_numbers_cross_graph_breaks(dynamic):
    from tvm_tiling.model.torch_backend import backend

    def steps(x, factor):
        y = torch.tanh(x) * factor
        rows = x.shape[0] * 2 + factor
        torch._dynamo.graph_break()
        return torch.relu(y) + rows, rows

    compiled = torch.compile(steps, backend=backend, dynamic=dynamic)
    with torch.no_grad():
        for rows, factor in ((7, 2), (9, 2), (9, 3), (9, 0.5), (9, 0.25), (8, 0.25)):
            x = torch.randn(rows, 5)
            (got, count), (want, expected) = compiled(x, factor), steps(x, factor)
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
            assert count == expected


def test_executables_of_open_sizes_are_few(monkeypatch):
    from tvm_tiling.model import torch_backend

    made = []
    compile_model = torch_backend.compile_model
    monkeypatch.setattr(torch_backend, "compile_model", lambda program: made.append(0) or compile_model(program))
    monkeypatch.setattr(torch_backend, "KEPT", 2)
    compiled = torch.compile(lambda x: torch.relu(x) + 1, backend=torch_backend.backend, dynamic=True)
    for rows, compilations in ((3, 1), (4, 2), (3, 2), (5, 3), (3, 3), (4, 4)):
        x = torch.randn(rows, 5)
        np.testing.assert_allclose(compiled(x).numpy(), np.maximum(x.numpy(), 0) + 1)
        assert len(made) == compilations
