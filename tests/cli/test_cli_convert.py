"""`tvm-tiling convert`, and the other commands on Relay models."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from command_line import run

from tvm_tiling.frontend import load_model

sys.path.insert(0, str(Path(__file__).parent.parent / "frontend"))

from relay_files import DENSE, B, W, dense_json, dense_result, params_bytes, tar_bytes

X = np.random.default_rng(0).normal(size=(2, 3)).astype("float32")


@pytest.fixture
def files(tmp_path):
    (tmp_path / "model.relay").write_text(DENSE)
    (tmp_path / "model.params").write_bytes(params_bytes({"w": W, "b": B, "old": B}))
    (tmp_path / "model.tar").write_bytes(
        tar_bytes({"model.json": dense_json(), "model.params": params_bytes({"w": W, "b": B})})
    )
    return tmp_path


def test_a_model_with_its_parameters(files, capsys):
    written = files / "out.json"
    code, out, err = run(capsys, "convert", files / "model.relay", "--params", files / "model.params", "-o", written)
    assert (code, err) == (0, "")
    assert "saved by an unknown release of TVM: 3 Relay operators converted" in out
    assert "unused parameters: old" in out
    assert "relax.permute_dims + relax.matmul" in out
    module = tvm.ir.load_json(written.read_text())
    assert [variable.name for variable in module["main"].params] == ["x"]
    assert load_model(module).input_shapes == ((2, 3),)


def test_the_report_as_json(files, capsys):
    code, out, _ = run(capsys, "convert", files / "model.tar", "-o", files / "out.json", "--json")
    hover = json.loads(out)
    assert code == 0
    assert (hover["release"], hover["unused_params"]) == ("0.14", [])
    assert hover["inputs"] == [{"name": "x", "shape": [2, 3], "dtype": "float32"}]
    assert {row["relay"]: row["calls"] for row in hover["mapped"]} == {"nn.bias_add": 1, "nn.dense": 1, "nn.relu": 1}


def test_what_cannot_be_converted_is_one_line(files, capsys):
    (files / "net.onnx").write_bytes(b"\x08\x08")
    (files / "odd.relay").write_text("def @main(%x: Tensor[(2), float32]) {\n  strange(%x)\n}")
    for words, said in (
        ((files / "net.onnx",), "is not a Relay model"),
        ((files / "odd.relay",), "strange (line 2)"),
        ((files / "none.relay",), "does not exist"),
        ((files / "model.relay", "--params", files / "model.relay"), "not a params file"),
        ((files / "model.relay", "--shape", "q=3"), "--shape names 'q'"),
    ):
        code, out, err = run(capsys, "convert", *words, "-o", files / "out.json")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert said in err
    assert not (files / "out.json").exists()


def test_an_archive_is_compiled_and_run(files, capsys):
    np.savez(files / "x.npz", x=X)
    code, _, err = run(capsys, "run", files / "model.tar", "--input", files / "x.npz", "-o", files / "y.npz")
    assert (code, err) == (0, "")
    np.testing.assert_allclose(np.load(files / "y.npz")["output"], dense_result(X), rtol=1e-4, atol=1e-5)
    compiled = files / "compiled.tar"
    code, _, _ = run(
        capsys, "compile", files / "model.relay", "--params", files / "model.params", "-o", compiled, "--no-cache"
    )
    assert code == 0
    code, _, err = run(capsys, "run", compiled, "--input", files / "x.npz", "-o", files / "z.npz")
    assert (code, err) == (0, "")
    np.testing.assert_allclose(np.load(files / "z.npz")["output"], dense_result(X), rtol=1e-4, atol=1e-5)
