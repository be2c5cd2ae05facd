"""Group and instance norms: exact far from 0, and between convolutions without transpositions; sums of squares."""

from __future__ import annotations

import numpy as np
import pytest
from networks import Network, default
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.model.passes.dataflow import is_op
from tvm_tiling.model.passes.layout import channels_last
from tvm_tiling.model.passes.norms import written_out_norms
from tvm_tiling.model.passes.simplify import simplify
from tvm_tiling.model.passes.views import join_views

op = relax.op
RNG = np.random.default_rng(0)
GAMMA, BETA = (RNG.uniform(0.5, 2, 12).astype("float32") for _ in range(2))


def normed(x: np.ndarray, groups: int, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """The group norm in float64, with an epsilon of 1e-5."""
    wide = x.astype("float64").reshape(x.shape[0], groups, -1)
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    along = (-1, *(1,) * (x.ndim - 2))
    return normal.reshape(x.shape) * gamma.reshape(along) + beta.reshape(along)


def compiled(shape: tuple[int, ...], dtype: str, groups: int) -> tt.Executable:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, dtype))
    gamma, beta = (relax.const(each, dtype) for each in (GAMMA, BETA))
    with builder.function("main", [x]):
        with builder.dataflow():
            norm = op.nn.group_norm(x, gamma, beta, groups, 1, list(range(2, len(shape))))
            out = builder.emit_output(norm)
        builder.emit_func_output(out)
    return tt.compile(builder.finalize())


@pytest.mark.parametrize(
    ("shape", "groups"), [((2, 12, 5, 7), 1), ((2, 12, 5, 7), 4), ((2, 12, 5, 7), 12), ((3, 12, 9), 3), ((2, 12), 4)]
)
def test_norms_of_data_far_from_zero(shape, groups):
    """With the mean of the squares minus the square of the mean, they are NaN."""
    x = (RNG.standard_normal(shape) + 3000).astype("float32")
    np.testing.assert_allclose(compiled(shape, "float32", groups)(x), normed(x, groups, GAMMA, BETA), atol=3e-3)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 3e-3), ("float64", 1e-12)])
def test_other_types_are_computed_in_float32_or_wider(dtype, tolerance):
    x = (RNG.standard_normal((1, 12, 33)) + 100).astype(dtype)
    want = normed(x, 12, GAMMA.astype(dtype), BETA.astype(dtype))
    np.testing.assert_allclose(compiled(x.shape, dtype, 12)(x), want, atol=tolerance)


def group_norm_of_exporters(groups: int, constant: bool) -> bytes:
    """A convolution, a group norm as exporters write it before opset 18, and a convolution."""
    weights = {"w": RNG.uniform(-1, 1, (12, 12, 3, 3)), "ones": np.ones(groups), "zeros": np.zeros(groups)}
    weights |= {"gamma": GAMMA.reshape(12, 1, 1), "beta": BETA.reshape(12, 1, 1)}
    shapes = {"grouped": np.array([0, groups, -1]), "whole": np.array([1, 12, 6, 7])}
    stored = {name: value.astype("float32") for name, value in weights.items()} | shapes
    given = () if constant else ("ones", "zeros")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["a", "grouped"], ["b"]),
        helper.make_node("InstanceNormalization", ["b", "ones", "zeros"], ["c"]),
        helper.make_node("Reshape", ["c", "whole"], ["d"]),
        helper.make_node("Mul", ["d", "gamma"], ["e"]),
        helper.make_node("Add", ["e", "beta"], ["f"]),
        helper.make_node("Conv", ["f", "w"], ["y"], pads=[1, 1, 1, 1]),
    ]
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, [1, 12, 6, 7])]
    inputs += [value(name, TensorProto.FLOAT, [groups]) for name in given]
    graph = helper.make_graph(
        nodes,
        "norm",
        inputs,
        [value("y", TensorProto.FLOAT, [1, 12, 6, 7])],
        [numpy_helper.from_array(stored[name], name) for name in stored if name not in given],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("groups", [1, 3])
def test_exporters_group_norms_need_no_transpositions(groups, constant, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    model = tmp_path / "norm.onnx"
    model.write_bytes(group_norm_of_exporters(groups, constant))
    exe = tt.compile(model)
    inputs = {"x": RNG.standard_normal((1, 12, 6, 7)).astype("float32")}
    if not constant:
        inputs |= {"ones": GAMMA[:groups], "zeros": BETA[:groups]}
    (want,) = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, inputs)
    np.testing.assert_allclose(exe.run(inputs), want, rtol=1e-4, atol=1e-4)
    # Those at the model's input and output are all.
    assert sum("transpose" in operator.name for operator in exe.report().operators) <= 2


def test_a_group_norm_between_convolutions_follows_their_layout():
    net = Network((1, 12, 8, 9))

    def body(net, x):
        y = net.emit(op.nn.conv2d(x, net.c(12, 12, 3, 3), padding=1))
        y = net.emit(op.nn.group_norm(y, net.c(12), net.c(12), 3, 1, [2, 3]))
        return op.nn.conv2d(y, net.c(12, 12, 1, 1))

    mod = net.module(body)
    last = join_views(simplify(channels_last(join_views(written_out_norms(mod)))))
    moved = [b.value for block in last["main"].body.blocks for b in block.bindings if is_op(b.value, "permute_dims")]
    assert len(moved) == 2  # of the input and of the output
    arrays = net.arrays()
    np.testing.assert_allclose(default(last, arrays), default(mod, arrays), rtol=1e-4, atol=1e-4)


def test_independent_dot_products_are_reductions():
    """Sums of squares over an image's pixels, as in ConvNeXt V2; a matrix multiplication takes ten times as long."""
    net = Network((1, 9, 8, 20))

    def body(net, x):
        return op.sum(net.emit(op.multiply(x, x)), [1, 2], keepdims=True)

    mod = net.module(body)
    exe = tt.compile(mod)
    assert [operator.kind for operator in exe.report().operators] == ["other"]
    (x,) = net.arrays()
    np.testing.assert_allclose(exe(x), (x.astype("float64") ** 2).sum((1, 2), keepdims=True), rtol=1e-5)
