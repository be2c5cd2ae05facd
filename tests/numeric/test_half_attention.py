"""Attention with 16-bit matrix multiplications, softmax and sums in float32: one kernel, compared with NumPy on the
same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import tvm_tiling as tt
from tvm_tiling.hardware.dot_instructions import DOT_INSTRUCTIONS
from tvm_tiling.runtime.arrays import numpy_type

SHAPES = [(2, 16, 16, 32, 16), (3, 33, 35, 16, 7), (1, 70, 129, 7, 64), (2, 5, 9, 5, 5)]


def attention(dtype, heads, rows, keys, depth, width, mask):
    """q k^T, scaled and masked in float32, a softmax, and its rounded result times v."""
    builder = relax.BlockBuilder()
    shapes = ((heads, rows, depth), (heads, keys, depth), (heads, keys, width))
    q, k, v = (relax.Var(name, relax.TensorType(shape, dtype)) for name, shape in zip("qkv", shapes, strict=True))
    with builder.function("main", [q, k, v]):
        with builder.dataflow():
            scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, (0, 2, 1))), out_dtype="float32"))
            scores = builder.emit(op.add(builder.emit(op.multiply(scores, relax.const(np.float32(0.3)))), mask))
            weights = builder.emit(op.astype(builder.emit(op.nn.softmax(scores)), dtype))
            output = builder.emit_output(op.matmul(weights, v, out_dtype="float32"))
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.values
@pytest.mark.parametrize("dots", [True, False])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_kernel_rounds_what_the_model_rounds(monkeypatch, shape, dtype, dots):
    """`dots`: with the instructions of this CPU; else by float32 multiply-adds alone."""
    if not dots:
        rows = [row for row in DOT_INSTRUCTIONS if row.in_place]
        monkeypatch.setattr("tvm_tiling.hardware.dot_instructions.DOT_INSTRUCTIONS", rows)
    heads, rows, keys, depth, width = shape
    rng = np.random.default_rng(3)
    kind = numpy_type(dtype)
    sizes = (heads, rows, depth), (heads, keys, depth), (heads, keys, width)
    q, k, v = (rng.standard_normal(size).astype(kind) for size in sizes)
    hidden = np.where(rng.random((rows, keys)) < 0.2, -np.inf, 0).astype(np.float32)
    hidden[:, 0] = 0
    executable = tt.compile(attention(dtype, *shape, relax.const(hidden)), cache=False)
    assert [o.kind for o in executable.operators] == ["attention"]
    scores = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * np.float64(np.float32(0.3)) + hidden
    exact = np.exp(scores - scores.max(-1, keepdims=True))
    weights = (exact / exact.sum(-1, keepdims=True)).astype(np.float32).astype(kind).astype(np.float64)
    right = weights @ v.astype(np.float64)
    # A weight next to a rounding boundary may be rounded to its other neighbour.
    step = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    assert np.abs(executable.run(q, k, v) - right).max() <= step * np.abs(right).max()
    assert np.mean(np.abs(executable.run(q, k, v) - right) <= 1e-5 * np.abs(right).max()) > 0.9


def test_a_row_that_is_not_a_number_stays_in_its_row():
    q, k, v = (np.ones((1, 9, 5)).astype(numpy_type("bfloat16")) for _ in range(3))
    q[0, 4, 2] = np.nan
    mask = relax.const(np.zeros((9, 9), np.float32))
    found = tt.compile(attention("bfloat16", 1, 9, 9, 5, 5, mask), cache=False).run(q, k, v)
    assert np.isnan(found[0, 4]).all() and np.isfinite(np.delete(found[0], 4, axis=0)).all()
