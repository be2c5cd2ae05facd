"""torch.compile with this package as its backend: results, shapes by specialisation, graph breaks, gradients."""

from __future__ import annotations

import gc
import threading
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from foreign_operator import foreign  # noqa: E402

from tvm_tiling.errors import LeftToTorch  # noqa: E402
from tvm_tiling.model import torch_backend  # noqa: E402
from tvm_tiling.model.torch_backend import backend  # noqa: E402

STRICT = {"fallback": False}
# Before 2.9 PyTorch records a wrong shape for the states of an LSTM on several sequences, which it then runs itself.
SEQUENCES = (2,) if torch.__version__ >= (2, 9) else ()
# Before PyTorch 2.5 each instance of a class has its own graph, which holds its parameters.
GRAPHS_ARE_SHARED = getattr(torch._dynamo.config, "inline_inbuilt_nn_modules", True)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.dense = torch.nn.Linear(8, 5)

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x)))
        return self.dense(y.mean(dim=(2, 3)))


class Layer(torch.nn.Module):
    """A stack of layers of one class; `break_graph` splits its graph."""

    def __init__(self, width=12, break_graph=False):
        super().__init__()
        self.norm, self.dense = torch.nn.LayerNorm(width), torch.nn.Linear(width, width)
        self.register_buffer("shift", torch.randn(width))
        self.break_graph = break_graph

    def forward(self, x):
        y = self.dense(self.norm(x))
        if self.break_graph:
            torch._dynamo.graph_break()
        return x + torch.relu(y) * self.shift


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    torch.manual_seed(0)
    torch.compiler.reset()


@pytest.fixture
def compilations(monkeypatch):
    """Return the executables created so far."""
    made = []
    compile_imported = torch_backend.compile_imported

    def counted(*args, **named):
        made.append(compile_imported(*args, **named))
        return made[-1]

    monkeypatch.setattr(torch_backend, "compile_imported", counted)
    return made


def assert_equal(got, want):
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)


# ---- weights --------------------------------------------------------------------------------------------------------


def test_each_instance_of_a_class_has_its_own_weights():
    nets = [Net().eval() for _ in range(3)]
    x = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        for compiled, net in [(torch.compile(net, backend=backend, options=STRICT), net) for net in nets] * 2:
            assert_equal(compiled(x), net(x))


def test_layers_compiled_one_by_one_have_their_own_weights():
    layers = torch.nn.Sequential(*(Layer() for _ in range(4))).eval()
    x = torch.randn(3, 12)
    with torch.no_grad():
        want = layers(x)
        for layer in layers:
            layer.compile(backend="tvm_tiling", options=STRICT)
        assert_equal(layers(x), want)
        assert_equal(layers(x), want)


def test_a_graph_break_in_a_repeated_layer_keeps_weights_apart():
    layers = torch.nn.Sequential(*(Layer(break_graph=True) for _ in range(4))).eval()
    x = torch.randn(3, 12)
    compiled = torch.compile(layers, backend=backend, options=STRICT)
    with torch.no_grad():
        for _ in range(2):
            assert_equal(compiled(x), layers(x))


def test_instances_share_machine_code(compilations):
    x = torch.randn(3, 12)
    with torch.no_grad():
        for layer in [Layer().eval() for _ in range(3)]:
            assert_equal(torch.compile(layer, backend=backend, options=STRICT)(x), layer(x))
    libraries = {id(executable.variants[0].library) for executable in compilations}
    assert (len(compilations), len(libraries)) == (3, 1 if GRAPHS_ARE_SHARED else 3)


