"""`tvm-tiling simulate` and `tvm-tiling sweep` on models."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from command_line import run
from onnx import TensorProto, helper, numpy_helper

import tvm_tiling as tt


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Create m.onnx in the working folder, a layer of 32 x 48, and x.npz with an input."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (16, 32))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (16, 48))],
        [numpy_helper.from_array(rng.standard_normal((32, 48)).astype(np.float32), "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "m.onnx")
    np.savez("x.npz", x=rng.standard_normal((16, 32)).astype(np.float32))
    return "m.onnx"


def test_a_model_is_simulated_and_swept(capsys, model):
    code, out, err = run(capsys, "simulate", model, "--json")
    assert (code, err) == (0, "") and json.loads(out)["macs"] == 16 * 32 * 48
    words = ("simulate", model, "--hardware", "vta", "--calibration", "x.npz", "--save", "p.vsim", "--json")
    code, out, err = run(capsys, *words)
    found = json.loads(out)
    assert (code, err) == (0, "") and (found["hardware"], found["macs"]) == ("vta", 16 * 32 * 48)
    assert len(tt.Program.load("p.vsim")) == found["instructions"]
    words = ("sweep", model, "--hardware", "vta", "--calibration", "x.npz", "--json", "--field", "clock_mhz")
    code, out, err = run(capsys, *words, "--values", "50", "100")
    points = json.loads(out)["points"]
    assert (code, err) == (0, "") and [point["report"]["cycles"] for point in points] == [found["cycles"]] * 2


def test_open_sizes_are_given_as_to_other_commands(capsys, model):
    proto = onnx.load(model)
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "rows"
    onnx.save(proto, "open.onnx")
    code, _, err = run(capsys, "simulate", "open.onnx")
    assert code == 1 and "is dynamic; expected --batch N for" in err
    for words in (("--batch", "16"), ("--dim", "rows=16"), ("--shape", "x=16,32")):
        code, out, err = run(capsys, "simulate", "open.onnx", *words, "--json")
        assert (code, err) == (0, "") and json.loads(out)["macs"] == 16 * 32 * 48
    code, out, _ = run(
        capsys, "sweep", "open.onnx", "--batch", "16", "--json", "--field", "clock_mhz", "--values", "50"
    )
    assert code == 0 and len(json.loads(out)["points"]) == 1
    code, out, _ = run(capsys, "report", "open.onnx", "--hardware", "neartile", "--batch", "16", "--json")
    assert code == 0


def test_a_model_is_run_on_an_accelerator_by_the_simulator(capsys, model):
    words = ("run", model, "--input", "x.npz", "--json")
    here, there = (json.loads(run(capsys, *words, *more)[1])["outputs"][0] for more in ((), ("--target", "neartile")))
    assert here["shape"] == there["shape"] == [16, 48] and there["max"] == pytest.approx(here["max"], rel=1e-3)


def test_a_model_on_a_cpu_is_tuned_in_half_precision(capsys, model):
    words = ("tune", model, "--precision", "bfloat16", "--trials", "2", "--json", "--database", "half.db")
    code, out, _ = run(capsys, *words)
    (task,) = json.loads(out)["tasks"]
    assert code == 0 and task["name"] == "h" and task["trials"] == 2


def test_a_model_is_tuned_for_an_accelerator(capsys, model):
    words = ("tune", model, "--target", "vsim/vta", "--trials", "6", "--json", "--database", "shapes.db")
    code, out, _ = run(capsys, *words, "--calibration", "x.npz")
    (task,) = json.loads(out)["tasks"]
    assert code == 0 and task["unit"] == "cycles" and task["trials"] == 6
    with tt.ShapeDatabase("shapes.db") as database:
        found = database.match(tt.GemmWorkload(m=16, n=48, k=32, dtype="int8"), target="vsim/vta")
    assert found.entry.cost == task["cost_after"]
    code, _, err = run(capsys, *words)
    assert code == 1 and "use --calibration inputs.npz" in err


def test_trace_page_and_what_is_left_to_the_cpu(capsys, model, tmp_path):
    words = ("simulate", model, "--hardware", "vta", "--calibration", "x.npz", "--trace", "t.json", "-o", "r.html")
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    hover, left = out.split("on the CPU")
    assert hover.startswith("vta: ") and "matmul_1" not in left and "quantize" in left and "expected" in left
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {"LOAD", "GEMM", "STORE"} <= {event["name"] for event in events}
    assert "quantize" in (tmp_path / "r.html").read_text().split("On the CPU")[-1]
    code, out, err = run(capsys, *words[:6], "--json")
    found = json.loads(out)
    assert (code, err) == (0, "") and all("expected" in why for why in found["on_cpu"].values())
    assert found["bytes"]["b"] >= 32 * 48 > 0


def test_what_was_compiled_for_an_accelerator_is_simulated(capsys, model):
    tt.compile(model, target="vsim/neartile").save("m.tar")
    code, out, err = run(capsys, "simulate", "m.tar", "--json")
    assert (code, err) == (0, "") and json.loads(out)["hardware"] == "neartile"


def test_compiling_says_what_runs_on_the_accelerator(capsys, model):
    code, out, _ = run(capsys, "compile", model, "--target", "rnn16k", "-o", "none.tar")
    assert code == 0 and "\n0 operators on the accelerator, 1 on the CPU: " in out
    code, out, _ = run(capsys, "compile", model, "--target", "neartile", "-o", "some.tar")
    assert code == 0 and "\n1 operator on the accelerator, 0 on the CPU\n" in out


def test_models_that_cannot_be_simulated_are_one_line(capsys, model, tmp_path):
    tt.compile(model, cache=False).save("cpu.tar")
    (tmp_path / "bad.npz").write_bytes(b"none")
    for words, why in (
        ((model, "--hardware", "vta"), "calibration"),
        (("cpu.tar",), "compiled for a CPU"),
        ((model, "--calibration", "bad.npz"), "bad.npz has no named arrays"),
        (("gemm 8 8 8", "--calibration", "x.npz"), "--shape and --calibration apply to models"),
    ):
        code, out, err = run(capsys, "simulate", *words)
        assert (code, out) == (1, "") and err.startswith("error: ") and why in err and err.count("\n") == 1
        assert "defect" not in err
