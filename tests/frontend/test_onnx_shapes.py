"""Constants derived from shapes: from the actual shapes of tensors, not from inferred or declared ones."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_judge import by_package, check, model_of

from tvm_tiling.errors import ModelFormatError, TilingError
from tvm_tiling.frontend.onnx import corrected, folding
from tvm_tiling.model.compile import compile_model

GIVEN = {"x": np.random.default_rng(0).normal(size=(1, 2, 4, 3)).astype("float32")}
WEIGHTS = {"w": np.random.default_rng(1).normal(size=(2, 3, 3, 3)).astype("float32")}

# By name: operator, attributes; the onnx package infers another shape for each.
MISJUDGED = {
    "pool": ("AveragePool", {"kernel_shape": [1, 1], "strides": [3, 3], "ceil_mode": 1}),
    "norm": ("LpPool", {"kernel_shape": [1, 1], "strides": [3, 3], "ceil_mode": 1}),
    "window beyond the image": ("MaxPool", {"kernel_shape": [5, 4], "strides": [2, 2], "ceil_mode": 1}),
    "small output": ("ConvTranspose", {"output_shape": [2, 2]}),
    "same": ("ConvTranspose", {"auto_pad": "SAME_LOWER", "strides": [3, 3], "output_padding": [1, 2]}),
}


@pytest.mark.parametrize("behind", [["Shape"], ["Relu", "Shape"], ["Flatten", "Shape"], ["Size"]])
@pytest.mark.parametrize("name", MISJUDGED)
def test_sizes_of_what_is_inferred_wrongly(name, behind):
    operator, attributes = MISJUDGED[name]
    inputs = ["x", "w"] if operator == "ConvTranspose" else ["x"]
    nodes = [helper.make_node(operator, inputs, ["b0"], **attributes)]
    for place, kind in enumerate(behind):
        nodes.append(helper.make_node(kind, [f"b{place}"], [f"b{place + 1}"]))
    constants = WEIGHTS if operator == "ConvTranspose" else {}
    model = model_of(
        [*nodes, helper.make_node("Identity", [f"b{len(behind)}"], ["y"])], GIVEN, {"y": "int64"}, constants
    )
    model.opset_import[0].version = 19
    check(model, GIVEN)


def test_wrong_shapes_after_one_another():
    """Each shrinks the next one's input, and the result takes its shape from the last."""
    pools = [
        helper.make_node("AveragePool", [f"p{i}"], [f"p{i + 1}"], kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1)
        for i in range(3)
    ]
    nodes = [
        helper.make_node("Relu", ["x"], ["p0"]),
        *pools,
        helper.make_node("Shape", ["p3"], ["s"]),
        helper.make_node("Expand", ["one", "s"], ["y"]),
    ]
    given = {"x": np.ones((1, 1, 17, 18), "float32")}
    check(model_of(nodes, given, {"y": "float32"}, {"one": np.ones(1, "float32")}, 19), given)


@pytest.mark.parametrize("kind", ["Neg", "Div", "Where", "pool"])
def test_a_chain_of_shapes_that_decide_one_another_is_inferred_a_few_times(kind, monkeypatch):
    nodes = []
    for i in range(40):
        data = f"t{i}"
        if kind == "pool":
            nodes.append(
                helper.make_node("AveragePool", [data], [f"p{i}"], kernel_shape=[1, 1], strides=[1, 1], ceil_mode=1)
            )
            data = f"p{i}"
        nodes.append(helper.make_node("Shape", [data], [f"s{i}"]))
        nodes += {
            "Neg": [helper.make_node("Neg", [f"s{i}"], [f"u{i}"]), helper.make_node("Neg", [f"u{i}"], [f"v{i}"])],
            "Div": [helper.make_node("Div", [f"s{i}", "one"], [f"v{i}"])],
            "Where": [helper.make_node("Where", ["yes", f"s{i}", "one"], [f"v{i}"])],
            "pool": [helper.make_node("Abs", [f"s{i}"], [f"v{i}"])],
        }[kind]
        nodes.append(helper.make_node("Reshape", [data, f"v{i}"], [f"t{i + 1}"]))
    nodes.append(helper.make_node("Shape", ["t40"], ["y"]))
    model = model_of(nodes, {"t0": GIVEN["x"]}, {"y": "int64"}, {"one": np.array(1), "yes": np.array(True)}, 19)
    times = []
    infer = folding.inferred_types
    monkeypatch.setattr(folding, "inferred_types", lambda *given: times.append(1) or infer(*given))
    np.testing.assert_array_equal(by_package(model, {"t0": GIVEN["x"]})[0], [1, 2, 4, 3])
    assert len(times) < 8


