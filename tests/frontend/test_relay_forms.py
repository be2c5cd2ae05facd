"""Formats of Relay models: text, JSON, two kinds of archives, with parameters."""

from __future__ import annotations

import numpy as np
import pytest
from default_build import run
from relay_files import DENSE, B, JsonWriter, W, dense_json, dense_result, params_bytes, tar_bytes

from tvm_tiling.errors import ModelFormatError, UnsupportedOperator
from tvm_tiling.frontend import load_model

X = np.random.default_rng(1).normal(size=(2, 3)).astype("float32")
PARAMS = params_bytes({"w": W, "b": B})


def forms() -> dict[str, tuple[bytes, bytes | None]]:
    return {
        "text": (DENSE.encode(), PARAMS),
        "JSON": (dense_json(), PARAMS),
        "tar of text": (tar_bytes({"model.relay": DENSE.encode(), "model.params": PARAMS}), None),
        "tar of JSON": (tar_bytes({"./model.json": dense_json(), "./model.params": PARAMS}), None),
        "library format": (tar_bytes({"src/relay.txt": DENSE.encode(), "parameters/default.params": PARAMS}), None),
        "library format of several": (
            tar_bytes({"./src/mod.relay": DENSE.encode(), "./parameters/mod.params": PARAMS, "metadata.json": b"{}"}),
            None,
        ),
    }


def test_every_file_format_gives_the_same_model():
    loaded = [load_model(model, params=params) for model, params in forms().values()]
    for model in loaded:
        assert (model.source, model.input_names, model.output_names) == ("relay", ("x",), ("output",))
        assert (model.input_shapes, model.input_dtypes) == (((2, 3),), ("float32",))
    for model in (loaded[0], loaded[1]):
        np.testing.assert_allclose(run(model, [X])[0], dense_result(X), rtol=1e-5, atol=1e-6)


def test_parameters_by_name_by_path_and_by_bytes(tmp_path):
    path, model = tmp_path / "model.params", tmp_path / "model.relay"
    path.write_bytes(PARAMS)
    model.write_text(DENSE)
    texts = {
        str(load_model(model, params=given).module)
        for given in ({"w": W, "b": B}, path, str(path), PARAMS, memoryview(PARAMS))
    }
    assert len(texts) == 1
    assert load_model(model).input_names == ("x", "w", "b")


def test_parameters_that_do_not_fit_are_refused():
    for params, said in (
        ({"v": W}, r"params names 'v'; the inputs are 'x', 'w', 'b'"),
        ({"w": W.T}, r"params\['w'\] has type float32 and shape \(3, 4\); expected \(4, 3\) float32"),
        ({"b": B.astype("float64")}, r"params\['b'\] has type float64 and shape \(4,\); expected \(4\) float32"),
        (params_bytes({"v": W}), r"params names 'v'"),
        ("/nowhere/at.params", "does not exist"),
        (3, "params is a int; expected arrays by name"),
    ):
        with pytest.raises(ModelFormatError, match=said):
            load_model(DENSE.encode(), params=params)


def test_a_file_may_hold_more_parameters_than_the_model_needs():
    assert load_model(DENSE.encode(), params=params_bytes({"w": W, "b": B, "old": W})).input_names == ("x",)


def test_old_booleans_and_every_kind_of_number():
    text = """def @main(%x: Tensor[(2), bool], %y: Tensor[(2), bool]) { logical_and(%x, %y) }"""
    given = params_bytes({"y": np.array([True, False])})
    at = given.index(b"\x06\x08\x01\x00")
    for kind in (b"\x06\x08\x01\x00", b"\x01\x01\x01\x00"):
        model = load_model(text.encode(), params=given[:at] + kind + given[at + 4 :])
        assert run(model, [np.array([True, True])])[0].tolist() == [True, False]
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float64"):
        text = f"def @main(%w: Tensor[(2), {dtype}]) {{ add(%w, %w) }}"
        load_model(text.encode(), params=params_bytes({"w": np.array([1, 2], dtype)}))


def test_open_dimensions():
    text = b"def @main(%x: Tensor[(?, 3), float32]) { nn.relu(%x) }"
    with pytest.raises(ModelFormatError, match=r"the shape of input 'x' \(\?, 3\) float32 is dynamic; expected shapes"):
        load_model(text)
    assert load_model(text, batch=5).input_shapes == ((5, 3),)
    assert load_model(text, shapes={"x": (7, 3)}).input_shapes == ((7, 3),)
    with pytest.raises(ModelFormatError, match=r"shapes\['x'\] = \(7, 4\) does not match the model's \(\?, 3\)"):
        load_model(text, shapes={"x": (7, 4)})
    with pytest.raises(ModelFormatError, match="shapes names 'y'; the inputs are 'x'"):
        load_model(text, shapes={"y": (7, 4)})
    assert load_model(text, dims={"x[0]": 4}).input_shapes == ((4, 3),)
    with pytest.raises(ModelFormatError, match=r"dims names 'n'; expected 'x\[0\]'"):
        load_model(text, dims={"n": 4})
    with pytest.raises(ModelFormatError, match="input 'x' has no type"):
        load_model(b"def @main(%x) { nn.relu(%x) }")


def test_inputs_of_one_name_are_numbered():
    writer = JsonWriter()
    kind = writer.tensor((2,))
    inputs = [writer.var("data", kind) for _ in range(3)]
    first = writer.call(writer.op("add"), inputs[:2])
    model = load_model(
        writer.module({"main": writer.function(inputs, writer.call(writer.op("add"), [first, inputs[2]]))})
    )
    assert model.input_names == ("data", "data1", "data2")


def test_operators_that_are_not_supported_are_named_all_at_once():
    text = """def @main(%x: Tensor[(2), float32]) {
  %0 = my.thing(%x);
  %1 = nn.relu(%0);
  %2 = my.other(%1, axis=1);
  %3 = my.thing(%2);
  %4 = expand_dims(%x);
  %5 = nn.softmax(%x, temperature=2f);
  (%3, %4, %5)
}"""
    with pytest.raises(UnsupportedOperator) as raised:
        load_model(text.encode())
    said = str(raised.value)
    assert "my.thing (lines 2, 5)" in said and "my.other (line 4)" in said
    assert "expand_dims: the attributes axis are missing (line 6)" in said
    assert "nn.softmax: the attributes temperature are not supported; expected axis (line 7)" in said
