"""Invalid models, unsupported ones, and unwritable outputs: one sentence each, and nothing left behind."""

from __future__ import annotations

import numpy as np
import pytest
from networks import Network, residual_network

import tvm_tiling as tt
from tvm_tiling.errors import ModelFormatError, UnsupportedOperator, WorkloadError

onnx = pytest.importorskip("onnx")
helper = onnx.helper
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
W = np.arange(12, dtype="float32").reshape(3, 4)


def model_of(nodes, inputs, outputs, constants=()):
    """Return a model of ONNX nodes; inputs and outputs are (name, type, shape)."""
    values = [[helper.make_tensor_value_info(*value) for value in side] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, "net", *values, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.fixture
def product():
    """y = x @ w"""
    weights = onnx.numpy_helper.from_array(W, "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return model_of([node], [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 4])], [weights])


def refusal(kind, call) -> str:
    with pytest.raises(kind) as refused:
        call()
    said = str(refused.value)
    assert said and "\n" not in said and "tvm" not in said.lower().replace("tvm-tiling", "").replace("tvm_tiling", "")
    return said


# ---- at compile time ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0.02, 0.3, 0.6, 0.95])
def test_a_truncated_file(product, part, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path / "cache"))
    content, path = product.SerializeToString(), tmp_path / "net.onnx"
    path.write_bytes(content[: int(len(content) * part)])
    said = refusal(ModelFormatError, lambda: tt.compile(str(path)))
    assert "net.onnx" in said
    assert [entry.name for entry in tmp_path.iterdir()] == ["net.onnx"]


@pytest.mark.parametrize(
    ("content", "named"),
    [(b"PK\x03\x04and more", "zip"), (b"\x80\x04pickled", "pickle"), (b'{"a": 1}', "JSON"), (b"plain text", "ONNX")],
)
def test_another_format(content, named, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert named in refusal(ModelFormatError, lambda: tt.compile(path, cache=False))


def test_a_missing_external_weight(product, tmp_path):
    onnx.save(product, tmp_path / "net.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    exe = tt.compile(tmp_path / "net.onnx", cache=False)
    x = np.ones((2, 3), "float32")
    np.testing.assert_allclose(exe.run(x), x @ W)
    (tmp_path / "w.bin").unlink()
    assert "'w.bin' does not exist" in refusal(ModelFormatError, lambda: tt.compile(tmp_path / "net.onnx", cache=False))


def test_every_operator_that_is_not_supported_is_named():
    names = ["TfIdfVectorizer", "Relu", "StringNormalizer", "NoSuchOperator"]
    nodes = [helper.make_node(name, [f"t{i}"], [f"t{i + 1}"], name=f"n{i}") for i, name in enumerate(names)]
    model = model_of(nodes, [("t0", FLOAT, [3])], [("t4", FLOAT, [3])])
    said = refusal(UnsupportedOperator, lambda: tt.compile(model, cache=False))
    assert all(name in said for name in ("TfIdfVectorizer", "StringNormalizer", "NoSuchOperator", "'n0'", "'n3'"))
    assert "Relu" not in said


def test_values_that_decide_shapes_are_asked_for_by_name():
    node = helper.make_node("Reshape", ["x", "sizes"], ["y"])
    model = model_of([node], [("x", FLOAT, [2, 6]), ("sizes", INT64, [2])], [("y", FLOAT, ["a", "b"])])
    said = refusal(UnsupportedOperator, lambda: tt.compile(model, cache=False))
    assert "'sizes', which is not known at compile time; expected params={'sizes': value}" in said
    exe = tt.compile(model, params={"sizes": np.array([3, 4])}, cache=False)
    x = np.arange(12, dtype="float32").reshape(2, 6)
    assert exe.signature.input_names == ("x",)
    np.testing.assert_array_equal(exe.run(x), x.reshape(3, 4))


def test_the_length_of_a_range_is_asked_for():
    node = helper.make_node("Range", ["first", "end", "step"], ["y"])
    model = model_of([node], [(name, FLOAT, []) for name in node.input], [("y", FLOAT, ["n"])])
    said = refusal(UnsupportedOperator, lambda: tt.compile(model, cache=False))
    assert "params={'first': value, 'end': value, 'step': value}" in said
    values = {name: np.float32(value) for name, value in zip(node.input, (1, 4, 0.5), strict=True)}
    np.testing.assert_array_equal(tt.compile(model, params=values, cache=False).run(), np.arange(1, 4, 0.5, "float32"))


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"z": W}, "params names 'z'; the inputs are 'x'"),
        (
            {"x": np.zeros((3, 2), "float32")},
            "params['x'] has type float32 and shape (3, 2); expected float32 of shape (2, 3)",
        ),
        ({"x": np.zeros((2, 3))}, "params['x'] has type float64"),
    ],
)
def test_constants_that_do_not_fit(product, params, said):
    assert said in refusal(ModelFormatError, lambda: tt.compile(product, params=params, cache=False))


