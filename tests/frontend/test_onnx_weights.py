"""Weights removed from an ONNX file before parsing: the resulting model is the same, also for corrupted files."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_tiling.errors import ModelFormatError
from tvm_tiling.frontend.onnx import file
from tvm_tiling.frontend.onnx.raw_weights import outline
from tvm_tiling.runtime.pages import Contents, FileContents

LEAST = 1024


def model(*tensors: TensorProto) -> onnx.ModelProto:
    """Return a graph that returns its constants' sums."""
    nodes = [helper.make_node("ReduceSum", [t.name], [f"sum_{t.name}"], keepdims=0) for t in tensors]
    outputs = [helper.make_tensor_value_info(f"sum_{t.name}", t.data_type, []) for t in tensors]
    graph = helper.make_graph(nodes, "g", [], outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def weights(*shape: int, dtype: str = "float32", seed: int = 0) -> TensorProto:
    values = np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)
    return numpy_helper.from_array(values, f"w{seed}")


@pytest.fixture
def several() -> onnx.ModelProto:
    """Large weights of several types between small ones, as raw bytes and as numbers."""
    listed = helper.make_tensor("listed", TensorProto.FLOAT, [500], np.arange(500.0))
    half = [weights(40, 40, dtype="float16", seed=3), weights(3, seed=4), weights(600, seed=5)]
    return model(weights(20, 30), weights(5, seed=1), listed, weights(7, 200, dtype="int64", seed=2), *half)


def test_only_large_weights_of_raw_bytes_are_left_out(several):
    data = several.SerializeToString()
    found = outline(memoryview(data), LEAST)
    assert found is not None and sorted(found.weights) == [0, 3, 4, 6]
    assert len(found.content) < len(data) - 2400 - 11200 - 3200
    without = onnx.ModelProto.FromString(found.content)
    for number, place in found.weights.items():
        without.graph.initializer[number].raw_data = data[place.start : place.start + place.size]
    assert without == several


@pytest.mark.parametrize(
    "change",
    [
        lambda m, t: t.external_data.add(key="location", value="x"),
        lambda m, t: setattr(t, "data_location", TensorProto.EXTERNAL),
        lambda m, t: t.segment.SetInParent(),
        lambda m, t: t.ClearField("raw_data"),
        lambda m, t: setattr(t, "raw_data", bytes(LEAST)),
    ],
)
def test_a_weight_that_is_not_dense_and_large_stays(change):
    changed = model(weights(20, 30))
    change(changed, changed.graph.initializer[0])
    assert outline(memoryview(changed.SerializeToString()), LEAST) is None


def test_files_that_protobuf_puts_together_are_left_whole():
    """A file may contain a field several times: protobuf merges two graphs, and uses the last of two values."""
    data = model(weights(20, 30)).SerializeToString()
    assert outline(memoryview(data), LEAST) is not None
    assert outline(memoryview(data + data), LEAST) is None
    tensor = weights(20, 30).SerializeToString()
    doubled = onnx.ModelProto()
    doubled.CopyFrom(model(weights(20, 30)))
    head = b"\x0a\x00"  # an empty list of numbers
    inner = tensor + TensorProto(raw_data=bytes(2400)).SerializeToString()
    size = len(inner)
    initializer = b"\x2a" + bytes([size & 0x7F | 0x80, size >> 7]) + inner
    graph = initializer + head
    size = len(graph)
    assert outline(memoryview(b"\x3a" + bytes([size & 0x7F | 0x80, size >> 7]) + graph), LEAST) is None


def constants(data: bytes) -> dict[str, np.ndarray] | str:
    """Return the file's constants, or the kind of error."""
    try:
        return file.parse_onnx(Contents(data), "m.onnx").constants()
    except ModelFormatError:
        return "refused"


def test_a_corrupted_file_means_the_same_with_its_weights_and_without(several, monkeypatch):
    """The parser alone is the reference: bytes changed, inserted, removed and truncated."""
    data = several.SerializeToString()
    places = outline(memoryview(data), LEAST).weights.values()
    heads = [byte for place in places for byte in range(place.start - 40, place.start + 3)]
    rng, cases = np.random.default_rng(0), []
    for _ in range(300):
        at = int(rng.choice(heads)) if rng.random() < 0.8 else int(rng.integers(len(data)))
        new = bytes(rng.integers(0, 256, int(rng.integers(0, 3)), np.uint8))
        cases.append(data[:at] + new + data[at + int(rng.integers(0, 3)) :])
        cases.append(data[:at])
    mine = [constants(case) for case in cases]
    monkeypatch.setattr(file, "outline", lambda *_: None)
    refused = 0
    for case, found in zip(cases, mine, strict=True):
        want = constants(case)
        refused += want == "refused"
        if isinstance(want, str) or isinstance(found, str):
            assert want == found
            continue
        assert want.keys() == found.keys()
        for name, value in want.items():
            assert value.dtype == found[name].dtype
            np.testing.assert_array_equal(value, found[name])
    assert 100 < refused < len(cases)


def test_weights_are_pages_of_the_file(several, tmp_path):
    (tmp_path / "m.onnx").write_bytes(several.SerializeToString())
    contents = FileContents(tmp_path / "m.onnx")
    graph = file.parse_onnx(contents, "m.onnx", tmp_path)
    assert sorted(graph.weights) == ["listed", "w0", "w2", "w3", "w5"]
    for tensor in several.graph.initializer:
        np.testing.assert_array_equal(graph.constants()[tensor.name], numpy_helper.to_array(tensor))
    if contents._pages is not None:
        assert not any(graph.weights[name].flags.owndata for name in ("w0", "w2", "w3", "w5"))


@pytest.mark.parametrize("shape", [[20, 31], [19, 30], [0], [-20, -30]])
def test_a_weight_whose_bytes_do_not_fit_its_shape_is_refused(shape):
    changed = model(weights(20, 30))
    del changed.graph.initializer[0].dims[:]
    changed.graph.initializer[0].dims.extend(shape)
    with pytest.raises(ModelFormatError, match=r"weight 'w0'.*(needs \d+ bytes, but has 2400|expected sizes from 0)"):
        file.parse_onnx(Contents(changed.SerializeToString()), "m.onnx")
