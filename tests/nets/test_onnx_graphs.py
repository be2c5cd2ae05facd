"""A few random ONNX graphs; tests/slow/test_onnx_graphs_5000.py runs 5,000."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # whose graphs are used here

pytest.importorskip("onnxruntime")

SEEDS = (0, 2, 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_graph(seed):
    from onnx_graphs import BAD, outcome

    said = outcome(seed)["outcome"]
    assert not said.startswith(BAD), f"seed {seed}: {said}"


def test_a_wrong_result_is_distinguished_from_rounding():
    import numpy as np
    from onnx_graphs import difference

    wanted = np.array([1.0, 2.0, np.nan, np.inf], "float32")
    near = [wanted * np.float32(1 + 1e-6)]
    assert not difference(wanted + np.float32(1e-6), wanted, near)
    assert "in place of 2.0" in difference(np.array([1.0, 2.1, np.nan, np.inf], "float32"), wanted, near)
    assert difference(np.array([1.0, 2.0, 0.0, np.inf], "float32"), wanted, near)
    assert "float64" in difference(wanted.astype("float64"), wanted, near)
    # If moving the inputs slightly moves the result a lot, the tolerance is as large.
    assert not difference(np.array([1.0, 2.1, np.nan, np.inf], "float32"), wanted, [wanted * np.float32(1.01)])


def test_an_empty_list_of_axes_is_no_attribute_in_earlier_versions():
    import numpy as np
    from onnx_versions import in_form_of

    arrays = [np.zeros(3, "float32"), np.zeros(0, "int64")]
    assert in_form_of(11, "ReduceSum", "", arrays, {"keepdims": 0}) == (1, {"keepdims": 0})


def test_the_reference_for_einsum_multiplies_before_it_sums():
    import numpy as np
    from onnx import helper
    from onnx_judge import by_package, by_reference, model_of

    given = {"x": np.array([np.inf, 1], "float32"), "w": np.array([[1, -3], [1, 2]], "float32")}
    model = model_of([helper.make_node("Einsum", ["x", "w"], ["y"], equation="a,ab->a")], given, {"y": "float32"})
    np.testing.assert_array_equal(by_reference(model, given)[0], [np.nan, 3])
    np.testing.assert_array_equal(by_package(model, given)[0], [np.nan, 3])


def test_nodes_that_leave_out_outputs_are_evaluated_one_by_one():
    """The reference does not run the first, and has another position for the second than onnxruntime."""
    import numpy as np
    from onnx import helper
    from onnx_graphs import judged, referred
    from onnx_judge import model_of
    from onnx_parts import every_value

    given = {"x": np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")}
    norm = helper.make_node("SkipSimplifiedLayerNormalization", ["x", "x", "g"], ["a", "", "", "b"], epsilon=1e-3)
    norm.domain = "com.microsoft"
    places = {"coordinate_transformation_mode": "pytorch_half_pixel", "mode": "nearest"}
    resize = helper.make_node("Resize", ["b", "", "s"], ["y"], nearest_mode="round_prefer_ceil", **places)
    constants = {"g": np.ones(4, "float32"), "s": np.array([1, 0.5, 1], "float32")}
    model = model_of([norm, resize], given, {"y": "float32"}, constants, 19)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    np.testing.assert_array_equal(referred(model, given)[0], 2 * given["x"][:, 1:2])
    assert judged(model, given).startswith("onnxruntime: y")
    assert set(every_value(model, given)) == {"a", "b", "y"}


@pytest.mark.values
@pytest.mark.parametrize("operator", ["Hardmax", "LogSoftmax", "Softmax"])
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_the_judge_has_matrices_before_version_13(operator, axis):
    import numpy as np
    from onnx import helper
    from onnx_judge import by_onnxruntime, by_package, by_reference, model_of

    given = {"x": np.random.default_rng(3).normal(size=(2, 3, 4)).astype("float32")}
    attributes = {} if axis is None else {"axis": axis}
    for opset in (10, 12, 13):
        model = model_of([helper.make_node(operator, ["x"], ["y"], **attributes)], given, {"y": "float32"}, opset=opset)
        (wanted,) = by_onnxruntime(model, given)
        for judge in (by_reference, by_package):
            np.testing.assert_allclose(judge(model, given)[0], wanted, rtol=1e-5, atol=1e-6)


def test_hardmax_takes_the_first_nan_for_the_largest():
    """As in the reference, whose argmax is NumPy's; onnxruntime returns the largest number's."""
    import numpy as np
    from onnx import helper
    from onnx_judge import by_package, by_reference, model_of

    given = {"x": np.array([[1, 3, np.nan, 2], [2, 3, 3, 1]], "float32")}
    for opset in (10, 13):
        model = model_of([helper.make_node("Hardmax", ["x"], ["y"], axis=1)], given, {"y": "float32"}, opset=opset)
        for judge in (by_reference, by_package):
            np.testing.assert_array_equal(judge(model, given)[0], [[0, 0, 1, 0], [0, 1, 0, 0]])


def test_a_failing_graph_is_shrunk_to_its_nodes(monkeypatch):
    import numpy as np
    import onnx_graphs
    from onnx import helper
    from onnx_judge import model_of

    nodes = [
        helper.make_node(name, [a], [b]) for name, a, b in (("Abs", "x", "a"), ("Neg", "a", "b"), ("Exp", "b", "y"))
    ]
    given = {"x": np.ones(3, "float32")}
    monkeypatch.setattr(
        onnx_graphs, "judged", lambda model, _: "wrong" if "Neg" in [n.op_type for n in model.graph.node] else "right"
    )
    model, left = onnx_graphs.shrunk(model_of(nodes, given, {"y": "float32"}), given, "wrong")
    assert [node.op_type for node in model.graph.node] == ["Neg"]
    assert list(left) == ["a"]