def test_a_module_of_pytorch_that_is_not_supported():
    torch = pytest.importorskip("torch")
    from foreign_operator import foreign

    class Network(torch.nn.Module):
        def forward(self, x):
            return foreign(torch.normal(x, 1.0))

    program = torch.export.export(Network(), (torch.zeros(3, 3),))
    said = refusal(UnsupportedOperator, lambda: tt.compile(program, cache=False))
    assert "foreign" in said and "normal" in said


# ---- at run time ----------------------------------------------------------------------------------------------------


def test_inputs_that_do_not_fit(product):
    exe = tt.compile(product, cache=False)
    x = np.ones((2, 3), "float32")
    calls = {
        "'x' has shape (3, 2)": lambda: exe.run(x.T),
        "'x' is float64": lambda: exe.run(x.astype("float64")),
        "'x' is int32": lambda: exe.run(x=x.astype("int32")),
        "the number of inputs is 2; expected at most 1": lambda: exe.run(x, x),
        "'x' is missing": lambda: exe.run(),
        "no input 'data'": lambda: exe.run(data=x),
        "'x' is given twice": lambda: exe.run(x, x=x),
    }
    for said, call in calls.items():
        assert said in refusal(WorkloadError, call)
    np.testing.assert_allclose(exe.run(x), x @ W)


def test_a_scalar_input_is_one():
    node = helper.make_node("Mul", ["x", "s"], ["y"])
    exe = tt.compile(model_of([node], [("x", FLOAT, [3]), ("s", FLOAT, [])], [("y", FLOAT, [3])]), cache=False)
    np.testing.assert_array_equal(exe.run(np.arange(3, dtype="float32"), np.float32(2)), [0, 2, 4])


def test_nan_goes_in_and_comes_out():
    net = Network((1, 3, 33, 33))
    exe = tt.compile(net.module(residual_network), cache=False)
    x = net.arrays()[0]
    assert np.isfinite(exe.run(x)).all()
    assert np.isnan(exe.run(np.full_like(x, np.nan))).all()
    x[0, 0, 16, 16] = np.nan
    assert np.isnan(exe.run(x)).all()  # followed by means over the whole image
    assert np.isfinite(exe.run(net.arrays()[0])).all()


# ---- files ----------------------------------------------------------------------------------------------------------


def test_an_executable_that_cannot_be_written(product, tmp_path):
    exe = tt.compile(product, cache=False)
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "folder").mkdir()
    targets = {tmp_path / "none" / "y.tar": "does not exist", tmp_path / "folder": "is a directory"}
    targets[tmp_path / "file" / "y.tar"] = "is not a directory"
    for target, why in targets.items():
        said = refusal(OSError, lambda target=target: exe.save(target))
        assert str(target) in said and "cannot be written" in said and why in said
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["file", "folder"]
    assert (tmp_path / "file").read_bytes() == b"old"
