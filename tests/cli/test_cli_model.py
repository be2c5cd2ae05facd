"""compile, run and report: an ONNX file to an executable, its outputs, its report; and what bad input is told."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tvm_tiling.cli import main
from tvm_tiling.cli.model_options import shapes_of
from tvm_tiling.errors import WorkloadError

onnx = pytest.importorskip("onnx")


def run(capsys, *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(words)
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out, said.err


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An ONNX model of one convolution and a ReLU, one that leaves its batch open, and inputs."""
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)
    weights = rng.uniform(-1, 1, (8, 3, 3, 3)).astype("float32")
    helper = onnx.helper

    def model(batch: int | str) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["y"], ["z"]),
        ]
        kind = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            nodes,
            "net",
            [helper.make_tensor_value_info("x", kind, [batch, 3, 9, 9])],
            [helper.make_tensor_value_info("z", kind, [batch, 8, 9, 9])],
            [onnx.numpy_helper.from_array(weights, "w")],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)

    onnx.save(model(1), folder / "net.onnx")
    onnx.save(model("batch"), folder / "open.onnx")
    x = rng.uniform(-1, 1, (1, 3, 9, 9)).astype("float32")
    np.savez(folder / "x.npz", x=x)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    np.save(folder / "want.npy", np.maximum(np.einsum("nchwij,ocij->nohw", windows, weights), 0))
    return folder


def test_compile_then_run_then_report(files, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path / "cache"))
    compiled = str(tmp_path / "net.tar")
    code, out, err = run(capsys, "compile", str(files / "net.onnx"), "-o", compiled)
    assert (code, err) == (0, "") and "input x: 1 x 3 x 9 x 9 float32" in out
    code, _, _ = run(capsys, "run", compiled, "--input", str(files / "x.npz"), "-o", str(tmp_path / "z.npz"))
    assert code == 0
    with np.load(tmp_path / "z.npz") as outputs:
        np.testing.assert_allclose(outputs["z"], np.load(files / "want.npy"), rtol=1e-4, atol=1e-5)
    code, out, _ = run(capsys, "report", compiled, "--seconds", "0.05", "--json")
    report = json.loads(out[out.index("{") :])
    assert code == 0 and report["seconds"] > 0
    assert any(operator["kind"] == "convolution" and operator["decision"] for operator in report["operators"])


def test_open_dimensions_are_given_by_shape(files, capsys, tmp_path):
    target = str(tmp_path / "net.tar")
    code, out, err = run(capsys, "compile", str(files / "open.onnx"), "-o", target, "--no-cache")
    assert (code, out) == (1, "") and err.startswith("error: ") and "batch" in err and err.count("\n") == 1
    code, out, _ = run(capsys, "compile", str(files / "open.onnx"), "-o", target, "--no-cache", "--shape", "x=2,3,9,9")
    assert code == 0 and "input x: 2 x 3 x 9 x 9 float32" in out


@pytest.mark.parametrize("words", [("run", "none.onnx"), ("compile", "none.onnx"), ("report", "none.tar")])
def test_a_missing_file_is_one_line(words, capsys):
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "") and words[1] in err and err.count("\n") == 1


@pytest.mark.parametrize("text", ["x", "x=", "=1,2", "x=1,b", "x=1,0"])
def test_what_is_no_shape_is_quoted(text):
    with pytest.raises(WorkloadError, match="accepted: name=1,3,224,224"):
        shapes_of([text])
