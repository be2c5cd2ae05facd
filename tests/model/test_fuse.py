"""Operators after a matrix multiplication that are not part of its epilogue: of another number of elements, or too
many."""

from __future__ import annotations

import numpy as np
import pytest
from networks import Network
from tvm import relax, te

import tvm_tiling as tt
from tvm_tiling.errors import UnsupportedOperator

op = relax.op
GREATER = np.random.default_rng(1).uniform(-1, 1, (3, 6, 5)).astype("float32")

# Columns of the GEMM with 6 rows; the following operators, in Relax and in NumPy.
RESIZED = {
    "rows behind": (5, lambda e: op.nn.pad(e, [0, 2, 0, 0]), lambda r: np.pad(r, [(0, 2), (0, 0)])),
    "columns behind": (5, lambda e: op.nn.pad(e, [0, 0, 0, 1]), lambda r: np.pad(r, [(0, 0), (0, 1)])),
    "columns behind one": (1, lambda e: op.nn.pad(e, [0, 0, 0, 1]), lambda r: np.pad(r, [(0, 0), (0, 1)])),
    "first rows": (5, lambda e: op.strided_slice(e, [0], [0], [4]), lambda r: r[:4]),
    "first columns": (5, lambda e: op.strided_slice(e, [1], [0], [3]), lambda r: r[:, :3]),
    "first column": (5, lambda e: op.strided_slice(e, [1], [0], [1]), lambda r: r[:, :1]),
    "repeated columns": (1, lambda e: op.add(e, relax.const(GREATER[0])), lambda r: r + GREATER[0]),
    "repeated product": (5, lambda e: op.add(e, relax.const(GREATER)), lambda r: r + GREATER),
}


@pytest.mark.values
@pytest.mark.parametrize("kind", RESIZED)
@pytest.mark.parametrize("between", [False, True], ids=["at once", "behind relu"])
def test_what_resizes_a_gemm_is_a_kernel_of_its_own(kind, between):
    columns, resize, by_numpy = RESIZED[kind]
    net = Network((6, 7))
    weights = net.rng.uniform(-1, 1, (7, columns)).astype("float32")

    def body(net, x):
        product = net.emit(op.matmul(x, relax.const(weights)))
        product = net.emit(op.nn.relu(product)) if between else product
        return op.add(net.emit(resize(product)), relax.const(0.5, "float32"))

    exe = tt.compile(net.module(body), cache=False)
    (x,) = net.arrays()
    product = x.astype(np.float64) @ weights
    want = by_numpy(np.maximum(product, 0) if between else product) + 0.5
    np.testing.assert_allclose(exe.run(x), want, rtol=0, atol=1e-6)
    decisions = [operator.decision for operator in exe.report().operators]
    assert len(decisions) == 2 and sum(bool(decision) for decision in decisions) == 1


def test_a_convolutions_border_is_not_part_of_its_write_back():
    net = Network((1, 4, 6, 6))
    weights = net.c(5, 4, 3, 3)

    def body(net, x):
        return op.nn.pad(net.emit(op.nn.conv2d(x, weights)), [0, 0, 0, 0, 0, 1, 0, 1])

    exe = tt.compile(net.module(body), cache=False)
    (x,) = net.arrays()
    result = exe.run(x)
    assert result.shape == (1, 5, 5, 5) and not result[..., -1].any() and not result[:, :, -1].any()
    assert result[:, :, :4, :4].all()


@pytest.mark.parametrize("columns", [4, 8, 1], ids=["fewer", "more", "one"])
def test_a_block_that_writes_more_or_less_than_the_sums_is_refused(columns):
    a, b, k = te.placeholder((6, 7), name="A"), te.placeholder((7, 5), name="B"), te.reduce_axis((0, 7))
    sums = te.compute((6, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="sums")
    last = te.compute((6, columns), lambda i, j: te.if_then_else(j < 5, sums[i, j], 0.0), name="last")
    with pytest.raises(
        UnsupportedOperator, match=f"'last' after the sum of products writes {columns} elements for 5 of its sums"
    ):
        tt.tiling_schedule(te.create_prim_func([a, b, last]))


def test_a_chain_that_would_double_at_every_link_is_not_part_of_a_write_back():
    # In one expression, 8 links read 256 elements for each element of the result.
    net = Network((6, 7), (6, 5))
    weights = net.rng.uniform(-1, 1, (7, 5)).astype("float32")

    def body(net, x, y):
        product = net.emit(op.sigmoid(net.emit(op.matmul(x, relax.const(weights)))))
        for _ in range(8):
            y = net.emit(op.maximum(net.emit(op.multiply(y, relax.const(0.5, "float32"))), net.emit(op.negative(y))))
        return op.multiply(product, y)

    exe = tt.compile(net.module(body), cache=False)
    x, y = net.arrays()
    want = 1 / (1 + np.exp(-(x.astype(np.float64) @ weights)))
    chain = y
    for _ in range(8):
        chain = np.maximum(chain * 0.5, -chain)
    np.testing.assert_allclose(exe.run(x, y), want * chain, rtol=1e-5, atol=0)
    decisions = [operator.decision for operator in exe.report().operators]
    assert len(decisions) > 1 and sum(bool(decision) for decision in decisions) == 1
