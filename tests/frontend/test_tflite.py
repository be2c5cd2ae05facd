"""TFLite files, written here as flatbuffers: one dense layer."""

from __future__ import annotations

import flatbuffers
import numpy as np
import pytest
import tflite
from default_build import run

from tvm_tiling.errors import ModelFormatError, UnsupportedOperator
from tvm_tiling.frontend import load_model
from tvm_tiling.model.explain import explain_model

W = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
B = np.array([1, -1, 0.5, 2], "float32")


def table(builder, name, **fields):
    """Write a table of the schema with the given fields; their contents must be written before."""
    getattr(tflite, f"{name}Start")(builder)
    for field, entry in fields.items():
        getattr(tflite, f"{name}Add{field}")(builder, entry)
    return getattr(tflite, f"{name}End")(builder)


def vector(builder, entries, offsets=False):
    builder.StartVector(4, len(entries), 4)
    for entry in reversed(entries):
        (builder.PrependUOffsetTRelative if offsets else builder.PrependInt32)(int(entry))
    return builder.EndVector()


def dense(code=tflite.BuiltinOperator.FULLY_CONNECTED, signature=None):
    """relu(x W^T + b) with x of shape [2, 3]."""
    builder = flatbuffers.Builder(1024)
    data = [builder.CreateByteVector(array.tobytes()) for array in (W, B)]
    buffers = [table(builder, "Buffer"), *(table(builder, "Buffer", Data=place) for place in data)]
    tensors = []
    for name, shape, buffer in (("x", (2, 3), 0), ("w", (4, 3), 1), ("b", (4,), 2), ("y", (2, 4), 0)):
        fields = {"Name": builder.CreateString(name), "Shape": vector(builder, shape), "Buffer": buffer}
        if name == "x" and signature:
            fields["ShapeSignature"] = vector(builder, signature)
        tensors.append(table(builder, "Tensor", **fields))
    options = table(builder, "FullyConnectedOptions", FusedActivationFunction=tflite.ActivationFunctionType.RELU)
    ins, outs = vector(builder, [0, 1, 2]), vector(builder, [3])
    operator = table(
        builder,
        "Operator",
        Inputs=ins,
        Outputs=outs,
        BuiltinOptionsType=tflite.BuiltinOptions.FullyConnectedOptions,
        BuiltinOptions=options,
    )
    graph_fields = {
        "Tensors": vector(builder, tensors, offsets=True),
        "Inputs": vector(builder, [0]),
        "Outputs": vector(builder, [3]),
        "Operators": vector(builder, [operator], offsets=True),
    }
    graph = table(builder, "SubGraph", **graph_fields)
    opcode = table(builder, "OperatorCode", BuiltinCode=code, DeprecatedBuiltinCode=min(code, 127), Version=1)
    fields = {
        "Version": 3,
        "OperatorCodes": vector(builder, [opcode], offsets=True),
        "Subgraphs": vector(builder, [graph], offsets=True),
        "Buffers": vector(builder, buffers, offsets=True),
    }
    builder.Finish(table(builder, "Model", **fields), b"TFL3")
    return bytes(builder.Output())


def test_a_file_is_identified_by_its_content(tmp_path):
    path = tmp_path / "network.onnx"
    path.write_bytes(dense())
    loaded = load_model(path)
    assert (loaded.source, loaded.input_names, loaded.output_names) == ("tflite", ("x",), ("y",))
    assert (loaded.input_shapes, loaded.input_dtypes) == (((2, 3),), ("float32",))
    x = np.random.default_rng(1).normal(size=(2, 3)).astype("float32")
    np.testing.assert_allclose(run(loaded, [x])[0], np.maximum(x @ W.T + B, 0), rtol=1e-5, atol=1e-6)


def test_open_shapes():
    data = dense(signature=(-1, 3))
    with pytest.raises(ModelFormatError, match=r"input 'x' \(-1, 3\) is dynamic; expected shapes=\{'x'"):
        load_model(data)
    assert load_model(data, batch=5).input_shapes == ((5, 3),)
    assert load_model(data, shapes={"x": (7, 3)}).input_shapes == ((7, 3),)
    with pytest.raises(ModelFormatError, match=r"shapes\['x'\] = \(7, 4\) does not match the model's \(-1, 3\)"):
        load_model(data, shapes={"x": (7, 4)})


def test_files_config_short_are_refused():
    data = dense()
    for length in range(8, len(data) // 2, 7):
        with pytest.raises((ModelFormatError, UnsupportedOperator)) as raised:
            load_model(data[:length])
        assert "\n" not in str(raised.value)


def test_operators_that_are_not_supported_are_named():
    with pytest.raises(UnsupportedOperator, match="DELEGATE"):
        load_model(dense(code=tflite.BuiltinOperator.DELEGATE))


def test_operators_are_called_by_the_tensors_that_they_give():
    (explanation,) = explain_model(dense())
    assert {operator.nodes for operator in explanation.operators} == {("y",)}
