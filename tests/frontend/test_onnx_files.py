"""Untrusted files: truncated, of other formats, with weights that are missing, elsewhere or too large."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from default_build import run
from onnx import TensorProto, helper

import tvm_tiling as tt
from tvm_tiling.errors import ModelFormatError
from tvm_tiling.frontend import load_model

W = np.arange(12, dtype="float32").reshape(3, 4)


def model_with(tensor):
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [2, 3]), ("y", [2, 4]))
    )
    graph = helper.make_graph([node], "network", [x], [y], [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def external(location="w.bin", offset=0, length=48, dims=(3, 4)):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, entry in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=entry)
    return tensor


def saved(folder, tensor, name="model.onnx"):
    path = folder / name
    path.write_bytes(model_with(tensor).SerializeToString())
    return path


@pytest.fixture
def whole():
    return model_with(onnx.numpy_helper.from_array(W, "w")).SerializeToString()


def check(loaded):
    x = np.ones((2, 3), "float32")
    np.testing.assert_allclose(run(loaded, [x])[0], x @ W)


def test_bytes_and_files_of_any_name(tmp_path, whole):
    check(load_model(whole))
    (tmp_path / "weights.dat").write_bytes(whole)
    check(load_model(str(tmp_path / "weights.dat")))


def test_a_file_config_short_anywhere_is_refused(whole):
    for length in range(0, len(whole) - 1, 3):
        with pytest.raises(ModelFormatError):
            load_model(whole[:length])


def test_random_bytes_are_refused_or_read_never_worse(whole):
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            damaged[place] = rng.integers(0, 256)
        try:
            load_model(bytes(damaged))
        except Exception as error:
            refused += 1
            assert type(error).__module__ == "tvm_tiling.errors", repr(error)
            assert "\n" not in str(error)
    assert refused > 10


@pytest.mark.parametrize(
    "data, words",
    [
        (b"PK\x03\x04rest", "zip archive"),
        (b'{"a": 1}', "JSON"),
        (b"\x80\x04\x95", "pickle"),
        (b"\x7fELF\x02", "compiled library"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"", "not an ONNX model|contains no graph"),
        (b"hello, this is text", "not an ONNX model|contains no graph"),
    ],
)
def test_other_formats_are_named(data, words):
    with pytest.raises(ModelFormatError, match=words):
        load_model(data)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(ModelFormatError, match="does not exist"):
        load_model(tmp_path / "none.onnx")
    with pytest.raises(ModelFormatError, match="is not a file"):
        load_model(tmp_path)


@pytest.mark.parametrize("model", [None, 3, ["a"], np.zeros(3), {"a": 1}])
def test_other_types_are_refused(model):
    with pytest.raises(ModelFormatError, match=rf"the model has type {type(model).__name__}; expected a path"):
        load_model(model)


def test_weights_beside_the_model(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"12345678" + W.tobytes())
    check(load_model(saved(tmp_path, external(offset=8))))


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
def test_weights_of_4_bits_beside_the_model(tmp_path, kind):
    """Two per byte; they stay packed."""
    low = -8 if kind == "INT4" else 0
    values = np.arange(64 * 40).reshape(64, 40) % 16 + low
    packed = onnx.numpy_helper.to_array(helper.make_tensor("q", getattr(TensorProto, kind), [64, 40], values.ravel()))
    tensor = onnx.numpy_helper.from_array(packed, "q")
    (tmp_path / "w.bin").write_bytes(b"12345678" + tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, entry in (("location", "w.bin"), ("offset", "8")):
        tensor.external_data.add(key=key, value=entry)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    scales = np.linspace(0.1, 0.5, 80, dtype="float32").reshape(2, 40)
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [2, 64]), ("y", [2, 40]))
    )
    graph = helper.make_graph(nodes, "network", [x], [y], [tensor, onnx.numpy_helper.from_array(scales, "s")])
    path = tmp_path / "model.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path.write_bytes(made.SerializeToString())
    given = np.ones((2, 64), "float32")
    expected = given @ (values * scales.repeat(32, axis=0))
    executable = tt.compile(path, activations="float32", cache=False)
    np.testing.assert_allclose(executable.run(given), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "tensor, words",
    [
        (external("none.bin"), "file 'none.bin' does not exist in the model's directory"),
        (external("../secret.bin"), "expected a file in the model's directory"),
        (external("/etc/hostname"), "expected a file in the model's directory"),
        (external("link.bin"), "expected a file in the model's directory"),
        (external(""), "expected a file in the model's directory"),
        (external("a\0b"), "expected a file in the model's directory"),
        (external(offset=8), "takes 48 bytes, but the model declares 48 from 8 in 'w.bin', which has 48"),
        (external(offset=-4), "48 from -4 in"),
        (external(length=40), "takes 48 bytes, but the model declares 40"),
        (external(length=4 * 10**15, dims=(10**15,)), "takes 4000000000000000 bytes"),
        (external(dims=(-3, 4)), "expected sizes from 0"),
        (external(length="many"), "are not numbers"),
    ],
)
def test_weights_beside_the_model_that_are_refused(tmp_path, tensor, words):
    folder = tmp_path / "inside"
    folder.mkdir()
    for place in (folder / "w.bin", tmp_path / "secret.bin"):
        place.write_bytes(W.tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(ModelFormatError, match=words):
        load_model(saved(folder, tensor))


def test_weights_elsewhere_need_the_path_of_the_model():
    with pytest.raises(ModelFormatError, match="expected a model given by its path"):
        load_model(model_with(external()))


@pytest.mark.parametrize("dims", [(10**9, 10**9), (3, 5), (3, 3)])
@pytest.mark.parametrize("raw", [True, False])
def test_weights_that_declare_more_than_they_have(dims, raw):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims)
    if raw:
        tensor.raw_data = W.tobytes()
    else:
        tensor.float_data.extend(W.ravel())
    with pytest.raises(ModelFormatError, match=r"weight 'w' of shape \[.*\] needs \d+ (bytes|values), but has \d+"):
        load_model(model_with(tensor))


def test_sparse_weights_are_refused():
    model = model_with(onnx.numpy_helper.from_array(W, "w"))
    model.graph.sparse_initializer.add(dims=[10**12])
    with pytest.raises(ModelFormatError, match="sparse"):
        load_model(model)
