"""Values that depend on constants only: which are computed once, and equal results."""

from __future__ import annotations

import numpy as np
import pytest
from networks import Network, default
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, topi

import tvm_tiling as tt
from tvm_tiling.model.passes.constant_parts import with_constant_parts
from tvm_tiling.model.passes.dataflow import array, is_op
from tvm_tiling.model.pipeline import results_of

op = relax.op


def table(net: Network, x):
    """Swin v2: the table of a small network, read at constant positions."""
    hidden = net.emit(op.nn.relu(net.emit(op.matmul(net.c(225, 2), net.c(2, 512)))))
    values = net.emit(op.matmul(hidden, net.c(512, 12)))
    chosen = net.emit(op.take(values, relax.const(net.rng.integers(0, 225, 4096)), axis=0))
    return op.add(x, net.emit(op.multiply(net.emit(op.sigmoid(chosen)), relax.const(16.0, "float32"))))


def weights(net: Network, x):
    """NFNet: kernels normalised before each use."""
    kernels = net.c(96, 48, 9, 9)
    mean = net.emit(op.mean(kernels, [1, 2, 3], keepdims=True))
    deviation = net.emit(op.variance(kernels, [1, 2, 3], keepdims=True))
    return op.nn.conv2d(x, net.emit(op.divide(net.emit(op.subtract(kernels, mean)), deviation)), padding=4)


def parts(net: Network, x):
    """A tuple: the halves of a constant, joined the other way round."""
    halves = net.emit(op.split(net.emit(op.nn.softmax(net.c(600, 500), -1)), 2, 1))
    swapped = net.emit(op.concat([net.emit(relax.TupleGetItem(halves, i)) for i in (1, 0)], 1))
    return op.matmul(x, swapped)


COMPUTED = {"table": (table, (4096, 12)), "weights": (weights, (1, 48, 11, 13)), "tuple": (parts, (7, 600))}


def operators(mod) -> list[str]:
    return [b.value.op.name[6:] for block in mod["main"].body.blocks for b in block.bindings if is_op_call(b.value)]


def is_op_call(value) -> bool:
    return isinstance(value, relax.Call) and hasattr(value.op, "name")


@pytest.mark.parametrize("name", COMPUTED)
def test_a_value_of_constants_is_computed_once(name):
    body, shape = COMPUTED[name]
    net = Network(shape)
    mod = net.module(body)
    after = with_constant_parts(mod, results_of)
    assert len(operators(after)) == 1
    arrays = net.arrays()
    want = default(mod, arrays)
    close = 1e-5 * np.abs(want).max()
    np.testing.assert_allclose(default(after, arrays), want, rtol=0, atol=close)
    np.testing.assert_allclose(tt.compile(mod)(*arrays), want, rtol=0, atol=close)


def broadcast(net: Network, x):
    return op.add(x, net.emit(op.multiply(net.c(1024, 1), net.c(1, 1024))))


def mask(net: Network, x):
    places = net.emit(op.arange(0, 1024, 1, "int64"))
    rows = net.emit(op.expand_dims(places, 1))
    return op.where(net.emit(op.less_equal(net.emit(op.expand_dims(places, 0)), rows)), x, net.c(1, 1))


def stored(net: Network, x):
    held = relax.const(net.rng.integers(-99, 99, (1024, 1024)).astype("int8"))
    scale, zero = relax.const(np.float32(0.1)), relax.const(np.int8(0))
    return op.matmul(x, net.emit(op.dequantize(held, scale, zero)))


def little(net: Network, x):
    return op.matmul(x, net.emit(op.nn.softmax(net.c(1024, 16))))


def too_much(net: Network, x):
    big = net.emit(op.broadcast_to(net.c(1, 1, 1), (1 << 14, 1 << 14, 1)))
    return op.add(x, net.emit(op.sum(net.emit(op.exp(big)))))


@pytest.mark.parametrize("body", [broadcast, mask, stored, little, too_much])
def test_a_value_that_is_faster_to_compute_or_too_large_remains(body):
    mod = Network((1024, 1024)).module(body)
    assert with_constant_parts(mod, lambda _: pytest.fail("computed")) is mod


def test_what_is_broadcast_is_computed_but_not_its_copies():
    def body(net: Network, x):
        row = net.emit(op.nn.softmax(net.emit(op.matmul(net.c(1, 512), net.c(512, 1024)))))
        table = net.emit(op.nn.softmax(net.c(600, 512)))
        return op.multiply(net.emit(op.add(x, net.emit(op.broadcast_to(row, (4096, 1024))))), net.emit(op.sum(table)))

    after = with_constant_parts(Network((4096, 1024)).module(body), results_of)
    assert sorted(operators(after)) == ["add", "broadcast_to", "multiply"]


def test_what_cannot_be_computed_remains():
    mod = Network((4096, 12)).module(table)
    assert with_constant_parts(mod, lambda _: None) is mod


def test_only_values_that_are_read_are_computed():
    """Of a chain, its end."""
    found: list[int] = []

    def compute(mod):
        found.append(len(mod["main"].ret_ty.fields))
        return results_of(mod)

    after = with_constant_parts(Network((4096, 12)).module(table), compute)
    assert found == [1]
    (addition,) = (b.value for block in after["main"].body.blocks for b in block.bindings if is_op(b.value, "add"))
    assert array(addition.args[1]).shape == (4096, 12)


def test_a_computed_position_outside_its_tensor_is_still_refused():
    """The sum of ones is the position 600 of 600."""
    rng = np.random.default_rng(0)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 512))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    constants = {"t": rng.standard_normal((600, 512)).astype("float32"), "ones": np.ones((1, 600), "int64")}
    nodes = [
        helper.make_node("Softmax", ["t"], ["s"]),
        helper.make_node("ReduceSum", ["ones"], ["place"], keepdims=0),
        helper.make_node("Gather", ["s", "place"], ["row"], axis=0),
        helper.make_node("Add", ["x", "row"], ["y"]),
    ]
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "outside", [x], [y], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with pytest.raises((tt.TilingError, ValueError), match="600"):
        tt.compile(model).run(np.zeros((1, 512), "float32"))


@pytest.mark.parametrize(("function", "computed"), [(topi.transpose, True), (lambda data: topi.sum(data, 1), False)])
def test_a_function_of_a_frontend_is_computed_unless_it_sums(function, computed):
    def body(net: Network, x):
        return op.add(net.emit(op.sum(x)), net.emit(net.builder.call_te(function, net.c(1024, 600))))

    after = with_constant_parts(Network((3, 5)).module(body), results_of)
    assert ("call_tir" not in operators(after)) == computed
