"""Recurrent layers of ONNX and PyTorch use the kernel for a whole sequence, and equal these packages' results."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tvm

import tvm_tiling as tt

sys.path.insert(0, str(Path(__file__).parents[1] / "frontend"))  # whose cases are used here

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

from onnx import TensorProto, helper  # noqa: E402
from onnx_nodes import by_compile, cases, check  # noqa: E402

NODES = sorted(name for name in cases() if name.removeprefix("test_").startswith(("lstm", "gru", "rnn", "simple_rnn")))


def kinds(exe):
    return [operator.kind for operator in exe.operators]


def test_there_are_node_tests_of_every_cell():
    assert len(NODES) >= 12
    assert {name.removeprefix("test_").split("_")[0] for name in NODES} == {"lstm", "gru", "rnn", "simple"}


@pytest.mark.parametrize("name", NODES)
def test_onnx_node_tests_pass_and_use_the_kernel(name):
    check(cases()[name], by_compile)
    assert "recurrence" in kinds(tt.compile(cases()[name].model, cache=False))


TORCH = (
    ("LSTM", {}),
    ("LSTM", {"num_layers": 2, "bidirectional": True, "bias": False}),
    ("GRU", {"num_layers": 2, "batch_first": True}),
    ("RNN", {"nonlinearity": "relu", "bidirectional": True}),
)


@pytest.mark.parametrize(("cell", "further"), TORCH, ids=str)
def test_torch_layers_with_and_without_states(cell, further):
    torch.manual_seed(0)
    net = getattr(torch.nn, cell)(12, 20, **further).eval()
    x = torch.randn(3, 5, 12)
    batch = 3 if net.batch_first else 5
    places = net.num_layers * (2 if net.bidirectional else 1)
    states = torch.randn(places, batch, 20), torch.randn(places, batch, 20)
    start = states if cell == "LSTM" else states[0]
    for inputs in ((x,), (x, start)):
        exe = tt.compile(net, example_inputs=inputs, cache=False)
        assert sum(operator.calls for operator in exe.operators if operator.kind == "recurrence") == places
        given = [x.numpy(), *(s.numpy() for s in states)][: 1 if len(inputs) == 1 else 3 if cell == "LSTM" else 2]
        found = exe.run(*given)
        with torch.no_grad():
            output, final = net(*inputs)
        wanted = [output, *(final if cell == "LSTM" else [final])]
        for got, value in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, value.numpy(), atol=2e-6)


SHAPES = {"W": (1, 16, 3), "R": (1, 16, 4), "B": (1, 32)}


def lstm_weights():
    """Weights of an LSTM with 4 units on 3 inputs."""
    rng = np.random.default_rng(1)
    return {name: rng.normal(size=shape).astype("float32") for name, shape in SHAPES.items()}


def lstm_model(**attributes):
    """The LSTM as a model of 3 steps of 2 sequences."""
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in lstm_weights().items()]
    node = helper.make_node("LSTM", ["x", *SHAPES], ["y"], hidden_size=4, **attributes)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (3, 2, 3)), ("y", (3, 1, 2, 4))))
    graph = helper.make_graph([node], "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def bent_lstm(x, clip=np.inf, input_forget=0, open_by=sigmoid, inner=np.tanh):
    """In NumPy, gates in the order i, o, f, c."""
    w = {name: value[0].astype("float64") for name, value in lstm_weights().items()}
    h = c = np.zeros((2, 4))
    outputs = []
    for row in x:
        sums = row @ w["W"].T + h @ w["R"].T + w["B"][:16] + w["B"][16:]
        i, o, f, g = np.split(np.clip(sums, -clip, clip), 4, axis=1)
        i, o, f = open_by(i), open_by(o), open_by(f)
        c = (1 - i if input_forget else f) * c + i * inner(g)
        h = o * np.tanh(c)  # not clipped, as in onnxruntime and OpenVINO
        outputs.append(h)
    return np.array(outputs)[:, None]


@pytest.mark.parametrize(
    ("attributes", "bends"),
    [
        ({}, {}),
        ({"clip": 0.5}, {"clip": 0.5}),
        (
            {"clip": 0.5, "activations": ["Softplus", "Tanh", "Tanh"]},  # cell states exceed 0.5
            {"clip": 0.5, "open_by": lambda x: np.log1p(np.exp(x))},
        ),
        ({"input_forget": 1}, {"input_forget": 1}),
        (
            {"activations": ["HardSigmoid", "Softsign", "Tanh"]},
            {"open_by": lambda x: np.clip(0.2 * x + 0.5, 0, 1), "inner": lambda x: x / (1 + np.abs(x))},
        ),
    ],
    ids=["plain", "clip", "clip_below_the_cell", "coupled", "functions"],
)
def test_bent_cells_are_written_out_step_by_step(attributes, bends):
    exe = tt.compile(lstm_model(**attributes), cache=False)
    assert ("recurrence" in kinds(exe)) == (attributes.keys() <= {"clip"})
    x = np.random.default_rng(2).normal(size=(3, 2, 3)).astype("float32")
    np.testing.assert_allclose(exe.run(x), bent_lstm(x, **bends), atol=2e-6)


@pytest.mark.parametrize("clip", [0.0, -0.3, float("nan")])
def test_a_clip_that_is_not_positive_is_refused(clip):
    with pytest.raises(tt.UnsupportedOperator, match=r"LSTM.*clip is .*; expected a positive number"):
        tt.compile(lstm_model(clip=clip), cache=False)


def test_weights_are_packed_once_and_shared_by_layers_of_one_size():
    torch.manual_seed(0)
    exe = tt.compile(torch.nn.LSTM(16, 16, num_layers=3).eval(), example_inputs=(torch.zeros(4, 1, 16),), cache=False)
    (recurrence,) = [operator for operator in exe.operators if operator.kind == "recurrence"]
    assert recurrence.calls == 3 and recurrence.form == "sequence" and recurrence.flops == 3 * 2 * 4 * 4 * 16 * 16
    assert recurrence.decision["op"] == "recurrence"
    assert "recurrence" in str(exe.report())


def test_a_saved_model_and_the_relax_pipeline_have_the_kernel(tmp_path):
    torch.manual_seed(0)
    net, x = torch.nn.GRU(8, 12).eval(), torch.randn(4, 2, 8)
    with torch.no_grad():
        wanted = net(x)[0].numpy()
    exe = tt.compile(net, example_inputs=(x,), cache=False)
    exe.save(tmp_path / "gru.tar")
    np.testing.assert_allclose(tt.load(tmp_path / "gru.tar").run(x.numpy())[0], wanted, atol=2e-6)
    from tvm_tiling.frontend import load_model

    module = load_model(net, example_inputs=(x,)).module
    compiled = tvm.compile(module, tt.llvm_target(), relax_pipeline="tvm_tiling")
    machine = tvm.relax.VirtualMachine(compiled, tvm.cpu())
    np.testing.assert_allclose(machine["main"](tvm.runtime.tensor(x.numpy()))[0].numpy(), wanted, atol=2e-6)