CHANGES = {
    "in place": lambda net: net.dense.weight.mul_(2),
    "one element": lambda net: net.dense.weight[0].fill_(3.0),
    "another tensor's data": lambda net: setattr(net.dense.weight, "data", torch.randn(5, 8)),
    "a buffer": lambda net: net.norm.running_mean.add_(0.5),
    "a state of another net": lambda net: net.load_state_dict(Net().state_dict()),
    "a state assigned": lambda net: net.load_state_dict(Net().state_dict(), assign=True),
    "a new parameter": lambda net: setattr(net.dense, "bias", torch.nn.Parameter(torch.randn(5))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_noticed(change):
    net, x = Net().eval(), torch.randn(2, 3, 9, 9)
    compiled = torch.compile(net, backend=backend, options=STRICT)
    with torch.no_grad():
        assert_equal(compiled(x), net(x))
        CHANGES[change](net)
        assert_equal(compiled(x), net(x))


def test_a_step_of_an_optimiser_is_noticed():
    net, x = Net().eval(), torch.randn(2, 3, 9, 9)
    compiled = torch.compile(net, backend=backend)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    for _ in range(3):
        optimiser.zero_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LeftToTorch)
            compiled(x).square().sum().backward()
        optimiser.step()
        with torch.no_grad():
            assert_equal(compiled(x), net(x))


def test_weights_that_change_all_the_time_are_no_longer_packed(compilations):
    layer, x = Layer().eval(), torch.randn(3, 12)
    compiled = torch.compile(layer, backend=backend, options=STRICT)
    with torch.no_grad():
        for _ in range(12):
            assert_equal(compiled(x), layer(x))
            layer.dense.weight.mul_(1.1)
        made = len(compilations)
        assert made <= 6, "packed four times, and once for weights as inputs"
        for _ in range(12):
            assert_equal(compiled(x), layer(x))
        assert len(compilations) == made + 1, "weights that stay for a while are packed again"


def test_packed_weights_are_dropped_with_their_module():
    x = torch.randn(3, 12)
    compiled = [torch.compile(layer, backend=backend) for layer in (Layer().eval(), Layer().eval())]
    with torch.no_grad():
        for layer in compiled:
            layer(x)
    sets = [found for found in gc.get_objects() if type(found).__name__ == "ParameterSets"]
    before = sum(map(len, sets))
    del compiled[1], layer
    torch.compiler.reset()
    gc.collect()
    assert sum(map(len, sets)) < before or not GRAPHS_ARE_SHARED


def test_weights_made_in_inference_mode_are_inputs():
    with torch.inference_mode():
        layer, x = Layer().eval(), torch.randn(3, 12)
        compiled = torch.compile(layer, backend=backend, options=STRICT)
        for _ in range(2):
            assert_equal(compiled(x), layer(x))
            layer.dense.bias.add_(1)


def test_threads_may_call_it_together():
    layer = Layer().eval()
    compiled = torch.compile(layer, backend=backend, options=STRICT)
    errors = []

    def calls(seed):
        generator = torch.Generator().manual_seed(seed)
        try:
            with torch.no_grad():
                for _ in range(20):
                    x = torch.randn(3, 12, generator=generator)
                    assert_equal(compiled(x), layer(x))
        except Exception as error:
            errors.append(error)

    with torch.no_grad():
        compiled(torch.randn(3, 12))
    threads = [threading.Thread(target=calls, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


# ---- gradients, and what is left to PyTorch -------------------------------------------------------------------------


def test_gradients_are_torchs():
    net, x = Net(), torch.randn(2, 3, 9, 9, requires_grad=True)
    with pytest.warns(LeftToTorch, match="it may require gradients; call it under"):
        got = torch.compile(net, backend=backend)(x)
    got.square().sum().backward()
    found = [x.grad.clone(), *(parameter.grad.clone() for parameter in net.parameters())]
    net.zero_grad()
    x.grad = None
    net(x).square().sum().backward()
    for one, other in zip(found, [x.grad, *(parameter.grad for parameter in net.parameters())], strict=True):
        assert_equal(one, other)


def test_training_is_an_error_where_it_is_not_to_be_left_to_torch():
    with pytest.raises(Exception, match="it may require gradients"):
        torch.compile(Net(), backend=backend, options=STRICT)(torch.randn(1, 3, 9, 9, requires_grad=True))


def test_statistics_of_training_are_counted():
    net, other = Net().train(), Net().train()
    other.load_state_dict(net.state_dict())
    x = torch.randn(4, 3, 9, 9)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftToTorch)
        assert_equal(torch.compile(net, backend=backend)(x), other(x))
    assert_equal(net.norm.running_mean, other.norm.running_mean)


def test_an_operator_that_is_not_supported_is_left_to_torch():
    x = torch.rand(3, 3) + 1
    with torch.no_grad(), pytest.warns(LeftToTorch, match="foreign"):
        assert_equal(torch.compile(lambda x: foreign(x) + 1, backend=backend)(x), foreign(x) + 1)


def test_an_unknown_option_is_an_error():
    with torch.no_grad(), pytest.raises(Exception, match="option 'fast' does not exist; expected 'fallback'"):
        torch.compile(lambda x: x + 1, backend=backend, options={"fast": True})(torch.ones(2))


def test_random_numbers_are_torchs():
    x = torch.ones(1000)
    compiled = torch.compile(lambda x: torch.nn.functional.dropout(x, 0.5, training=True), backend=backend)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftToTorch)
        first, second = compiled(x), compiled(x)
    assert not torch.equal(first, second)
    assert 400 < int((first == 0).sum()) < 600


# ---- memory of outputs ----------------------------------------------------------------------------------------------


def test_an_input_that_is_returned_is_itself():
    x = torch.randn(3, 4)
    with torch.no_grad():
        same, view, product = torch.compile(lambda x: (x, x[1], x * 2), backend=backend, options=STRICT)(x)
    assert same is x
    assert_equal(product, 2 * x)
    view.fill_(7)
    assert x[1].tolist() == [7, 7, 7, 7]


def test_views_of_one_result_share_its_memory():
    def parts(x):
        y = x * 2
        return y[:, 1:], y.t(), y

    with torch.no_grad():
        right, turned, whole = torch.compile(parts, backend=backend, options=STRICT)(torch.ones(3, 4))
    whole.fill_(5)
    assert right.tolist() == [[5] * 3] * 3
    assert turned.tolist() == [[5] * 3] * 4


def test_views_across_a_graph_break_are_torchs():
    def steps(x):
        y = x.view(-1)
        torch._dynamo.graph_break()
        y.add_(1)
        return x * 2

    x, other = torch.zeros(2, 3), torch.zeros(2, 3)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftToTorch)
        assert_equal(torch.compile(steps, backend=backend)(x), steps(other))
    assert_equal(x, other)


