"""ONNX models: inputs fixed before compilation, variants of old versions, and refusals with their messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from default_build import run
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tvm_tiling.errors import ModelFormatError, UnsupportedOperator
from tvm_tiling.frontend import load_model

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("light_*.onnx"))


def value(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def network(nodes, inputs, outputs, constants=None, opset=18, **more):
    weights = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "network", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **more)


def relu(shape):
    return network([helper.make_node("Relu", ["x"], ["y"], name="only")], [value("x", shape)], [value("y", None)])


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_the_models_that_come_with_onnx(path):
    model = load_model(path)
    assert len(LIGHT) == 9
    assert (model.source, model.input_shapes, model.input_dtypes) == ("onnx", ((1, 3, 224, 224),), ("float32",))
    assert len(model.module["main"].params) == len(model.input_names) == len(model.output_names) == 1
    # Their weights are computed by nodes, none of which remains.
    assert "full" not in {getattr(binding.value.op, "name", "") for binding in bindings(model) if calls(binding)}


def bindings(model):
    return [binding for block in model.module["main"].body.blocks for binding in block.bindings]


def calls(binding):
    return hasattr(binding.value, "op")


def test_open_dimensions_are_refused_by_name():
    with pytest.raises(
        ModelFormatError, match=r"input 'x' \(N, 3, \?\) is dynamic; expected batch=.*dims=\{'N'.*shapes=\{'x'"
    ):
        load_model(relu(["N", 3, None]))


def test_shapes_fix_what_is_open_everywhere():
    node = helper.make_node("Add", ["x", "z"], ["y"])
    model = network([node], [value("x", ["N", 4]), value("z", ["N", 1])], [value("y", ["N", 4])])
    assert load_model(model, shapes={"x": (3, 4)}).input_shapes == ((3, 4), (3, 1))
    assert load_model(model, batch=5).input_shapes == ((5, 4), (5, 1))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"shapes": {"x": (2, 5)}}, r"shapes\['x'\] = \(2, 5\) does not match input 'x' \(N, 4\)"),
        ({"shapes": {"x": (2, 4, 1)}}, r"= \(2, 4, 1\) does not match input 'x' \(N, 4\)"),
        ({"shapes": {"x": (-1, 4)}}, "expected sizes from 0"),
        ({"shapes": {"w": (1, 4)}}, "shapes names 'w'; the inputs are 'x'"),
        ({"params": {"w": 1}}, "params names 'w'; the inputs are 'x'"),
        ({"params": {"x": np.zeros((1, 4))}}, "has type float64 and shape .*; expected float32"),
        ({"batch": 0}, "batch = 0; expected a number from 1"),
    ],
)
def test_options_that_do_not_fit(options, words):
    with pytest.raises(ModelFormatError, match=words):
        load_model(relu(["N", 4]), **options)


def test_params_are_constants():
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = network([node], [value("x", [2, 3]), value("w", [3, 4])], [value("y", [2, 4])])
    x, w = (np.random.default_rng(0).normal(size=shape).astype("float32") for shape in ((2, 3), (3, 4)))
    loaded = load_model(model, params={"w": w})
    assert loaded.input_names == ("x",)
    np.testing.assert_allclose(run(loaded, [x])[0], x @ w, rtol=1e-5)


def test_a_model_given_is_left_as_it_is():
    model = relu(["N", 4])
    before = model.SerializeToString()
    load_model(model, batch=2)
    assert model.SerializeToString() == before


def test_every_operator_that_is_not_supported_is_named_with_its_nodes():
    nodes = [
        helper.make_node("Mystery", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Mystery", ["b"], ["c"], name="second"),
        helper.make_node("Special", ["c"], ["y"], domain="my.own"),
    ]
    words = r"Mystery \(nodes 'first', 'second'\); my.own.Special \(nodes '-> y'\)"
    with pytest.raises(UnsupportedOperator, match=words):
        load_model(network(nodes, [value("x", [2])], [value("y", [2])]))


def test_types_that_tvm_rounds_otherwise_are_refused():
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], to=TensorProto.FLOAT8E4M3FN, name="down"),
        helper.make_node("Cast", ["narrow"], ["y"], to=FLOAT),
    ]
    model = network(nodes, [value("x", [2])], [value("y", [2])], opset=19)
    with pytest.raises(UnsupportedOperator, match=r"node 'down' \(Cast\) has tensor 'narrow' of type FLOAT8E4M3FN"):
        load_model(model)


def test_an_input_of_strings_is_refused_although_nothing_reads_it():
    strings = helper.make_tensor_value_info("words", TensorProto.STRING, [2])
    model = network([helper.make_node("Abs", ["x"], ["y"])], [value("x", [2]), strings], [value("y", [2])])
    with pytest.raises(UnsupportedOperator, match="input 'words' has type STRING; expected floats"):
        load_model(model)


def test_values_that_are_not_known_before_the_run_are_asked_for():
    nodes = [
        helper.make_node("Identity", ["factors"], ["scales"]),
        helper.make_node("Resize", ["x", "", "scales"], ["y"], name="up"),
    ]
    model = network(nodes, [value("x", [1, 1, 2, 2]), value("factors", [4])], [value("y", None)])
    with pytest.raises(UnsupportedOperator, match=r"node 'up' \(Resize\).*params=\{'factors': value\}"):
        load_model(model)
    loaded = load_model(model, params={"factors": np.array([1, 1, 2, 3], "float32")})
    x = np.arange(4, dtype="float32").reshape(1, 1, 2, 2)
    assert run(loaded, [x])[0].shape == (1, 1, 4, 6)


def test_an_operator_of_constants_alone_names_the_inputs_that_it_takes():
    scalars = {"bins": 8, "length": 16, "rate": 8192, "low": 0.0, "high": 4096.0}
    constants = {
        name: np.array(number, "float32" if number == 0 or name == "high" else "int64")
        for name, number in scalars.items()
        if name != "bins"
    }
    bins = helper.make_tensor_value_info("bins", TensorProto.INT64, [])
    node = helper.make_node("MelWeightMatrix", [*scalars], ["y"])
    model = network([node], [bins], [value("y", None)], constants)
    with pytest.raises(UnsupportedOperator, match=r"MelWeightMatrix of values .* unless params={'bins': value}"):
        load_model(model)
    expected = ReferenceEvaluator(model).run(None, {"bins": np.array(8)})[0]
    np.testing.assert_allclose(run(load_model(model, params={"bins": np.array(8)}), [])[0], expected, rtol=1e-6)


def test_shapes_computed_in_the_graph_are_folded():
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["new"], axis=0),
        helper.make_node("Reshape", ["x", "new"], ["y"]),
    ]
    model = network(
        nodes, [value("x", ["N", 2, 3])], [value("y", None)], {"zero": np.array([0]), "rest": np.array([-1])}
    )
    loaded = load_model(model, batch=4)
    assert [calls(binding) for binding in bindings(loaded)] == [True, False]  # the output has another name
    x = np.random.default_rng(0).normal(size=(4, 2, 3)).astype("float32")
    np.testing.assert_array_equal(run(loaded, [x])[0], x.reshape(4, -1))


def test_a_branch_that_is_decided_is_taken():
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["a"])], "then", [], [value("a", [2])])
    other = helper.make_graph([helper.make_node("Abs", ["x"], ["a"])], "other", [], [value("a", [2])])
    node = helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other)
    x = np.array([-1, 2], "float32")
    for flag, expected in ((True, -x), (False, abs(x))):
        model = network([node], [value("x", [2])], [value("y", [2])], {"flag": np.array(flag)})
        np.testing.assert_array_equal(run(load_model(model), [x])[0], expected)


def test_functions_of_the_model_are_written_out():
    body = [helper.make_node("Mul", ["a", "a"], ["s"]), helper.make_node("Neg", ["s"], ["b"])]
    opset = [helper.make_opsetid("", 18)]
    function = helper.make_function("my.own", "NegativeSquare", ["a"], ["b"], body, opset)
    node = helper.make_node("NegativeSquare", ["x"], ["y"], domain="my.own")
    model = network([node], [value("x", [3])], [value("y", [3])], functions=[function])
    model.opset_import.append(helper.make_opsetid("my.own", 1))
    x = np.array([1, -2, 3], "float32")
    np.testing.assert_array_equal(run(load_model(model), [x])[0], -x * x)


def test_constants_that_take_too_much_are_refused():
    node = helper.make_node("ConstantOfShape", ["shape"], ["y"], name="bomb")
    model = network([node], [value("x", [1])], [value("y", None)], {"shape": np.array([2**20, 2**20])})
    with pytest.raises(ModelFormatError, match=r"node 'bomb' .*4 TiB; expected up to 4 GiB, .*tensor_bytes=4T"):
        load_model(model)


def test_an_output_may_be_a_constant_or_an_input():
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Add", ["one", "one"], ["two"])]
    model = network(nodes, [value("x", [2])], [value("y", [2]), value("two", [2])], {"one": np.ones(2, "float32")})
    loaded = load_model(model)
    assert loaded.output_names == ("y", "two")
    y, two = run(loaded, [np.array([3, 4], "float32")])
    np.testing.assert_array_equal(y, [3, 4])
    np.testing.assert_array_equal(two, [2, 2])


def test_an_output_may_leave_out_its_type():
    nodes = [helper.make_node("Shape", ["x"], ["y"])]
    model = network(nodes, [value("x", [2, 5])], [onnx.ValueInfoProto(name="y")])
    np.testing.assert_array_equal(run(load_model(model), [np.zeros((2, 5), "float32")])[0], [2, 5])


X = np.random.default_rng(3).normal(size=(1, 2, 4, 6)).astype("float32")
PARTS = np.array([0.5, 1.5], "float32")
# Variants of old versions: attributes that became inputs, or a changed meaning.
OLD_FORMS = {
    "batch norm 7": (7, "BatchNormalization", {"epsilon": 0.01}, {n: PARTS for n in ("s", "b", "m", "v")}),
    "batch norm 9": (9, "BatchNormalization", {"momentum": 0.8}, {n: PARTS for n in ("s", "b", "m", "v")}),
    "clip 6": (7, "Clip", {"min": -0.5, "max": 0.5}, {}),
    "dropout 7": (7, "Dropout", {"ratio": 0.5}, {}),
    "flatten 9": (9, "Flatten", {"axis": 2}, {}),
    "pad 2": (7, "Pad", {"pads": [0, 0, 1, 2, 0, 0, 2, 1], "value": 1.5}, {}),
    "pad 2, reflected": (7, "Pad", {"pads": [0, 0, 1, 2, 0, 0, 2, 1], "mode": "reflect"}, {}),
    "reduce mean 1": (7, "ReduceMean", {"axes": [1, 3], "keepdims": 0}, {}),
    "reduce sum 11": (11, "ReduceSum", {"axes": [-1]}, {}),
    "resize 10": (10, "Resize", {"mode": "linear"}, {"scales": np.array([1, 1, 2, 2], "float32")}),
    "slice 1": (7, "Slice", {"starts": [1, -3], "ends": [9, -1], "axes": [2, 3]}, {}),
    "slice 10": (
        10,
        "Slice",
        {},
        {"starts": np.array([3]), "ends": np.array([-9]), "axes": np.array([2]), "steps": -np.ones(1, "int64")},
    ),
    "softmax 7": (7, "Softmax", {"axis": 1}, {}),
    "split 2": (7, "Split", {"axis": 3, "split": [2, 4]}, {}),
    "squeeze 1": (7, "Squeeze", {"axes": [0]}, {}),
    "top k 1": (7, "TopK", {"axis": 3, "k": 2}, {}),
    "top k 10": (10, "TopK", {"axis": 3}, {"k": np.array([2])}),
    "unsqueeze 1": (7, "Unsqueeze", {"axes": [0, 3]}, {}),
    "upsample 7": (7, "Upsample", {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "nearest"}, {}),
    "upsample 9": (9, "Upsample", {"mode": "nearest"}, {"scales": np.array([1, 1, 2, 3], "float32")}),
}


def expected(form, outputs):
    """Return onnxruntime's result, or the formula's if it no longer supports that version."""
    if form[1] == "Upsample":
        return [X.repeat(2, axis=2).repeat(3, axis=3)]
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(old_model(form, outputs).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": X})


def old_model(form, outputs):
    opset, operator, attributes, constants = form
    names = [f"y{place}" for place in range(outputs)]
    node = helper.make_node(operator, ["x", *constants], names, **attributes)
    kinds = [INT64 if operator == "TopK" and place else FLOAT for place in range(outputs)]
    outs = [value(name, None, kind) for name, kind in zip(names, kinds, strict=True)]
    return network([node], [value("x", X.shape)], outs, constants, opset)


@pytest.mark.parametrize("name", OLD_FORMS)
def test_forms_of_old_versions(name):
    form = OLD_FORMS[name]
    outputs = 2 if form[1] in ("Split", "TopK") else 1
    results = run(load_model(old_model(form, outputs)), [X])
    for result, wanted in zip(results, expected(form, outputs), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("version", [6, 2**40])
def test_versions_that_are_not_known_are_refused(version):
    model = network([helper.make_node("Relu", ["x"], ["y"])], [value("x", [1])], [value("y", [1])], opset=version)
    with pytest.raises(ModelFormatError, match=f"operator set {version} is not supported; expected 7 to"):
        load_model(model)


def test_names_that_are_not_identifiers_are_kept():
    node = helper.make_node("Add", ["gpu_0/data:0", "gpu_0.data_0"], ["1"])
    loaded = load_model(network([node], [value("gpu_0/data:0", [2]), value("gpu_0.data_0", [2])], [value("1", [2])]))
    assert (loaded.input_names, loaded.output_names) == (("gpu_0/data:0", "gpu_0.data_0"), ("1",))
    np.testing.assert_array_equal(run(loaded, [np.ones(2, "float32"), np.ones(2, "float32")])[0], [2, 2])


def test_large_weights_stay_out_of_the_graph_and_count():
    rng = np.random.default_rng(5)
    w, b = rng.normal(size=(64, 32)).astype("float32"), rng.normal(size=32).astype("float32")
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    model = network([node], [value("x", [3, 64])], [value("y", [3, 32])], {"w": w, "b": b})
    x = rng.normal(size=(3, 64)).astype("float32")
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(run(load_model(model), [x])[0], wanted, rtol=1e-4, atol=1e-5)
