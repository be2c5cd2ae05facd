"""Public API for models and operators on the simulated accelerator: every kind of model, the report and its files, the
program by itself, and unsupported input."""

from __future__ import annotations

import itertools
import json

import numpy as np
import onnx
import pytest
import tvm
from html_page import Page
from networks import Network, attention
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, te

import tvm_tiling as tt
from tvm_tiling.figures import count
from tvm_tiling.match import prim_func_of

rng = np.random.default_rng(0)
X, W = rng.integers(-9, 9, (40, 60)).astype(np.int8), rng.integers(-9, 9, (60, 50)).astype(np.int8)


def product():
    """40 x 60 by 60 x 50 in int8 as a tensor expression."""
    a, b = (te.placeholder(array.shape, name=name, dtype="int8") for name, array in (("A", X), ("B", W)))
    k = te.reduce_axis((0, 60), name="k")
    return te.compute((40, 50), lambda i, j: te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), axis=k))


def layers(folder):
    """An ONNX file with two layers, 16 x 32 in, 16 x 24 out."""
    weights = {"w0": (32, 48), "w1": (48, 24)}
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w1"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (16, 32))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (16, 24))],
        [numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), n) for n, shape in weights.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "layers.onnx"
    )
    return str(folder / "layers.onnx")


@pytest.fixture(scope="module")
def model():
    """Return a network with attention, quantised for vta: (executable, an input)."""
    network = Network((1, 17, 24))
    module = network.module(attention)
    data = [network.rng.uniform(-1, 1, (1, 17, 24)).astype("float32") for _ in range(2)]
    return tt.compile(module, target="vsim/vta", calibration=data), data[0]


def check_names(executable, sim, *inputs):
    """Documented properties of a run, and of its program by itself."""
    assert sim.lower_bound <= sim.cycles <= sim.upper_bound
    assert 0 < sim.utilisation <= 1 and sim.energy_pj >= 0
    assert sim.bytes["a"] > 0 and sim.bytes["b"] > 0 and sim.bytes["out"] > 0
    for engine, causes in sim.stalls.items():
        assert 0 <= sum(causes.values()) <= sim.cycles - sim.engines[engine].busy
    program = executable.program
    assert tt.simulate(program, hardware=program.hardware).cycles == sim.cycles
    assert "GEMM" in program.disassemble()


@pytest.mark.parametrize("form", ["te", "prim_func", "module"])
def test_operators(form, tmp_path):
    op = {"te": product, "prim_func": lambda: prim_func_of(product())}.get(form)
    op = op() if op else tvm.IRModule({"main": prim_func_of(product())})
    executable = tt.compile(op, target="vsim/neartile")
    result, sim = executable.simulate(X, W)
    np.testing.assert_array_equal(result, X.astype(np.int32) @ W.astype(np.int32))
    check_names(executable, sim)
    assert sim.bytes == {"a": X.nbytes, "b": W.nbytes, "out": 4 * result.size}
    executable.save(tmp_path / "op.vsim")
    again, timed = tt.load(tmp_path / "op.vsim").simulate(X, W)
    np.testing.assert_array_equal(again, result)
    assert timed.cycles == sim.cycles
    (operator,) = executable.report().operators
    assert (operator.where, operator.macs, operator.cycles) == ("accelerator", 40 * 60 * 50, sim.cycles)
    shown = repr(executable).splitlines()
    assert shown[0].endswith("instructions on neartile") and shown[1:3] == [
        "  input A: 40 x 60 int8",
        "  input B: 60 x 50 int8",
    ]


def test_an_onnx_file(tmp_path):
    path = layers(tmp_path)
    x = rng.standard_normal((16, 32)).astype(np.float32)
    executable = tt.compile(path, target="vsim/neartile")
    result, sim = executable.simulate(x)
    np.testing.assert_allclose(result, tt.compile(path, cache=False).run(x), rtol=1e-4, atol=1e-4)
    check_names(executable, sim)
    assert sim.macs == 16 * 32 * 48 + 16 * 48 * 24
    executable.program.save(tmp_path / "p.vsim")
    assert tt.simulate(tt.Program.load(tmp_path / "p.vsim"), hardware="neartile").cycles == sim.cycles


def test_a_quantised_model_names_its_operators(model):
    executable, x = model
    _, sim = executable.simulate(x)
    check_names(executable, sim)
    names = [region.name for region in sim.regions]
    assert len(set(names)) == len(names) == len(executable.program.regions)


# ---- the timeline and the page ---------------------------------------------------------------------------------------


