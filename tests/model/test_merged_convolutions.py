"""Sums of convolutions of one tensor: where they become one convolution, and equal results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Network, default
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.model.passes.dataflow import is_op
from tvm_tiling.model.passes.merged_convolutions import with_merged_convolutions

op = relax.op


def conv(net: Network, x, kernel=(3, 3), channels=6, groups=1, **options):
    pad = options.pop("padding", tuple(k // 2 for k in kernel))
    weights = net.c(channels, 6 // groups, *kernel)
    return net.emit(op.nn.conv2d(x, weights, padding=pad, groups=groups, **options))


def scaled(net: Network, x):
    """A batch norm at inference, as it is after constants have been folded."""
    return net.emit(op.add(net.emit(op.multiply(x, net.c(6, 1, 1))), net.c(1, 6, 1, 1)))


def shared(net: Network, x):
    y = conv(net, x)
    return op.multiply(net.emit(op.add(y, conv(net, x, (1, 1)))), y)


def vast(net: Network, x):
    weights = relax.const(np.full((6, 6, 3, 3), 3e38, "float32"))
    y = net.emit(op.nn.conv2d(x, weights, padding=1))
    return op.add(y, net.emit(op.nn.conv2d(x, weights, padding=1)))


def repvgg(net: Network, x):
    y = net.emit(op.add(conv(net, x, (1, 1)), net.c(1, 6, 1, 1)))
    z = net.emit(op.add(net.emit(op.add(conv(net, x), net.c(6, 1, 1))), y))
    return op.nn.relu(net.emit(op.add(z, scaled(net, x))))


def fastvit(net: Network, x):
    mixed = net.emit(op.subtract(net.emit(op.add(conv(net, x, groups=6), conv(net, x, groups=6))), scaled(net, x)))
    return op.add(x, net.emit(op.multiply(net.c(6, 1, 1), mixed)))


SUMS = {
    "RepVGG": repvgg,
    "FastViT": fastvit,
    "sizes": lambda net, x: op.add(conv(net, x, (1, 3)), conv(net, x, (5, 3))),
    "strides": lambda net, x: op.add(conv(net, x, (1, 1), strides=2), conv(net, x, strides=2)),
    "dilation": lambda net, x: op.add(conv(net, x, (1, 1)), conv(net, x, padding=2, dilation=2)),
    "unpadded": lambda net, x: op.subtract(conv(net, x, padding=(0, 0)), conv(net, x, (1, 1), padding=(-1, -1))),
    "groups": lambda net, x: op.add(net.emit(op.subtract(x, conv(net, x, groups=2))), conv(net, x, (1, 1), groups=2)),
    "twice": lambda net, x: op.add(y := conv(net, x), y),
}
OTHERS = {
    "neither kernel in the other": lambda net, x: op.add(conv(net, x, (1, 3)), conv(net, x, (3, 1))),
    "other strides": lambda net, x: op.add(
        conv(net, x, (1, 1), strides=2), conv(net, x, (3, 3), padding=(1, 1, 5, 6), strides=3)
    ),
    "other pixels": lambda net, x: op.add(
        conv(net, x, padding=(1, 1, 1, 1)), conv(net, x, (1, 1), padding=(2, 0, -2, 0))
    ),
    "other groups": lambda net, x: op.add(conv(net, x, groups=2), conv(net, x)),
    "other dilation": lambda net, x: op.add(conv(net, x), conv(net, x, padding=2, dilation=2)),
    "other tensors": lambda net, x: op.add(conv(net, x), conv(net, net.emit(op.nn.relu(x)))),
    "a constant along pixels": lambda net, x: op.add(
        conv(net, x), net.emit(op.multiply(conv(net, x), net.c(1, 1, 9, 11)))
    ),
    "a strided tensor": lambda net, x: op.add(conv(net, x, padding=(5, 6), strides=2), x),
    "read twice": shared,
    "beyond float32": vast,
    "one convolution": lambda net, x: op.add(conv(net, x), net.c(6, 1, 1)),
}


def convolutions(mod) -> int:
    return sum(is_op(b.value, "nn.conv2d") for block in mod["main"].body.blocks for b in block.bindings)


@pytest.mark.parametrize("name", SUMS)
def test_one_convolution_computes_a_sum(name):
    net = Network((2, 6, 9, 11))
    mod = net.module(SUMS[name])
    after = with_merged_convolutions(mod)
    assert convolutions(after) == 1
    arrays = net.arrays()
    want = default(mod, arrays)
    np.testing.assert_allclose(default(after, arrays), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(tt.compile(mod)(*arrays), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OTHERS)
def test_other_sums_stay(name):
    mod = Network((2, 6, 9, 11)).module(OTHERS[name])
    assert with_merged_convolutions(mod) is mod


def test_a_sum_within_a_sum_of_other_tensors():
    net = Network((1, 6, 9, 11))
    mod = net.module(
        lambda net, x: op.add(conv(net, net.emit(op.nn.relu(x))), net.emit(op.add(conv(net, x), conv(net, x, (1, 1)))))
    )
    assert convolutions(with_merged_convolutions(mod)) == 2


def test_a_long_sum_is_merged_in_parts():
    def body(net, x):
        y = conv(net, x, (1, 1))
        for _ in range(1200):
            y = net.emit(op.add(y, net.c(6, 1, 1)))
        return op.add(y, x)

    mod = Network((1, 6, 3, 3)).module(body)
    assert with_merged_convolutions(mod) is mod


def test_the_operator_has_the_names_of_all_branches():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 6, 8, 8))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((6, 6, k, k)).astype("float32") for k in (3, 1)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4, name="wide"),
        helper.make_node("Conv", ["x", "w1"], ["b"], name="narrow"),
        helper.make_node("Add", ["a", "b"], ["y"], name="total"),
    ]
    initializers = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "sum", [x], [y], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    exe = tt.compile(model)
    (operator,) = (o for o in exe.report().operators if "conv" in o.name)
    assert {"wide", "narrow", "total"} <= set(operator.nodes)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_branches_are_those_of_the_standard(data):
    """Convolutions of one to three axes with any kernels, strides and groups, beside ONNX's reference."""
    axes, stride, groups = (
        data.draw(st.integers(1, 3)),
        data.draw(st.integers(1, 2)),
        data.draw(st.sampled_from([1, 2, 4])),
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    shape = (1, 4, *(data.draw(st.integers(3, 7)) for _ in range(axes)))
    nodes, constants, branches = [], [], []
    for place in range(data.draw(st.integers(2, 4))):
        sizes = [data.draw(st.sampled_from([1, 3])) for _ in range(axes)]
        dilation = data.draw(st.sampled_from([1, 1, 2]))
        constants.append(
            numpy_helper.from_array(rng.uniform(-1, 1, (4, 4 // groups, *sizes)).astype("float32"), f"w{place}")
        )
        pads = [dilation * (k // 2) for k in sizes] * 2
        attributes = {"strides": [stride] * axes, "group": groups, "pads": pads, "dilations": [dilation] * axes}
        nodes.append(helper.make_node("Conv", ["x", f"w{place}"], [f"b{place}"], **attributes))
        branches.append(f"b{place}")
    if stride == 1 and data.draw(st.booleans()):
        branches.insert(data.draw(st.integers(0, len(branches))), "x")
    last = branches[0]
    for place, branch in enumerate(branches[1:]):
        nodes.append(helper.make_node(data.draw(st.sampled_from(["Add", "Sub"])), [last, branch], [f"s{place}"]))
        last = f"s{place}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info(last, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "sum", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    value = rng.uniform(-1, 1, shape).astype("float32")
    (want,) = ReferenceEvaluator(model).run(None, {"x": value})
    np.testing.assert_allclose(tt.compile(model, cache=False).run(value), want, rtol=1e-4, atol=1e-4)
