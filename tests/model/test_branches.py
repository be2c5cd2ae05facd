"""Run-time branches: both sides are computed, one is selected."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.errors import UnsupportedOperator

onnx = pytest.importorskip("onnx")
helper = onnx.helper
FLOAT, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL


def info(name, shape=(2, 3), kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def side(*nodes, outputs):
    return helper.make_graph(list(nodes), "side", [], [info(name, None) for name in outputs])


def model(then, other, outputs):
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("If", ["condition"], list(outputs), then_branch=then, else_branch=other),
    ]
    graph = helper.make_graph(
        nodes, "graph", [info("x"), info("condition", (), BOOL)], [info(name, None) for name in outputs]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_the_condition_chooses_at_every_run():
    inner = helper.make_node(
        "If",
        ["condition"],
        ["n"],
        then_branch=side(helper.make_node("Neg", ["e"], ["deep"]), outputs=["deep"]),
        else_branch=side(helper.make_node("Abs", ["x"], ["deeper"]), outputs=["deeper"]),
    )
    then = side(inner, helper.make_node("Sin", ["x"], ["s"]), outputs=["n", "s"])
    other = side(
        helper.make_node("Add", ["e", "x"], ["a"]), helper.make_node("Mul", ["e", "e"], ["m"]), outputs=["a", "m"]
    )
    executable = tt.compile(model(then, other, ("y", "z")), cache=False)
    x = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
    e = np.exp(x)
    for condition, expected in ((True, (-e, np.sin(x))), (False, (e + x, e * e))):
        for result, value in zip(executable.run(x, np.array(condition)), expected, strict=True):
            np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6)


def test_results_of_two_shapes_are_refused():
    then = side(helper.make_node("Identity", ["x"], ["a"]), outputs=["a"])
    other = side(helper.make_node("ReduceSum", ["x"], ["b"]), outputs=["b"])
    said = r"\(If\): its branches return float32 of shape \(2, 3\) and float32 of shape \(1, 1\), selected at run time"
    with pytest.raises(UnsupportedOperator, match=said):
        tt.compile(model(then, other, ("y",)), cache=False)


def test_what_branches_hold_is_refused_by_name():
    then = side(helper.make_node("RandomNormalLike", ["x"], ["a"]), outputs=["a"])
    other = side(helper.make_node("Neg", ["x"], ["b"]), outputs=["b"])
    with pytest.raises(UnsupportedOperator, match="RandomNormalLike"):
        tt.compile(model(then, other, ("y",)), cache=False)


def test_branches_hold_functions_divisions_and_equal_names():
    """Both Ifs have branches whose tensors have the same names and other shapes."""

    def sides(extent):
        held = onnx.numpy_helper.from_array(np.full((extent, 3), 3, "float32"), "c")
        nodes = [helper.make_node("Mod", ["x", "c"], ["i"], fmod=1), helper.make_node("Mish", ["i"], ["j"])]
        then = helper.make_graph(nodes, "side", [], [info("j", None)], [held])
        other = helper.make_graph([helper.make_node("Sub", ["x", "c"], ["j"])], "side", [], [info("j", None)], [held])
        return {"then_branch": then, "else_branch": other}

    nodes = [
        helper.make_node("If", ["flag"], ["y"], **sides(1)),
        helper.make_node("If", ["flag"], ["z"], **sides(2)),
    ]
    inputs, outputs = [info("x"), info("flag", (), BOOL)], [info("y", None), info("z", None)]
    graph = helper.make_graph(nodes, "graph", inputs, outputs)
    executable = tt.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), cache=False
    )
    x = np.linspace(-5, 5, 6).reshape(2, 3).astype("float32")
    rest = np.fmod(x, 3)
    for flag, expected in ((True, rest * np.tanh(np.log1p(np.exp(rest)))), (False, x - 3)):
        for result in executable.run(x, np.array(flag)):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_a_relax_module_with_a_branch():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    flag = relax.Var("flag", relax.TensorType((), "bool"))

    def branch(value):
        held = relax.Var("held", relax.TensorType((4,), "float32"))
        return relax.SeqExpr([relax.BindingBlock([relax.VarBinding(held, value)])], held)

    with builder.function("main", [x, flag]):
        chosen = builder.emit(relax.If(flag, branch(relax.op.exp(x)), branch(relax.op.negative(x))))
        builder.emit_func_output(builder.emit(relax.op.add(chosen, x)))
    executable = tt.compile(builder.get(), cache=False)
    given = np.arange(4, dtype="float32")
    np.testing.assert_allclose(executable.run(given, np.array(True)), np.exp(given) + given, rtol=1e-6)
    np.testing.assert_allclose(executable.run(given, np.array(False)), np.zeros(4), atol=1e-7)
