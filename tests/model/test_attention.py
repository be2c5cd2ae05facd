"""Attention as one kernel: recognised in all notations, equal to NumPy, and not applied to anything else."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm
from networks import Network
from tvm import relax, tirx

from tvm_tiling.lowering.prim_func import DECISION
from tvm_tiling.model.pipeline import lower
from tvm_tiling.schedule import llvm_target, this_cpu

op = relax.op


def run(net: Network, body, arrays: list[np.ndarray]) -> tuple[np.ndarray, list[str]]:
    """Return the result of a network on these arrays, and the kinds of operators in the decisions."""
    scheduled, _ = lower(net.module(body), this_cpu())
    decisions = [f.attrs.get(DECISION) for f in scheduled.functions.values() if isinstance(f, tirx.PrimFunc)]
    machine = relax.VirtualMachine(relax.build(scheduled, target=llvm_target()), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(a) for a in arrays)).numpy()
    return result, [json.loads(str(d))["op"] for d in decisions if d]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# batch, queries, keys, depth, width
SHAPES = [
    ((2, 3), 17, 17, 8, 8),
    ((4,), 64, 64, 32, 32),
    ((1, 2), 5, 33, 7, 19),
    ((3,), 70, 9, 16, 1),
    ((1,), 300, 130, 64, 48),
    ((2,), 4, 257, 3, 70),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_numpy_at_awkward_sizes(shape):
    batch, rows, keys, depth, width = shape
    net = Network((*batch, rows, depth), (*batch, keys, depth), (*batch, keys, width))

    def body(net, q, k, v):
        axes = [*range(len(batch)), len(batch) + 1, len(batch)]
        scores = net.emit(op.matmul(q, net.emit(op.permute_dims(k, axes))))
        scaled = net.emit(op.multiply(scores, relax.const(3.0, "float32")))
        return op.matmul(net.emit(op.nn.softmax(scaled, axis=-1)), v)

    q, k, v = arrays = net.arrays()
    result, kinds = run(net, body, arrays)
    np.testing.assert_allclose(result, softmax(3 * q @ np.swapaxes(k, -1, -2)) @ v, rtol=2e-5, atol=1e-5)
    # A single column of values is a matrix-vector multiplication, which has no register tile.
    assert kinds == ["attention"] if width > 1 else "attention" not in kinds


def test_reads_parts_of_a_projection_and_writes_rows_of_heads():
    tokens, heads, depth = 37, 3, 16
    net = Network((tokens, 3 * heads * depth))

    def body(net, x):
        y = net.emit(op.permute_dims(net.emit(op.reshape(x, (tokens, 3, heads, depth))), (1, 2, 0, 3)))
        q, k, v = (net.emit(op.take(y, relax.const(place, "int64"), axis=0)) for place in range(3))
        scores = net.emit(op.matmul(q, net.emit(op.permute_dims(k, (0, 2, 1)))))
        result = net.emit(op.matmul(net.emit(op.nn.softmax(scores)), v))
        return op.reshape(net.emit(op.permute_dims(result, (1, 0, 2))), (tokens, heads * depth))

    (x,) = arrays = net.arrays()
    q, k, v = x.reshape(tokens, 3, heads, depth).transpose(1, 2, 0, 3)
    wanted = (softmax(q @ k.transpose(0, 2, 1)) @ v).transpose(1, 0, 2).reshape(tokens, -1)
    result, kinds = run(net, body, arrays)
    np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=1e-5)
    # Nothing is copied before or after the kernel.
    assert kinds == ["attention"]


@pytest.mark.parametrize("mask", [(1, 1, 21), (1, 21, 21), (4, 21, 21), (4, 1, 21)], ids=str)
def test_masks_are_part_of_the_kernel(mask):
    net = Network((4, 21, 8), mask)

    def body(net, q, given):
        scores = net.emit(op.matmul(q, net.emit(op.permute_dims(q, (0, 2, 1)))))
        allowed = net.emit(op.greater(given, relax.const(-0.5, "float32")))
        masked = net.emit(op.where(allowed, scores, relax.const(-1e9, "float32")))
        return op.matmul(net.emit(op.nn.softmax(masked)), q)

    q, given = arrays = net.arrays()
    wanted = softmax(np.where(given > -0.5, q @ q.transpose(0, 2, 1), -1e9)) @ q
    result, kinds = run(net, body, arrays)
    np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=1e-5)
    assert "attention" in kinds


HEADS = np.float32([[[1]], [[2]], [[4]]])


def divided(divisor):
    return lambda net, x: net.emit(op.divide(x, relax.const(divisor, "float32")))


def capped(net, scores):
    tanh = net.emit(op.tanh(net.emit(op.divide(scores, relax.const(3.0, "float32")))))
    return net.emit(op.multiply(tanh, relax.const(3.0, "float32")))


@pytest.mark.parametrize(
    ("queries", "scores", "reference"),
    [
        (None, divided(3.0), lambda s: s / 3),
        (divided(3.0), None, lambda s: s / 3),
        (None, divided(HEADS), lambda s: s / HEADS),
        (None, capped, lambda s: 3 * np.tanh(s / 3)),
    ],
    ids=["divided scores", "divided queries", "divided by head", "capped"],
)
@pytest.mark.parametrize("keys", [16, 41])
def test_scales_and_caps_are_part_of_the_kernel(queries, scores, reference, keys):
    net = Network((3, 19, 8), (3, keys, 8))

    def body(net, q, k):
        turned = net.emit(op.permute_dims(k, (0, 2, 1)))
        product = net.emit(op.matmul(q if queries is None else queries(net, q), turned))
        return op.matmul(net.emit(op.nn.softmax(product if scores is None else scores(net, product))), k)

    q, k = arrays = net.arrays()
    result, kinds = run(net, body, arrays)
    np.testing.assert_allclose(result, softmax(reference(q @ k.transpose(0, 2, 1))) @ k, rtol=2e-5, atol=1e-5)
    assert kinds == ["attention"]


def test_a_constant_mask_is_an_operand_of_the_kernel():
    net = Network((2, 20, 8))

    def body(net, q):
        scores = net.emit(op.matmul(q, net.emit(op.permute_dims(q, (0, 2, 1)))))
        causal = np.where(np.tri(20, dtype=bool), 0, -np.inf).astype("float32")
        masked = net.emit(op.add(scores, relax.const(causal)))
        return op.matmul(net.emit(op.nn.softmax(masked)), q)

    (q,) = arrays = net.arrays()
    result, kinds = run(net, body, arrays)
    masked = np.where(np.tri(20, dtype=bool), q @ q.transpose(0, 2, 1), -np.inf)
    np.testing.assert_allclose(result, softmax(masked) @ q, rtol=2e-5, atol=1e-5)
    assert kinds == ["attention"]


def test_scores_that_are_read_elsewhere_are_no_attention():
    net = Network((2, 16, 8))

    def body(net, q):
        scores = net.emit(op.matmul(q, net.emit(op.permute_dims(q, (0, 2, 1)))))
        weighted = net.emit(op.matmul(net.emit(op.nn.softmax(scores)), q))
        return op.concat([weighted, scores], axis=2)

    (q,) = arrays = net.arrays()
    scores = q @ q.transpose(0, 2, 1)
    result, kinds = run(net, body, arrays)
    np.testing.assert_allclose(result, np.concatenate([softmax(scores) @ q, scores], axis=2), rtol=2e-5, atol=1e-5)
    assert "attention" not in kinds
