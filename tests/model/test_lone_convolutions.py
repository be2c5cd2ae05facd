"""Convolutions that stand alone in a model: the order of their axes is decided, and results are those of TVM."""

from __future__ import annotations

import numpy as np
import pytest
from networks import Network, default
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.decide.conv.axis_order import decide_axis_order
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.model.passes.lone import with_channels_first
from tvm_tiling.schedule import Options
from tvm_tiling.workload import ConvWorkload

op = relax.op
CPU = Hardware.load("icelake-server-2c")
POINTWISE = ConvWorkload(n=1, h=56, w=56, ci=96, co=24, kh=1, kw=1, layout="NCHW")
DEPTHWISE = ConvWorkload(n=1, h=28, w=28, ci=116, co=116, kh=3, kw=3, padding=1, groups=116, layout="NCHW")
DEEP = ConvWorkload(n=1, h=7, w=7, ci=512, co=512, kh=3, kw=3, padding=1, layout="NCHW")


@pytest.mark.parametrize(("workload", "layout"), [(POINTWISE, "NCHW"), (DEPTHWISE, "NCHW"), (DEEP, "NHWC")])
def test_the_order_is_the_one_that_is_predicted_to_be_faster(workload, layout):
    order = decide_axis_order(workload, CPU)
    assert order.layout == layout
    first_is_faster = order.first_seconds <= order.last_seconds + order.turning_seconds
    assert (layout == "NCHW") == first_is_faster and "transposing input and output" in order.why


def alone(net, x):
    return op.nn.relu(net.emit(op.add(net.emit(op.nn.conv2d(x, net.c(24, 96, 1, 1))), net.c(1, 24, 1, 1))))


def followed(net, x):
    return op.nn.conv2d(net.emit(op.nn.relu(net.emit(op.nn.conv2d(x, net.c(24, 96, 1, 1))))), net.c(8, 24, 1, 1))


@pytest.mark.parametrize(("body", "count"), [(alone, 1), (followed, 0)])
def test_only_convolutions_between_borders_keep_channels_first(body, count):
    mod = Network((1, 96, 56, 56)).module(body)
    assert len(with_channels_first(mod, CPU, Options())) == count


CASES = {
    "pointwise": ((2, 40, 9, 11), (24, 40, 1, 1), {}),
    "grouped": ((2, 16, 23, 37), (24, 4, 3, 3), {"groups": 4, "padding": [1, 0, 2, 1]}),
    "depthwise": ((1, 20, 19, 21), (20, 1, 3, 3), {"groups": 20, "padding": 1, "strides": 2}),
    "few outputs": ((1, 24, 33, 35), (3, 24, 3, 3), {"padding": 1}),
}


@pytest.mark.parametrize("case", CASES)
def test_numbers_are_those_of_tvm_with_bias_and_activation(case):
    shape, kernels, attributes = CASES[case]
    net = Network(shape)

    def body(net, x):
        y = net.emit(op.nn.conv2d(x, net.c(*kernels), **attributes))
        return op.nn.relu(net.emit(op.add(y, net.c(1, kernels[0], 1, 1))))

    mod = net.module(body)
    exe = tt.compile(mod, cache=False)
    operators = exe.report().operators
    if with_channels_first(mod, tt.Hardware.detect(), Options()):
        (operator,) = operators  # nothing is transposed, and bias and activation are the epilogue
        assert operator.kind == "convolution"
        assert "layout" in {name for name, *_ in operator.decision["reasons"]}
    arrays = net.arrays()
    np.testing.assert_allclose(exe.run(*arrays), default(mod, arrays), rtol=1e-4, atol=1e-4)
