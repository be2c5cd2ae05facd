"""Commands on models with invalid input: one line on standard error, exit code 1, no partial files."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import run

from tvm_tiling.cli.array_file import write_arrays

onnx = pytest.importorskip("onnx")
helper = onnx.helper


def refused(capsys, *words) -> str:
    """Return what the command prints on standard error: one line, no traceback."""
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "") and err.startswith("error: ") and err.count("\n") == 1, (out, err)
    assert "Traceback" not in err and "this is a defect" not in err
    return err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Create net.onnx, y = relu(x @ w), with its weights in a separate file w.bin, and a matching x.npz."""
    folder = tmp_path_factory.mktemp("models")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", onnx.TensorProto.FLOAT, [2, 3])],
        [value("y", onnx.TensorProto.FLOAT, [2, 4])],
        [onnx.numpy_helper.from_array(np.ones((3, 4), "float32"), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, folder / "net.onnx")
    onnx.save(model, folder / "apart.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    np.savez(folder / "x.npz", x=np.ones((2, 3), "float32"))
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path / "cache"))


def test_files_that_are_not_models(folder, capsys, tmp_path):
    whole = (folder / "net.onnx").read_bytes()
    files = {"short.onnx": whole[:60], "text.onnx": b"no model", "zip.onnx": b"PK\x03\x04", "empty.onnx": b""}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        assert name in refused(capsys, "compile", tmp_path / name, "-o", tmp_path / "out.tar")
    assert not (tmp_path / "out.tar").exists() and not (tmp_path / "cache").exists()


def test_a_missing_external_weight(folder, capsys, tmp_path):
    (tmp_path / "apart.onnx").write_bytes((folder / "apart.onnx").read_bytes())
    assert "'w.bin' does not exist" in refused(capsys, "run", tmp_path / "apart.onnx")


def test_operators_that_are_not_supported(capsys, tmp_path):
    nodes = [helper.make_node("NoSuchOne", ["x"], ["t"]), helper.make_node("NorThis", ["t"], ["y"])]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "net.onnx")
    said = refused(capsys, "compile", tmp_path / "net.onnx", "-o", tmp_path / "out.tar")
    assert "NoSuchOne" in said and "NorThis" in said


def test_inputs_that_do_not_fit(folder, capsys, tmp_path):
    x = np.ones((2, 3), "float32")
    inputs = {
        "has shape (3, 2)": {"x": x.T},
        "is float64": {"x": x.astype("float64")},
        "no input 'data'": {"data": x},
        "'x' is missing": {},
    }
    for said, arrays in inputs.items():
        np.savez(tmp_path / "in.npz", **arrays)
        words = ("run", folder / "net.onnx", "--input", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
        assert said in refused(capsys, *words)
    assert not (tmp_path / "out.npz").exists()


def test_files_of_inputs_that_are_none(folder, capsys, tmp_path):
    whole = (folder / "x.npz").read_bytes()
    np.save(tmp_path / "one.npy", np.ones(3))
    np.savez(tmp_path / "object.npz", x=np.array([{}], dtype=object))
    files = {"short.npz": whole[: len(whole) // 2], "text.npz": b"x = 1", "empty.npz": b""}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    for name in (*files, "one.npy", "object.npz", "missing.npz"):
        said = refused(capsys, "run", folder / "net.onnx", "--input", tmp_path / name)
        assert name in said and "expected a file written by numpy.savez" in said


@pytest.mark.parametrize("command", ["compile", "run"])
def test_outputs_that_cannot_be_written(folder, capsys, tmp_path, command, monkeypatch):
    # Detected before anything is compiled.
    monkeypatch.setattr("tvm_tiling.model.compilation.load_model", lambda *_, **__: pytest.fail("the model was read"))
    (tmp_path / "folder").mkdir()
    for target, why in (("none/out", "does not exist"), ("folder", "is a directory")):
        said = refused(capsys, command, folder / "net.onnx", "-o", tmp_path / target)
        assert f"{tmp_path / target} cannot be written" in said and why in said
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_a_write_that_fails_leaves_the_old_file(folder, capsys, tmp_path, monkeypatch):
    target = tmp_path / "out.npz"
    target.write_bytes(b"old")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    assert "No space left" in refused(capsys, "run", folder / "net.onnx", "-o", target)
    assert target.read_bytes() == b"old"
    assert {entry.name for entry in tmp_path.iterdir()} <= {"out.npz", "cache"}


@pytest.mark.parametrize("name", ["file", "allow_pickle"])
def test_arrays_of_any_name_are_written(tmp_path, name):
    write_arrays(tmp_path / "all.npz", {name: np.arange(3), "y": np.ones((2, 2), "float32")})
    with np.load(tmp_path / "all.npz") as arrays:
        np.testing.assert_array_equal(arrays[name], np.arange(3))
        np.testing.assert_array_equal(arrays["y"], 1)


def test_nan_goes_in_and_comes_out(folder, capsys, tmp_path):
    np.savez(tmp_path / "nan.npz", x=np.full((2, 3), np.nan, "float32"))
    words = ("run", folder / "net.onnx", "--input", tmp_path / "nan.npz", "-o", tmp_path / "y.npz", "--json")
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    (output,) = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))["outputs"]
    assert (output["min"], output["max"]) == ("nan", "nan")
    with np.load(tmp_path / "y.npz") as arrays:
        assert np.isnan(arrays["y"]).all()