def test_nothing_overlaps_within_an_engine_of_a_models_timeline(model, tmp_path):
    executable, x = model
    _, sim = executable.simulate(x)
    sim.save_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    shown = [event for event in events if event["ph"] == "X" and event["cat"] == "instruction"]
    assert len(shown) == len(executable.program) == sim.instructions
    queues = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 0}
    for number, queue in queues.items():
        own = [event for event in shown if event["tid"] == number]
        for earlier, later in itertools.pairwise(own):
            assert earlier["ts"] + earlier["dur"] <= later["ts"]
        assert sum(event["dur"] for event in own) == sim.engines[queue].busy
    assert max(event["args"]["result"] for event in shown) == sim.cycles
    operators = [event for event in events if event["ph"] == "X" and event["cat"] == "operator"]
    assert [event["name"] for event in operators] == [region.name for region in sim.regions]


def test_the_page_of_a_model_opens_alone_and_holds_every_figure(model, tmp_path):
    executable, x = model
    executable.simulate(x)
    report = executable.report()
    tt.save_report(report, tmp_path / "r.html", "encoder")
    page = Page((tmp_path / "r.html").read_text())
    assert not page.open and not page.outside and "Operators" in page.titles
    for operator in report.operators:
        assert operator.name in page.cells
        told = count(operator.cycles) if operator.where == "accelerator" else operator.why
        assert told in page.cells
    for engine, time in report.sim.engines.items():
        assert engine in page.cells and count(time.busy) in page.cells


# ---- what cannot be served -------------------------------------------------------------------------------------------


def test_inputs_of_another_shape_or_type_are_named(model):
    executable, x = model
    with pytest.raises(
        tt.WorkloadError, match=r"has shape \(1, 16, 24\), but the model was compiled for \(1, 17, 24\)"
    ):
        executable.simulate(x[:, :16])
    with pytest.raises(tt.WorkloadError, match="is float64, but the model takes float32"):
        executable.simulate(x.astype(np.float64))
    operator = tt.compile(product(), target="vsim/neartile")
    with pytest.raises(tt.WorkloadError, match=r"input 'A' has shape \(60, 40\); expected \(40, 60\)"):
        operator.simulate(X.T, W)
    with pytest.raises(tt.WorkloadError, match="input 'B' has type float32; expected int8"):
        operator.simulate(X, W.astype(np.float32))


def test_invalid_machines_are_refused_with_the_nearest_name(model):
    with pytest.raises(tt.HardwareError, match="did you mean 'neartile'"):
        tt.compile(product(), target="vsim/neartyle")
    with pytest.raises(tt.HardwareError, match=r"none\.toml"):
        tt.compile(product(), target="vsim/none.toml")
    with pytest.raises(tt.HardwareError, match="did you mean 'vta'"):
        tt.simulate(model[0].program, hardware="vtaa")


def crowded():
    """A machine whose buffers hold less than one block."""
    return tt.Hardware.neartile(buf_a=1, buf_b=1, acc_max=1, bw_a=1, bw_b=1, macs_per_cycle=64, block_m=8, block_n=8)


def test_a_machine_without_room_refuses_an_operator_and_leaves_a_model_to_the_cpu():
    with pytest.raises(tt.HardwareError):
        tt.compile(product(), target=crowded())
    network = Network((16, 32))
    executable = tt.compile(network.module(lambda net, x: relax.op.matmul(x, net.c(32, 24))), target=crowded())
    (x,) = network.arrays()
    assert executable.run(x).shape == (16, 24)
    for ask in (lambda: executable.simulate(x), lambda: executable.program):
        with pytest.raises(
            tt.UnsupportedOperator,
            match=r"no operator of this model runs on the accelerator: gemm of .*nothing fits",
        ):
            ask()


def test_a_model_of_which_nothing_is_supported_runs_on_the_cpu_and_says_why(tmp_path):
    network = Network((4, 6))
    module = network.module(lambda net, x: relax.op.erf(x))
    executable = tt.compile(module, target="vsim/neartile")
    (x,) = network.arrays()
    assert executable.run(x).shape == (4, 6)
    (operator,) = executable.report().operators
    assert operator.where == "cpu" and "erf" in operator.why
    with pytest.raises(tt.UnsupportedOperator, match="no operator of this model runs on the accelerator"):
        executable.simulate(x)
    executable.save(tmp_path / "m.tar")
    np.testing.assert_array_equal(tt.load(tmp_path / "m.tar").run(x), executable.run(x))


def test_reductions_of_types_that_no_accelerator_has_stay_on_the_cpu():
    node = onnx.helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    ends = [
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, shape)]
        for name, shape in (("x", [3, 5]), ("y", [3]))
    ]
    axes = onnx.numpy_helper.from_array(np.array([1]), "axes")
    graph = onnx.helper.make_graph([node], "sums", *ends, [axes])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    x = np.arange(15).reshape(3, 5)
    np.testing.assert_array_equal(tt.compile(model, target="vsim/vta", cache=False).run(x), x.sum(1))
