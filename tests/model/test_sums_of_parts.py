"""Convolutions of concatenated tensors as sums of convolutions: where they are taken, and equal results."""

from __future__ import annotations

import numpy as np
import pytest
from networks import Network, default
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.model.passes.dataflow import is_op
from tvm_tiling.model.passes.sums_of_parts import with_sums_of_parts

op = relax.op


def fire(net: Network, x, *, pooled: bool = False, outputs: int = 8, kernel: int = 1, shared: bool = False):
    """A block of SqueezeNet: two convolutions, concatenated, and the next block's narrow one."""
    left = net.emit(op.nn.relu(net.emit(op.nn.conv2d(x, net.c(12, 6, 1, 1)))))
    right = net.emit(op.nn.relu(net.emit(op.nn.conv2d(x, net.c(20, 6, 3, 3), padding=1))))
    both = net.emit(op.concat([left, right], axis=1))
    y = net.emit(op.nn.max_pool2d(both, (3, 3), (2, 2), ceil_mode=True)) if pooled else both
    y = net.emit(op.nn.conv2d(y, net.c(outputs, 32, kernel, kernel)))
    y = net.emit(op.nn.relu(net.emit(op.add(y, net.c(outputs, 1, 1)))))
    return relax.Tuple([y, both]) if shared else y


def names(mod) -> list[str]:
    values = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    return [v.op.name[6:] for v in values if is_op(v, "concat", "nn.conv2d", "nn.max_pool2d", "nn.avg_pool2d")]


@pytest.mark.parametrize("pooled", [False, True])
def test_a_narrow_convolution_reads_both_tensors(pooled):
    net = Network((1, 6, 10, 11))
    mod = net.module(lambda net, x: fire(net, x, pooled=pooled))
    after = with_sums_of_parts(mod)
    assert names(after).count("concat") == 0 and names(after).count("nn.conv2d") == 4
    assert names(after).count("nn.max_pool2d") == 2 * pooled
    arrays = net.arrays()
    want = default(mod, arrays)
    np.testing.assert_allclose(default(after, arrays), want, rtol=1e-4, atol=1e-5)
    exe = tt.compile(mod)
    np.testing.assert_allclose(exe(*arrays), want, rtol=1e-4, atol=1e-5)
    assert not any("concat" in operator.name for operator in exe.report().operators)


@pytest.mark.parametrize("case", [{"outputs": 17}, {"kernel": 3}, {"shared": True}], ids=str)
def test_other_concatenations_stay(case):
    net = Network((1, 6, 10, 11))
    mod = net.module(lambda net, x: fire(net, x, **case))
    assert with_sums_of_parts(mod) is mod
