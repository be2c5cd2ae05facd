"""A few random ONNX graphs computed in 16 bits; tests/slow/test_onnx_narrow_2000.py runs 2,000."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # whose graphs are used here

pytest.importorskip("onnxruntime")


@pytest.mark.values
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("seed", [700109, 700116, 700155])
def test_random_graph(seed, precision):
    from onnx_graphs import BAD, outcome

    said = outcome(seed, precision)["outcome"]
    assert not said.startswith((*BAD, "refused")), f"seed {seed}: {said}"


def product_of_a_network():
    """Two matrix multiplications, a softmax and the position of its maximum; inputs that bfloat16 cannot represent."""
    from onnx import helper
    from onnx_judge import model_of

    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("MatMul", ["p", "v"], ["q"]),
        helper.make_node("Softmax", ["q"], ["y"], axis=-1),
        helper.make_node("ArgMax", ["y"], ["k"], axis=-1),
    ]
    given = {"x": rng.normal(size=(6, 16)).astype("float32")}
    weights = {name: (rng.normal(size=(16, 16)) / 4).astype("float32") for name in "wv"}
    return model_of(nodes, given, {"y": "float32", "k": "int64"}, weights), given


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_what_roundings_do_not_explain_is_wrong(precision, monkeypatch):
    import onnx_narrow
    from onnx_narrow import UNIT, judged_narrow

    model, given = product_of_a_network()
    right = onnx_narrow.by_onnxruntime(model, given)

    def answers(*results):
        monkeypatch.setattr(onnx_narrow, "by_package", lambda model, given, precision="float32": list(results))
        return judged_narrow(model, given, precision)

    assert answers(right[0] * (1 + UNIT[precision]), right[1]) == "right"
    assert answers(right[0] * (1 + 40 * UNIT[precision]), right[1]).startswith("onnxruntime: y")  # float32's too
    monkeypatch.undo()

    def narrow_alone(*results):
        every = {"float32": right, precision: list(results)}
        monkeypatch.setattr(onnx_narrow, "by_package", lambda model, given, precision="float32": every[precision])
        return judged_narrow(model, given, precision)

    assert narrow_alone(right[0] * (1 + 40 * UNIT[precision]), right[1]).startswith("wrong: y")
    assert narrow_alone(right[0], (right[1] + 1) % 16).startswith("wrong: k")
    assert "float64" in narrow_alone(right[0].astype("float64"), right[1])
    swapped = right[0].copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    assert narrow_alone(swapped, right[1]).startswith("wrong: y")


def test_moved_numbers_that_change_a_shape_are_moved_before_the_graph():
    from onnx import helper
    from onnx_judge import model_of
    from onnx_narrow import judged_narrow

    given = {
        "x": np.random.default_rng(1).normal(size=(4, 8)).astype("float32"),
        "n": np.arange(6, dtype="float32") % 3,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Unique", ["r"], ["u"]),
    ]
    model = model_of(nodes, given, {"y": "float32", "u": "float32"}, {"w": np.eye(8, dtype="float32")})
    assert judged_narrow(model, given, "bfloat16") == "right"
