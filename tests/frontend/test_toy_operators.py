"""New operators added as docs/design.md describes: one row each in a frontend's table suffices."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tvm import relax, te
from tvm.relax import op
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter
from tvm.script import tirx as T  # noqa: N812

import tvm_tiling as tt
from tvm_tiling.frontend.onnx.operators import CONVERTERS

ROWS, STEPS = 37, 53
OPAQUE = 8  # TVM fuses nothing with such a function
RNG = np.random.default_rng(7)


class ToySquash(OnnxOpConverter):
    """x / (1 + |x|), from existing Relax operators: element-wise, and fused with its neighbours."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        x = inputs[0]
        return x / (op.abs(x) + relax.const(1.0, "float32"))


class ToyHinge(OnnxOpConverter):
    """max(0, 1 - x y), from a tensor expression."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        def hinge(x: te.Tensor, y: te.Tensor) -> te.Tensor:
            return te.compute(x.shape, lambda i, j: te.max(0.0, 1.0 - x[i, j] * y[i, j]), "hinge")

        return bb.call_te(hinge, inputs[0], inputs[1])


@T.prim_func(s_tir=True, private=True)
def running_mean(x: T.Buffer((ROWS, STEPS), "float32"), y: T.Buffer((ROWS, STEPS), "float32")):
    """y[t] = (y[t - 1] + x[t]) / 2 along each row: each step needs the previous one."""
    for i in range(ROWS):
        with T.sblock("rows"):
            row = T.axis.spatial(ROWS, i)
            for t in range(STEPS):
                y[row, t] = (T.if_then_else(t > 0, y[row, T.max(t - 1, 0)], T.float32(0)) + x[row, t]) * T.float32(0.5)


class ToyRunningMean(OnnxOpConverter):
    """A scan, as a separate function."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        function = bb.add_func(running_mean.with_attr("op_pattern", OPAQUE), "running_mean")
        return relax.call_tir(function, [inputs[0]], out_ty=relax.TensorType((ROWS, STEPS), "float32"))


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    for toy in (ToySquash, ToyHinge, ToyRunningMean):
        monkeypatch.setitem(CONVERTERS, f"toy.{toy.__name__}", toy)


def model(nodes, inputs: int, size=(ROWS, STEPS)) -> onnx.ModelProto:
    names = [f"x{number}" for number in range(inputs)]
    graph = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name in names],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("toy", 1)])


def squash(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.abs(x))


def test_an_element_wise_operator_of_relax_operators():
    x = RNG.standard_normal((ROWS, STEPS)).astype("float32")
    nodes = [helper.make_node("Relu", ["x0"], ["r"]), helper.make_node("ToySquash", ["r"], ["y"], domain="toy")]
    exe = tt.compile(model(nodes, 1))
    np.testing.assert_allclose(exe.run(x), squash(np.maximum(x, 0)), rtol=1e-6)
    assert len(exe.report().operators) == 1  # one kernel with its neighbour


def test_an_element_wise_operator_after_a_matrix_multiplication():
    x, w = (RNG.standard_normal((64, 64)).astype("float32") for _ in range(2))
    nodes = [helper.make_node("MatMul", ["x0", "x1"], ["m"]), helper.make_node("ToySquash", ["m"], ["y"], domain="toy")]
    exe = tt.compile(model(nodes, 2, (64, 64)))
    np.testing.assert_allclose(exe.run(x, w), squash(x @ w), rtol=1e-4, atol=1e-5)
    assert len(exe.report().operators) == 1


def test_an_operator_with_a_tensor_expression_of_its_own():
    x, y = (RNG.standard_normal((ROWS, STEPS)).astype("float32") for _ in range(2))
    exe = tt.compile(model([helper.make_node("ToyHinge", ["x0", "x1"], ["y"], domain="toy")], 2))
    np.testing.assert_allclose(exe.run(x, y), np.maximum(0, 1 - x * y), rtol=1e-6, atol=1e-6)


def test_a_scan():
    x = RNG.standard_normal((ROWS, STEPS)).astype("float32")
    nodes = [helper.make_node("ToyRunningMean", ["x0"], ["m"], domain="toy"), helper.make_node("Relu", ["m"], ["y"])]
    want, last = np.empty_like(x), np.zeros(ROWS, "float32")
    for step in range(STEPS):
        last = want[:, step] = (last + x[:, step]) / 2
    np.testing.assert_allclose(tt.compile(model(nodes, 1)).run(x), np.maximum(want, 0), rtol=1e-5, atol=1e-6)


def test_without_its_row_an_operator_is_refused_by_name(monkeypatch):
    monkeypatch.delitem(CONVERTERS, "toy.ToySquash")
    with pytest.raises(tt.UnsupportedOperator, match="ToySquash"):
        tt.compile(model([helper.make_node("ToySquash", ["x0"], ["y"], domain="toy")], 1))