# ---- types and layouts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_types_go_in_and_out(dtype):
    kind = getattr(torch, dtype)
    layer, x = Layer().eval().to(kind), torch.randn(3, 12).to(kind)
    with torch.no_grad():
        got, want = torch.compile(layer, backend=backend)(x), layer(x)
    assert got.dtype == kind
    np.testing.assert_allclose(got.double().numpy(), want.double().numpy(), rtol=2e-2, atol=3e-2)


def test_inputs_need_not_be_contiguous():
    x = torch.randn(5, 4)
    with torch.no_grad():
        compiled = torch.compile(lambda x: x * 2 + 1, backend=backend, options=STRICT)
        for given in (x, x.t(), x[:, ::2], x[0].expand(3, 4)):
            assert_equal(compiled(given), given * 2 + 1)


def test_results_under_autocast_have_the_types_of_an_eager_run():
    """This includes composite operators, such as einsum, within which PyTorch casts."""
    weights = torch.randn(4, 16, 16) / 4

    def function(x):
        product = torch.einsum("td,edf->tef", x, weights)
        return product, product.sum(1)

    x = torch.randn(10, 16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        wanted = function(x)
        found = torch.compile(function, backend="tvm_tiling")(x)
    for result, want in zip(found, wanted, strict=True):
        assert result.dtype == want.dtype == torch.bfloat16
        torch.testing.assert_close(result, want, rtol=0.02, atol=0.05)


def test_weights_that_other_tensors_make_are_left_to_torch_by_name():
    """As torchao's are, which kernels would have to know."""
    from torch.testing._internal.two_tensor import TwoTensor

    net = torch.nn.Linear(6, 5)
    held = torch.randn(5, 6)
    net.weight = torch.nn.Parameter(TwoTensor(held, 2 * held), requires_grad=False)
    x = torch.randn(3, 6)
    said = "a tensor is a torch.TwoTensor, a wrapper of other tensors; expected dense tensors, or the module by"
    with torch.no_grad():
        want = net(x)
        with pytest.warns(LeftToTorch, match=said):
            got = torch.compile(net, backend="tvm_tiling")(x)
        assert torch.equal(got.a, want.a) and torch.equal(got.b, want.b)
        torch._dynamo.reset()
        with pytest.raises(Exception, match=said):
            torch.compile(net, backend="tvm_tiling", options={"fallback": False})(x)


def test_autocast_around_a_call_is_kept():
    layer, x = Layer().eval(), torch.randn(3, 12)
    compiled = torch.compile(layer, backend=backend)
    with torch.no_grad(), warnings.catch_warnings(), torch.autocast("cpu", torch.bfloat16):
        warnings.simplefilter("ignore", LeftToTorch)
        got, want = compiled(x), layer(x)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got.float().numpy(), want.float().numpy(), rtol=2e-2, atol=3e-2)


