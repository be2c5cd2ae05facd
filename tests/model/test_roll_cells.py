"""Unrolled cells of exporters become recurrent layers again: results are those of the loop, and the count shows it."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.frontend import load_model
from tvm_tiling.match.recurrent import recurrence_of
from tvm_tiling.model.passes.roll import roll_cells

torch = pytest.importorskip("torch")

STEPS, BATCH, INPUTS, HIDDEN = 5, 2, 3, 8


def recurrences(mod):
    """Return the steps of the recurrences that the rolled module calls."""
    mod = relax.transform.DeadCodeElimination(["main"])(roll_cells(mod))
    names = [b.value.args[0] for block in mod["main"].body.blocks for b in block.bindings if called(b.value)]
    return sorted(recurrence_of(mod[name]).steps for name in names)


def called(value):
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.call_tir"


class Loop(torch.nn.Module):
    """A Python loop over torch's cells: layers, the last one's states, c if there is one."""

    def __init__(self, cell, layers=1, backwards=False, bias=True):
        super().__init__()
        sizes = [INPUTS] + [HIDDEN] * (layers - 1)
        self.cells = torch.nn.ModuleList(getattr(torch.nn, cell)(size, HIDDEN, bias=bias) for size in sizes)
        self.lstm, self.backwards = cell == "LSTMCell", backwards

    def forward(self, x, h):
        states = [(h, 0.5 * h) if self.lstm else h for _ in self.cells]
        outputs = []
        for step in reversed(range(STEPS)) if self.backwards else range(STEPS):
            below = x[step]
            for place, cell in enumerate(self.cells):
                states[place] = cell(below, states[place])
                below = states[place][0] if self.lstm else states[place]
            outputs.append(below)
        if self.backwards:
            outputs.reverse()
        return (torch.stack(outputs), *(states[-1] if self.lstm else ()))


def inputs(seed=0):
    torch.manual_seed(seed)
    return torch.randn(STEPS, BATCH, INPUTS), torch.randn(BATCH, HIDDEN)


def compare(net, given, layers):
    """The compiled model has this many recurrences, no matrix multiplications except those of the inputs, and torch's
    results."""
    exe = tt.compile(net.eval(), example_inputs=given, cache=False)
    check(exe, net, given, layers)


def check(exe, net, given, layers):
    kinds = [operator.kind for operator in exe.operators for _ in range(operator.calls)]
    assert (kinds.count("recurrence"), kinds.count("gemm")) == (layers, layers)
    found = exe.run(*(value.numpy() for value in given))
    with torch.no_grad():
        wanted = net(*given)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, value in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        np.testing.assert_allclose(got, value.numpy(), atol=2e-6)


@pytest.mark.parametrize(
    ("cell", "further"),
    [("LSTMCell", {"layers": 2}), ("GRUCell", {"backwards": True}), ("RNNCell", {"bias": False})],
    ids=str,
)
def test_torch_loops_over_cells(cell, further):
    net = Loop(cell, **further)
    compare(net, inputs(), len(net.cells))


@pytest.mark.parametrize("cell", ["LSTMCell", "GRUCell", "RNNCell"])
def test_onnx_exports_of_loops_over_cells(cell):
    pytest.importorskip("onnx")
    net, given, file = Loop(cell).eval(), inputs(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, given, file, dynamo=False)
    check(tt.compile(file.getvalue(), cache=False), net, given, 1)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
def test_layers_that_tvms_own_frontend_unrolls(layer, bidirectional):
    from tvm.relax.frontend.torch import from_exported_program

    net = getattr(torch.nn, layer)(INPUTS, HIDDEN, bidirectional=bidirectional).eval()
    x, _ = inputs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(net, (x,))
        table = torch.export.default_decompositions()
        for name in [name for name in table if str(name) in ("aten.lstm.input", "aten.gru.input")]:
            table.pop(name)
        module = from_exported_program(program, run_ep_decomposition=False)
    assert recurrences(module) == [STEPS] * (2 if bidirectional else 1)
    exe = tt.compile(module, cache=False)
    found = exe.run(x.numpy())
    found = found[0] if isinstance(found, tuple) else found
    with torch.no_grad():
        np.testing.assert_allclose(found, net(x)[0].numpy(), atol=2e-6)


class Projected(torch.nn.Module):
    """All steps' input GEMMs come first; a GRU whose reset gate multiplies the state, with gates in one matrix of [z,
    r] and one of the candidate."""

    def __init__(self):
        super().__init__()
        self.inputs = torch.nn.Linear(INPUTS, 3 * HIDDEN)
        self.gates = torch.nn.Linear(HIDDEN, 2 * HIDDEN, bias=False)
        self.candidate = torch.nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x, h):
        projected = self.inputs(x)
        outputs = []
        for step in range(STEPS):
            z, r = torch.sigmoid(projected[step][:, : 2 * HIDDEN] + self.gates(h)).chunk(2, 1)
            n = torch.tanh(projected[step][:, 2 * HIDDEN :] + self.candidate(r * h))
            h = (1 - z) * n + z * h
            outputs.append(h)
        return torch.stack(outputs, 1)


def test_a_hand_written_gru_of_projected_inputs():
    compare(Projected(), inputs(), 1)


class Beside(torch.nn.Module):
    """Each step multiplies x and h concatenated, as in textbooks; batch first, one matrix per gate."""

    def __init__(self):
        super().__init__()
        self.gates = torch.nn.ModuleDict({gate: torch.nn.Linear(INPUTS + HIDDEN, HIDDEN) for gate in "ogif"})

    def forward(self, x, h):
        c, outputs = torch.zeros_like(h), []
        for step in range(STEPS):
            both = torch.cat([x[:, step], h], 1)
            i, f, o = (torch.sigmoid(self.gates[gate](both)) for gate in "ifo")
            c = torch.tanh(self.gates["g"](both)) * i + c * f
            h = torch.tanh(c) * o
            outputs.append(h[:, None])
        return torch.cat(outputs, 1), c


def test_a_hand_written_lstm_of_x_and_h_beside_each_other():
    x, h = inputs()
    compare(Beside(), (x.transpose(0, 1).contiguous(), h), 1)


def steps_of(net, given=None):
    return recurrences(load_model(net.eval(), example_inputs=given or inputs()).module)


class Asking(Loop):
    """Returns c of the third step, too."""

    def forward(self, x, h):
        state, kept = (h, h), None
        for step in range(STEPS):
            state = self.cells[0](x[step], state)
            kept = state[1] if step == 2 else kept
        return state[0], kept


def test_a_chain_is_config_where_c_is_asked_for():
    net, given = Asking("LSTMCell"), inputs()
    assert steps_of(net) == [2, 3]
    exe = tt.compile(net, example_inputs=given, cache=False)
    with torch.no_grad():
        for got, wanted in zip(exe.run(*(v.numpy() for v in given)), net(*given), strict=True):
            np.testing.assert_allclose(got, wanted.numpy(), atol=2e-6)


class Feeding(Loop):
    """The result of a step is the input of the next one."""

    def forward(self, x, h):
        below = x[0]
        for _ in range(STEPS):
            h = self.cells[0](below, h)
            below = h[:, :INPUTS]
        return h


class InTurn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = torch.nn.ModuleList(torch.nn.GRUCell(INPUTS, HIDDEN) for _ in range(2))

    def forward(self, x, h):
        for step in range(STEPS):
            h = self.cells[step % 2](x[step], h)
        return h


def test_steps_that_are_not_equal_or_need_each_other_stay():
    assert steps_of(Feeding("GRUCell")) == []
    assert steps_of(InTurn()) == []


RELAY = """#[version = "0.0.5"]
def @main(%x0: Tensor[(1, 8), float32], %x1: Tensor[(1, 8), float32], %wx: Tensor[(32, 8), float32],
          %wh: Tensor[(32, 8), float32], %b: Tensor[(32), float32]) {
  %0 = zeros(shape=[1, 8], dtype="float32");
  let %cell = fn (%x: Tensor[(1, 8), float32], %h: Tensor[(1, 8), float32], %c: Tensor[(1, 8), float32]) {
    %1 = nn.dense(%x, %wx, units=32);
    %2 = nn.dense(%h, %wh, units=32);
    %3 = nn.bias_add(%1, %b, axis=-1);
    %4 = add(%3, %2);
    %5 = split(%4, indices_or_sections=4, axis=1);
    %6 = sigmoid(%5.1);
    %7 = multiply(%6, %c);
    %8 = sigmoid(%5.0);
    %9 = tanh(%5.2);
    %10 = multiply(%8, %9);
    %11 = add(%7, %10);
    %12 = sigmoid(%5.3);
    %13 = tanh(%11);
    %14 = multiply(%12, %13);
    (%14, %11)
  };
  %15 = %cell(%x0, %0, %0);
  %16 = %cell(%x1, %15.0, %15.1);
  %16.0
}
"""


def test_cells_of_a_relay_model(tmp_path):
    path = tmp_path / "lstm.relay"
    path.write_text(RELAY)
    rng = np.random.default_rng(0)
    weights = {n: rng.standard_normal(s, "float32") for n, s in (("wx", (32, 8)), ("wh", (32, 8)), ("b", 32))}
    assert recurrences(load_model(path, params=weights).module) == [2]
    x = rng.standard_normal((2, 1, 8), "float32")
    found = tt.compile(path, params=weights, cache=False).run(x0=x[0], x1=x[1])
    lstm = torch.nn.LSTM(8, 8)
    zeros = np.zeros(32, "float32")
    values = (weights["wx"], weights["wh"], weights["b"], zeros)
    with torch.no_grad():
        for parameter, value in zip(lstm.parameters(), values, strict=True):
            parameter.copy_(torch.from_numpy(value))
        np.testing.assert_allclose(found, lstm(torch.from_numpy(x))[0][-1].numpy(), atol=2e-6)
