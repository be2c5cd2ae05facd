"""ONNX operators after those with data-dependent result shapes: correct, or refused in one sentence."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx_judge import by_onnxruntime, check, model_of, newer_judge

from tvm_tiling.errors import TilingError
from tvm_tiling.model.compile import compile_model


def floats(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


GIVEN = {"x": floats(4, 2, 3), "c": np.array([True, False, True])}
TWO = {"l": np.array([0, 2]), "z": np.zeros((1, 2, 3), "int64")}


def behind(*nodes, constants=None, given=GIVEN, kind="float32", opset=18):
    """Return a model of nodes after a Compress of the last axis, whose result is `n`; each is (operator, inputs,
    more)."""
    made = [helper.make_node("Compress", ["x", "c"], ["n"], axis=2)]
    for place, (operator, inputs, more) in enumerate(nodes):
        output = "y" if place == len(nodes) - 1 else f"b{place}"
        made.append(helper.make_node(operator, inputs.split(","), output.split(","), **more))
    return model_of(made, given, {"y": kind}, constants, opset)


# By name: nodes, and constants.
SERVED = {
    "matmul": ([("Transpose", "n", {"perm": [2, 0, 1]}), ("MatMul", "b0,w", {})], {"w": floats(2, 5)}),
    "matmul with itself": ([("Transpose", "n", {"perm": [0, 2, 1]}), ("MatMul", "n,b0", {})], {}),
    "einsum": ([("Einsum", "n,w", {"equation": "abc,bd->acd"})], {"w": floats(2, 5)}),
    "einsum with itself": ([("Einsum", "n,n", {"equation": "abc,abc->ab"})], {}),
    "where": ([("IsNaN", "n", {}), ("Where", "b0,n,w", {})], {"w": floats(2, 1)}),
    "prelu": ([("PRelu", "n,w", {})], {"w": floats(2, 1)}),
    "prelu of one slope": ([("PRelu", "n,w", {})], {"w": floats(1)}),
    "reshape": ([("Reshape", "n,s", {})], {"s": np.array([-1, 8])}),
    "gather": ([("Gather", "n,l", {"axis": 0})], {"l": np.array([3, 0])}),
}


@pytest.mark.parametrize("name", SERVED)
def test_shapes_that_are_proved_to_fit_are_supported(name):
    nodes, constants = SERVED[name]
    check(behind(*nodes, constants=constants), GIVEN)


@newer_judge
def test_parts_sizes_and_largest_elements_along_fixed_axes():
    split = [helper.make_node("Split", ["n"], ["y", "z"], axis=0, num_outputs=3)]
    top = [helper.make_node("TopK", ["n", "k"], ["y", "z"], axis=0)]
    compress = helper.make_node("Compress", ["x", "c"], ["n"], axis=2)
    # Parts of 2, 2 and nothing are two outputs here.
    split[0].output.append("w")
    kinds = {"y": "float32", "z": "float32", "w": "float32"}
    check(model_of([compress, *split], GIVEN, kinds), GIVEN)
    check(model_of([compress, *top], GIVEN, {"y": "float32", "z": "int64"}, {"k": np.array([2])}), GIVEN)
    check(behind(("Size", "n", {}), kind="int64"), GIVEN)


# Start, end and step of a slice of 0 to 9 elements.
SLICES = [
    (2, 5, 1),
    (2, -1, 1),
    (-3, 3, 2),
    (5, 1, 2),
    (0, 2**31 - 1, 3),
    (2**40, 2**62, 1),
    (5, 1, -2),
    (1, -1, -1),
    (-1, -(2**40), -2),
    (-20, -(2**63), -1),
]


@pytest.mark.parametrize("bounds", SLICES)
def test_slices_of_what_the_run_leaves_may_be_empty(bounds):
    constants = {name: np.array([number]) for name, number in zip("set", bounds, strict=True)} | {"a": np.array([0])}
    nodes = [
        helper.make_node("Compress", ["x", "c"], ["n"], axis=0),
        helper.make_node("Slice", ["n", "s", "e", "a", "t"], ["y"]),
        helper.make_node("ReduceSum", ["y", "a"], ["z"], keepdims=0),
    ]
    given = {"x": floats(9, 2), "c": np.ones(9, bool)}
    model = model_of(nodes, given, {"y": "float32", "z": "float32"}, constants, 18)
    executable = compile_model(model, cache=False)
    for count in (0, 1, 2, 5, 9):
        given["c"] = np.arange(9) < count
        for result, want in zip(executable.run(*given.values()), by_onnxruntime(model, given), strict=True):
            np.testing.assert_allclose(result, want, rtol=1e-6)


REFUSED = {
    "matmul": ([("MatMul", "n,w", {})], {"w": floats(3, 2)}),
    "einsum": ([("Einsum", "n,w", {"equation": "abc,cd->abd"})], {"w": floats(3, 2)}),
    "gather elements": ([("GatherElements", "n,z", {"axis": 0})], TWO),
    "scatter elements": ([("ScatterElements", "n,z,u", {"axis": 0})], {**TWO, "u": floats(1, 2, 3)}),
    "reshape": ([("Reshape", "n,s", {})], {"s": np.array([4, 3, 2])}),
    "reshape to a multiple": ([("Reshape", "n,s", {})], {"s": np.array([-1, 3])}),
    "prelu": ([("PRelu", "n,w", {})], {"w": floats(3)}),
    "batch norm": (
        [("Transpose", "n", {"perm": [0, 2, 1]}), ("BatchNormalization", "b0,w,w,w,w", {})],
        {"w": floats(3)},
    ),
    "less": ([("Less", "n,w", {})], {"w": floats(3)}),
    "gru": ([("GRU", "n,w,r", {"hidden_size": 1})], {"w": floats(1, 3, 3), "r": floats(1, 3, 1)}),
    "concat": ([("Concat", "n,w", {"axis": 0})], {"w": floats(1, 2, 3)}),
    "pad": ([("Shape", "n", {}), ("Concat", "b0,b0", {"axis": 0}), ("Pad", "n,b1", {})], {}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_shapes_that_may_not_fit_are_refused(name):
    nodes, constants = REFUSED[name]
    with pytest.raises(TilingError) as refused:
        compile_model(behind(*nodes, constants=constants, kind="bool" if name == "less" else "float32"), cache=False)
    said = str(refused.value)
    assert "\n" not in said and "TVM does not support lowering" not in said and "int()" not in said
    assert "num_nonzero" in said or "not known at compile time" in said


def test_two_sizes_of_one_name_are_not_taken_for_one():
    """Each Compress counts its own elements."""
    given = {**GIVEN, "d": np.ones(3, bool)}
    second = helper.make_node("Compress", ["x", "d"], ["m"], axis=2)
    for operator, more in (("Add", {}), ("Concat", {"axis": 0}), ("Einsum", {"equation": "abc,abc->ab"})):
        model = behind((operator, "n,m", more), given=given)
        model.graph.node.insert(0, second)
        with pytest.raises(TilingError, match=r"not known at compile time|num_nonzero"):
            compile_model(model, cache=False)


@newer_judge
def test_attention_to_dynamic_values_after_constant_ones():
    given = {"q": floats(2, 3, 4, 8), "v": floats(2, 3, 6, 10)}
    constants = {"k": floats(2, 3, 6, 8), "past_k": floats(2, 3, 12, 8), "past_v": floats(2, 3, 12, 10)}
    node = helper.make_node("Attention", ["q", "k", "v", "", "past_k", "past_v"], ["y", "all_k", "all_v"])
    model = model_of([node], given, dict.fromkeys(["y", "all_k", "all_v"], "float32"), constants, opset=23)
    for value, sizes in zip(model.graph.input, (["b", 3, "t", 8], ["b", 3, "s", 10]), strict=True):
        shape = helper.make_tensor_type_proto(1, sizes).tensor_type.shape
        value.type.tensor_type.shape.CopyFrom(shape)
    check(model, given, rtol=1e-4, atol=1e-5)


def test_a_part_of_a_node_that_needs_a_fixed_size_is_named_after_the_node():
    given = {"q": floats(2, 3, 4, 8)}
    constants = {"k": floats(2, 3, 6, 8), "v": floats(2, 3, 6, 10)}
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], name="heads")
    model = model_of([node], given, {"y": "float32"}, constants, opset=23)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "h"
    with pytest.raises(TilingError, match=r"node 'heads' \(Expand\): it depends on dynamic sizes of 'q' in a way that"):
        compile_model(model, cache=False)
    behind_data = behind(("Shape", "n", {}), ("Equal", "b0,b0", {}), ("Where", "b1,b0,b0", {}), ("Expand", "o,b2", {}),
                         constants={"o": floats(1)})  # fmt: skip
    with pytest.raises(TilingError, match=r"\(Expand\): it depends on the value of 'x', 'c'"):
        compile_model(behind_data, cache=False)
