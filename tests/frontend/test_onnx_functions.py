"""Functions of an ONNX model, and the two names of the standard's domain."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import helper
from onnx_judge import by_package, check, model_of

from tvm_tiling.errors import ModelFormatError
from tvm_tiling.frontend import load_model

X = {"x": np.linspace(-2, 2, 12, dtype="float32").reshape(3, 4)}
FLOAT = {"y": "float32"}


def own(operator, inputs, outputs, **attributes):
    """Return a call of a function of the model."""
    return helper.make_node(operator, inputs.split(","), outputs.split(","), domain="own", **attributes)


def leaky(alpha="alpha"):
    """Return a LeakyRelu whose slope is an attribute of its function."""
    node = helper.make_node("LeakyRelu", ["a"], ["b"])
    node.attribute.append(
        onnx.AttributeProto(name="alpha", ref_attr_name=alpha, type=onnx.AttributeProto.AttributeType.FLOAT)
    )
    return node


def function(name, nodes, *, version=18, more=(), **defaults):
    """Return a function from `a` to `b`; `defaults` of its attributes, which have none if it is None."""
    protos = [helper.make_attribute(key, value) for key, value in defaults.items() if value is not None]
    named = [key for key, value in defaults.items() if value is None]
    opsets = [helper.make_opsetid("", version), helper.make_opsetid("own", 1), *more]
    return helper.make_function("own", name, ["a"], ["b"], nodes, opsets, named, protos)


def model(nodes, functions, version=18):
    made = model_of(nodes, X, FLOAT, opset=version)
    made.opset_import.append(helper.make_opsetid("own", 1))
    made.functions.extend(functions)
    return made


def test_attributes_that_a_call_leaves_out_have_the_functions_defaults():
    """Also in a branch, and with another value in a second call of the same function."""
    half = function("Half", [leaky()], alpha=0.5)
    nodes = [own("Half", "x", "z"), own("Half", "z", "y", alpha=0.25)]
    check(model(nodes, [half]), X)
    side = helper.make_graph([own("Half", "x", "s")], "side", [], [onnx.ValueInfoProto(name="s")])
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["go"], to=onnx.TensorProto.BOOL),
        helper.make_node("If", ["go"], ["y"], then_branch=side, else_branch=side),
    ]
    np.testing.assert_allclose(by_package(model(nodes, [half]), X)[0], np.where(X["x"] < 0, X["x"] / 2, X["x"]))


@pytest.mark.parametrize(("given", "slope"), [({}, 0.5), ({"beta": 0.125}, 0.125)])
def test_an_attribute_that_is_passed_on_and_left_out_has_the_inner_default(given, slope):
    call = own("Half", "a", "b")
    call.attribute.append(
        onnx.AttributeProto(name="alpha", ref_attr_name="beta", type=onnx.AttributeProto.AttributeType.FLOAT)
    )
    functions = [function("Half", [leaky()], alpha=0.5), function("Outer", [call], beta=None)]
    found = by_package(model([own("Outer", "x", "y", **given)], functions), X)[0]
    np.testing.assert_allclose(found, np.where(X["x"] < 0, X["x"] * np.float32(slope), X["x"]))


def test_a_function_of_another_version_whose_operators_are_the_same():
    check(model([own("F", "x", "y")], [function("F", [helper.make_node("Exp", ["a"], ["b"])], version=17)]), X)


@pytest.mark.parametrize(("operator", "version"), [("Softmax", 12), ("Gelu", 20)])
def test_a_function_of_another_version_whose_operators_differ_is_refused(operator, version):
    made = model([own("F", "x", "y")], [function("F", [helper.make_node(operator, ["a"], ["b"])], version=version)])
    words = rf"function 'F' uses {operator} of operator set {version}, .* operator set 18 of the model"
    with pytest.raises(ModelFormatError, match=words):
        load_model(made)


def test_a_function_of_a_domain_that_the_model_does_not_name():
    gelu = helper.make_node("QuickGelu", ["a"], ["b"], domain="com.microsoft")
    made = model([own("F", "x", "y")], [function("F", [gelu], more=[helper.make_opsetid("com.microsoft", 1)])])
    slope = np.float32(1.702)
    np.testing.assert_allclose(by_package(made, X)[0], X["x"] / (1 + np.exp(-slope * X["x"])), rtol=1e-5)


@pytest.mark.parametrize("imported", ["", "ai.onnx"])
@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_the_standards_domain_has_two_names(domain, imported):
    """Softmax of version 11 covers all axes from 1 on; shapes are folded, and branches and loops supported."""
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [
            helper.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, [3, 4]),
        ],
        [
            helper.make_tensor_value_info("d", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, [3, 4]),
        ],
    )
    nodes = [
        helper.make_node("Loop", ["n", "", "x"], ["three"], body=body),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "order"], ["turned"]),
        helper.make_node("Reshape", ["three", "turned"], ["z"]),
        helper.make_node("Softmax", ["z"], ["y"]),
    ]
    constants = {"n": np.int64(2), "order": np.array([1, 0])}
    made = model_of(nodes, X, FLOAT, constants, opset=11)
    expected = by_package(made, X)[0]
    check(made, X)
    made.opset_import[0].domain = imported
    for node in (*made.graph.node, *made.graph.node[0].attribute[0].g.node):
        node.domain = domain
    np.testing.assert_array_equal(by_package(made, X)[0], expected)


def test_an_operator_of_another_domain_is_written_out_by_its_definition():
    """In a model that names no version of the standard's operators."""
    given = {
        name: np.random.default_rng(place).standard_normal((1, 2, 3, 4)).astype("float32")
        for place, name in enumerate("qkv")
    }
    attention = helper.make_node("FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview", scale=0.5)
    made = model_of([attention], given, FLOAT)
    made.opset_import[0].CopyFrom(helper.make_opsetid("ai.onnx.preview", 1))
    scores = np.exp(given["q"] @ given["k"].swapaxes(2, 3) * np.float32(0.5))
    expected = scores / scores.sum(-1, keepdims=True) @ given["v"]
    np.testing.assert_allclose(by_package(made, given)[0], expected, rtol=1e-4, atol=1e-6)