# ---- graphs and sizes -----------------------------------------------------------------------------------------------


def test_results_are_torchs_for_every_shape():
    net = Net().eval()
    compiled = torch.compile(net, backend=backend, dynamic=False, options=STRICT)
    with torch.no_grad():
        for size in (9, 12):
            x = torch.randn(2, 3, size, size)
            assert_equal(compiled(x), net(x))


def test_graph_breaks_are_torchs():
    def steps(x):
        y = torch.tanh(x) * 2
        torch._dynamo.graph_break()
        return torch.relu(y) + 1

    x = torch.randn(7, 5)
    with torch.no_grad():
        assert_equal(torch.compile(steps, backend=backend, dynamic=False, options=STRICT)(x), steps(x))


@pytest.mark.parametrize(("cell", "sequences"), [("LSTM", SEQUENCES), ("GRU", (2,)), ("RNN", ())])
def test_recurrent_layers_are_compiled_whole(cell, sequences, compilations):
    net, x = getattr(torch.nn, cell)(12, 20, num_layers=2).eval(), torch.randn(5, *sequences, 12)
    with torch.no_grad():
        outputs, _ = torch.compile(net, backend="tvm_tiling", dynamic=False, options=STRICT)(x)
        np.testing.assert_allclose(outputs.numpy(), net(x)[0].numpy(), atol=2e-6)
    assert sum(operator.calls for operator in compilations[0].operators if operator.kind == "recurrence") == 2


@pytest.mark.parametrize("cell", ["LSTM", "RNN"])
def test_graphs_of_open_sizes_are_compiled_for_the_sizes_that_come(cell):
    net = getattr(torch.nn, cell)(12, 20).eval()
    with torch.no_grad():
        compiled = torch.compile(net, backend=backend, dynamic=True, options=STRICT)
        for steps in (5, 3, 5):
            x = torch.randn(steps, 12)
            np.testing.assert_allclose(compiled(x)[0].numpy(), net(x)[0].numpy(), atol=2e-6)


def test_a_second_shape_and_a_second_network_of_a_class_need_no_option():
    with torch.no_grad():
        for width in (8, 24):
            net = torch.nn.Sequential(torch.nn.Linear(width, 16), torch.nn.ReLU(), torch.nn.Linear(16, width)).eval()
            compiled = torch.compile(net, backend=backend, options=STRICT)
            for batch in (4, 7, 1, 9):
                x = torch.randn(batch, width)
                assert_equal(compiled(x), net(x))


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_and_numbers_cross_graph_breaks(dynamic):
    def steps(x, factor):
        y = torch.tanh(x) * factor
        rows = x.shape[0] * 2 + factor
        torch._dynamo.graph_break()
        return torch.relu(y) + rows, rows

    compiled = torch.compile(steps, backend=backend, dynamic=dynamic, options=STRICT)
    with torch.no_grad():
        for rows, factor in ((7, 2), (9, 2), (9, 3), (9, 0.5), (9, 0.25), (8, 0.25)):
            x = torch.randn(rows, 5)
            (got, count), (want, expected) = compiled(x, factor), steps(x, factor)
            assert_equal(got, want)
            assert count == expected


def test_executables_of_open_sizes_are_few(monkeypatch, compilations):
    monkeypatch.setattr(torch_backend, "KEPT", 2)
    compiled = torch.compile(lambda x: torch.relu(x) + 1, backend=backend, dynamic=True, options=STRICT)
    for rows, expected in ((3, 1), (4, 2), (3, 2), (5, 3), (3, 3), (4, 4)):
        x = torch.randn(rows, 5)
        np.testing.assert_allclose(compiled(x).numpy(), np.maximum(x.numpy(), 0) + 1)
        assert len(compilations) == expected
