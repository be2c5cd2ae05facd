"""Float32 models with recurrent layers on the column engine: quantised to its fixed point, exact in it, with its
cycles."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from fixed_point_cells import ONE, by_numpy

import tvm_tiling as tt
from tvm_tiling.hardware import Memory
from tvm_tiling.model.accel.executable import AcceleratedExecutable

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

STEPS, BATCH, INPUTS, HIDDEN = 5, 2, 6, 8
# Gate order in ONNX, and in PyTorch, which the integer cells use.
ORDERS = {"lstm": ("iofg", "ifgo"), "gru": ("zrn", "rzn"), "rnn": ("h", "h")}


def weights_of(cell, directions=1, seed=0):
    rng, rows = np.random.default_rng(seed), len(ORDERS[cell][0]) * HIDDEN
    shapes = {"W": (rows, INPUTS), "R": (rows, HIDDEN), "B": (2 * rows,)}
    return {name: rng.uniform(-0.5, 0.5, (directions, *shape)).astype("float32") for name, shape in shapes.items()}


def model_of(cell, weights, lengths=None, states=False, **attributes):
    """Return a model of one ONNX node with all its outputs."""
    directions, names = len(weights["W"]), ["h", "c"] if cell == "lstm" else ["h"]
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    if isinstance(lengths, tuple):
        constants.append(numpy_helper.from_array(np.array(lengths, "int32"), "lengths"))
    first = [f"{name}0" for name in names] if states else []
    node = helper.make_node(
        cell.upper(),
        ["x", *weights, "lengths" if lengths else "", *first],
        ["y", *names],
        hidden_size=HIDDEN,
        direction={1: "forward", 2: "bidirectional"}[directions],
        **attributes,
    )
    state = (directions, BATCH, HIDDEN)
    inputs = {"x": (STEPS, BATCH, INPUTS), **dict.fromkeys(first, state)}
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    if lengths == "given":
        given.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, (BATCH,)))
    outputs = {"y": (STEPS, directions, BATCH, HIDDEN), **dict.fromkeys(names, state)}
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
    graph = helper.make_graph([node], "g", given, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def in_order(cell, rows):
    ours, theirs = ORDERS[cell][1], dict(zip(ORDERS[cell][0], np.split(rows, len(ORDERS[cell][0])), strict=True))
    return np.concatenate([theirs[gate] for gate in ours])


def wanted(cell, exe, weights, x, states=None, lengths=(STEPS,) * BATCH, **further):
    """Return y and the final states, by integers, as float32."""
    gates = len(ORDERS[cell][0]) * HIDDEN
    workload = tt.RnnWorkload(cell=cell, steps=STEPS, input_size=INPUTS, hidden_size=HIDDEN, dtype="int16", **further)
    y = np.zeros((STEPS, len(weights["W"]), BATCH, HIDDEN))
    count = 2 if cell == "lstm" else 1
    finals = np.zeros((count, *y.shape[1:]))
    for way, (w, r, b) in enumerate(zip(*weights.values(), strict=True)):
        bits = exe.steps[way].instructions["immediate"]  # of the step's SCALE: 2^-bits
        bits = round(-np.log2(min(value for value, _ in bits.tolist() if 0 < value < 1)))
        pair = [np.rint(in_order(cell, m.astype("float64")) * 2**bits) for m in (w, r)]
        sides = [in_order(cell, side.astype("float64")) for side in (b[:gates], b[gates:])]
        kept = cell == "gru" and further.get("linear_before_reset")
        if not kept:  # one bias per row, rounded once
            sides = [sides[0] + sides[1], 0 * sides[1]]
        else:
            whole = sides[0] + np.where(np.arange(gates) < 2 * HIDDEN, sides[1], 0)
            sides = [whole, np.where(np.arange(gates) < 2 * HIDDEN, 0, sides[1])]
        biases = [np.rint(side * 2.0 ** (12 + bits)) for side in sides]
        for row, length in enumerate(lengths):
            given = np.clip(np.rint(x[:length, row] * ONE), -(2**15), 2**15 - 1)
            start = None if states is None else tuple(np.rint(s[way, row] * ONE) for s in states)
            steps, last = by_numpy(workload, given[:: -1 if way else 1], *pair, biases, start, bits)
            y[:length, way, row] = steps[:: -1 if way else 1]
            finals[:, way, row] = last
    return [y / ONE, *(finals / ONE)]


CASES = (
    ("lstm", {}, {}),
    ("gru", {"linear_before_reset": 1}, {"linear_before_reset": True}),
    ("gru", {}, {"linear_before_reset": False}),
    ("rnn", {}, {}),
)


@pytest.mark.parametrize(("cell", "attributes", "further"), CASES, ids=str)
def test_onnx_layers_are_exact_in_fixed_point_and_close_to_the_float_model(cell, attributes, further):
    """Both directions, biases, states and lengths."""
    weights, lengths = weights_of(cell, 2), (STEPS, 3)
    model = model_of(cell, weights, lengths, states=True, **attributes)
    exe = tt.compile(model, target="vsim/rnn16k")
    assert isinstance(exe, AcceleratedExecutable) and len(exe.steps) == 2
    assert not any("recurrence" in name for name in exe.left)
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, (STEPS, BATCH, INPUTS)).astype("float32")
    count = 2 if cell == "lstm" else 1
    states = [rng.uniform(-1, 1, (2, BATCH, HIDDEN)).astype("float32") for _ in range(count)]
    found, sim = exe.simulate(x, *states)
    layer = [row.nodes for row in exe.report().operators if row.where == "accelerator" and cell in row.workload]
    assert layer == [("y",)] and sim.cycles > 0  # the name of the node without a name
    for got, value in zip(found, wanted(cell, exe, weights, x, states, lengths, **further), strict=True):
        np.testing.assert_array_equal(got, value.astype("float32"))
    if cell in ("lstm", "rnn"):  # one case of each cost suffices in addition to the exact results
        for got, value in zip(found, tt.compile(model, cache=False).run(x, *states), strict=True):
            np.testing.assert_allclose(got, value, atol=4e-3)


def test_a_layers_cycles_are_those_of_its_decision_and_it_is_a_task(tmp_path):
    machine = tt.Hardware.rnn(multipliers=16384, threads=4)
    exe = tt.compile(model_of("lstm", weights_of("lstm")), target=machine)
    workload = tt.RnnWorkload(batch=BATCH, steps=STEPS, input_size=INPUTS, hidden_size=HIDDEN, dtype="int16")
    decided = tt.decide(workload, machine)
    x = np.random.default_rng(0).uniform(-1, 1, (STEPS, BATCH, INPUTS)).astype("float32")
    found, sim = exe.simulate(x)
    assert sim.cycles == decided.cycles == tt.simulate([(exe, STEPS, 0)] * BATCH).cycles
    assert any(row.name == "y" and row.cycles == sim.cycles for row in exe.report().operators)
    for other in tt.run_many([(exe, x), (exe, {"x": x})]):
        np.testing.assert_array_equal(other[0], found[0])
    exe.save(tmp_path / "lstm.tar")
    again = tt.load(tmp_path / "lstm.tar")
    for got, value in zip(again.run(x), found, strict=True):
        np.testing.assert_array_equal(got, value)
    assert tt.simulate([(again, STEPS, 0), (exe, 3, 10)]).cycles > 0


def test_inputs_beyond_the_format_saturate_and_large_weights_lose_bits_not_sums():
    weights = weights_of("rnn")
    weights["R"] *= 100
    exe = tt.compile(model_of("rnn", weights), target="vsim/rnn16k")
    x = np.full((STEPS, BATCH, INPUTS), 50, "float32")
    found = exe.run(x)
    for got, value in zip(found, wanted("rnn", exe, weights, x), strict=True):
        np.testing.assert_array_equal(got, value.astype("float32"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"lengths": "given"}, "sequence lengths known only at run time"),
        ({"R": 1e5}, "with sums of up to"),
        ({"clip": 0.5}, "gates whose sums are clipped"),
    ],
    ids=str,
)
def test_layers_that_the_engine_does_not_take_run_on_the_cpu_and_say_why(changed, said):
    weights = weights_of("lstm")
    weights["R"] = weights["R"] * changed.get("R", 1)
    attributes = {"clip": changed["clip"]} if "clip" in changed else {}
    exe = tt.compile(model_of("lstm", weights, changed.get("lengths"), **attributes), target="vsim/rnn16k")
    assert exe.steps == () and any(said in why for why in exe.left.values())
    with pytest.raises(tt.UnsupportedOperator, match="a task with 0 recurrent layers"):
        tt.simulate([(exe, STEPS, 0)])


@pytest.mark.parametrize(("room", "programs"), [(500, 0), (1100, 3), (2200, 2)])
def test_layers_for_which_there_is_no_memory_run_on_the_cpu_and_directions_one_by_one(room, programs):
    # One piece besides those of the layer concatenates the directions.
    model = model_of("lstm", weights_of("lstm", directions=2))
    small = dataclasses.replace(tt.Hardware.load("rnn16k"), memories={"b": Memory(bytes=room)})
    exe = tt.compile(model, target=small)
    assert len(exe.programs) == programs and len(exe.steps) == (2 if programs else 0)
    assert programs or [f"memory 'b' has {room} bytes; expected at least" in why for why in exe.left.values()].count(
        True
    )
    x = np.random.default_rng(3).uniform(-1, 1, (STEPS, BATCH, INPUTS)).astype("float32")
    for found, value in zip(exe.run(x), tt.compile(model).run(x), strict=True):
        np.testing.assert_allclose(found, value, atol=5e-3 if programs else 1e-6)


def test_calibration_is_for_other_layers():
    with pytest.raises(tt.HardwareError, match=r"rnn16k computes recurrent layers in 16-bit .* expected None"):
        tt.compile(
            model_of("rnn", weights_of("rnn")),
            target="vsim/rnn16k",
            calibration=[np.zeros((STEPS, BATCH, INPUTS), "float32")],
        )


def test_torch_layers_in_both_directions():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net, x = torch.nn.GRU(INPUTS, HIDDEN, num_layers=2, bidirectional=True).eval(), torch.randn(STEPS, BATCH, INPUTS)
    machine = tt.Hardware.rnn(multipliers=16384, threads=4)  # with free transfers, as in the decision
    exe = tt.compile(net, target=machine, example_inputs=(x,))
    assert len(exe.steps) == 4
    found, sim = exe.simulate(x.numpy())
    with torch.no_grad():
        for got, value in zip(found, net(x), strict=True):
            np.testing.assert_allclose(got, value.numpy(), atol=4e-3)
    layers = {"cell": "gru", "batch": BATCH, "steps": STEPS, "dtype": "int16"}
    both = tt.RnnWorkload(input_size=INPUTS, hidden_size=HIDDEN, layers=2, bidirectional=True, **layers)
    decided = tt.decide(both, machine)
    assert decided.cycles <= sim.cycles <= decided.cycles + sum(config.cx for config in decided.layers)
    with pytest.raises(tt.UnsupportedOperator, match="a task with 4 recurrent layers and directions"):
        tt.simulate([(exe, STEPS, 0)])