def test_what_is_inferred_wrongly_within_a_chain_of_shapes():
    """The shape of a pool's result is known from a constant created in the same pass."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Neg", ["s"], ["n"]),
        helper.make_node("Abs", ["n"], ["a"]),
        helper.make_node("Reshape", ["x", "a"], ["r"]),
        helper.make_node("AveragePool", ["r"], ["p"], kernel_shape=[1, 1], strides=[3, 3], ceil_mode=1),
        helper.make_node("Shape", ["p"], ["y"]),
    ]
    check(model_of(nodes, GIVEN, {"y": "int64"}, opset=19), GIVEN)


WRONG = helper.make_tensor_value_info("a", TensorProto.FLOAT, [1, 2, 4, 30])


def test_a_shape_that_a_file_declares_wrongly_is_not_believed():
    nodes = [helper.make_node("Mul", ["x", "x"], ["a"]), helper.make_node("Shape", ["a"], ["y"])]
    model = model_of(nodes, GIVEN, {"y": "int64"})
    model.graph.value_info.append(WRONG)
    check(model, GIVEN)
    model.graph.output.append(model.graph.value_info.pop())
    check(model, GIVEN)


@pytest.mark.parametrize("declared", [False, True])
def test_a_shape_that_is_inferred_wrongly_without_a_declaration_is_refused(declared, monkeypatch):
    monkeypatch.setattr(corrected, "standard_shape", lambda node, shapes: None)
    operator, attributes = MISJUDGED["pool"]
    nodes = [helper.make_node(operator, ["x"], ["a"], **attributes), helper.make_node("Shape", ["a"], ["y"])]
    model = model_of(nodes, GIVEN, {"y": "int64"}, opset=19)
    if declared:
        model.graph.value_info.append(WRONG)
    with pytest.raises(ModelFormatError, match=r"'a' has shape \(.*\); expected \(.*\), as declared or inferred"):
        compile_model(model, cache=False)


@pytest.mark.parametrize("axes", [[-2], [4, -5, -6], [-1, 0]])
def test_sizes_after_negative_axes_of_old_versions(axes):
    nodes = [helper.make_node("Unsqueeze", ["x"], ["a"], axes=axes), helper.make_node("Shape", ["a"], ["y"])]
    check(model_of(nodes, GIVEN, {"y": "int64"}, opset=9), GIVEN)


def reversed_rows(lengths, *, kept):
    """Return rows of a matrix, those of a mask where `kept`, each reversed up to its length."""
    given = {"x": np.arange(12, dtype="float32").reshape(3, 4)}
    axes = {"batch_axis": 0, "time_axis": 1}
    nodes = [helper.make_node("ReverseSequence", ["rows" if kept else "x", "lengths"], ["y"], **axes)]
    if kept:
        given["mask"] = np.array([False, False, True])
        nodes.insert(0, helper.make_node("Compress", ["x", "mask"], ["rows"], axis=0))
    return model_of(nodes, given, {"y": "float32"}, {"lengths": np.array(lengths, "int64")})


@pytest.mark.parametrize(
    ("lengths", "kept", "said"),
    [
        ([2], True, "not known at compile time"),
        ([2, 1], False, "2 lengths for 3 sequences; expected one per sequence"),
    ],
)
def test_lengths_of_other_sequences_than_there_are(lengths, kept, said):
    with pytest.raises(TilingError, match=said):
        compile_model(reversed_rows(lengths, kept=kept), cache=False)


def test_a_norm_of_one_number_that_has_no_axes():
    """A sum of one product, whose operand has no axis for channels."""
    given = {"x": np.array(-3.0, "float32")}
    node = helper.make_node("ReduceL2", ["x"], ["y"], keepdims=1, noop_with_empty_axes=1)
    check(model_of([node], given, {"y": "float32"}, opset=20), given)


@pytest.mark.values
@pytest.mark.parametrize("mask", [[False] * 3, [True, False, True]])
@pytest.mark.parametrize("operator", ["ReduceL2", "ReduceL1", "ReduceSumSquare", "ReduceProd"])
@pytest.mark.parametrize("axes", [[0], [-3, -1]])
def test_sums_over_rows_of_which_the_run_may_leave_none(operator, axes, mask):
    """An empty sum is its initial value, not uninitialised memory."""
    given = {"x": np.arange(1, 25, dtype="float32").reshape(3, 2, 4), "mask": np.array(mask)}
    nodes = [
        helper.make_node("Compress", ["x", "mask"], ["rows"], axis=0),
        helper.make_node(operator, ["rows"], ["sums"], axes=axes),
        helper.make_node("Mul", ["sums", "sums"], ["y"]),
    ]
    model = model_of(nodes, given, {"y": "float32"}, opset=16)
    for _ in range(3):
        check(model, given)
