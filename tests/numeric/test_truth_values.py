"""Booleans compared, added and reduced, which TVM's code generator alone cannot do, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

import tvm_tiling as tt
from tvm_tiling.schedule import this_cpu
from tvm_tiling.schedules.fallback import schedule_fallback

PAIRS = {
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.Add: np.add,
    tirx.Mul: np.multiply,
    tirx.Max: np.maximum,
    tirx.Min: np.minimum,
}


def some(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(0, 2, shape).astype(bool)


def results(tensors: list[te.Tensor], arrays: list[np.ndarray]) -> np.ndarray:
    """Return the last of `tensors`, scheduled here, for inputs that are the others."""
    func = schedule_fallback(te.create_prim_func(tensors), "main", this_cpu())
    out = tvm.runtime.empty([int(s) for s in tensors[-1].shape], str(tensors[-1].dtype))
    built = tvm.compile(tvm.IRModule({"main": func}), target=tt.llvm_target())
    built["main"](*(tvm.runtime.tensor(array) for array in arrays), out)
    return out.numpy()


@pytest.mark.parametrize("kind", PAIRS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("size", [1, 7, 67])
def test_pairs(kind, size):
    a, b = (te.placeholder((size, 3), "bool", name) for name in "ab")
    out = te.compute((size, 3), lambda i, j: kind(a[i, j], b[i, 2 - j]), "out")
    left, right = some(size, 3), ~some(3, size).T.copy()
    np.testing.assert_array_equal(results([a, b, out], [left, right]), PAIRS[kind](left, right[:, ::-1]))


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("kind", ["any", "all"])
def test_reductions(rows, kind):
    a = te.placeholder((rows, 19), "bool", "a")
    k = te.reduce_axis((0, 19), "k")
    pair = tirx.Max if kind == "any" else tirx.Min
    reducer = te.comm_reducer(lambda x, y: pair(x, y), lambda of: tirx.const(kind == "all", of))
    array = some(rows, 19)
    array[0] = False
    array[-1] = True
    out = te.compute((rows,), lambda i: reducer(a[i, k], axis=k), "out")
    np.testing.assert_array_equal(results([a, out], [array]), getattr(np, kind)(array, axis=1))


def test_a_mask_of_rows_that_belong_together():
    """As a Whisper decoder makes one: rows and columns of one part, without columns after the row."""
    builder = relax.BlockBuilder()
    op = relax.op
    part, rows = relax.Var("part", relax.TensorType((7,), "bool")), relax.Var("rows", relax.TensorType((7,), "int64"))
    scores = relax.Var("scores", relax.TensorType((2, 7, 7), "float32"))
    with builder.function("main", [part, rows, scores]):
        with builder.dataflow():
            same = op.equal(op.reshape(part, (7, 1)), op.reshape(part, (1, 7)))
            before = op.less_equal(op.reshape(rows, (1, 7)), op.reshape(rows, (7, 1)))
            mask = op.where(op.bitwise_and(same, before), relax.const(0.0), relax.const(-1e9))
            out = builder.emit_output(op.add(scores, mask))
        builder.emit_func_output(out)
    p, r, s = some(7), np.arange(7), np.random.default_rng(0).standard_normal((2, 7, 7)).astype("float32")
    want = s + np.where((p[:, None] == p) & (r <= r[:, None]), np.float32(0), np.float32(-1e9))
    np.testing.assert_array_equal(tt.compile(builder.finalize(), cache=False).run(p, r, s), want)


def test_after_a_gemm():
    a, b = te.placeholder((9, 5), name="a"), te.placeholder((5, 18), name="b")
    mask = te.placeholder((9, 18), "bool", "mask")
    k = te.reduce_axis((0, 5), "k")
    c = te.compute((9, 18), lambda i, j: te.sum(a[i, k] * b[k, j], k), "c")
    out = te.compute((9, 18), lambda i, j: tirx.EQ(c[i, j] > tirx.const(0.0, "float32"), mask[i, j]), "out")
    rng = np.random.default_rng(1)
    left, right = (rng.standard_normal(shape).astype("float32") for shape in ((9, 5), (5, 18)))
    found = tvm.runtime.empty((9, 18), "bool")
    built = tvm.compile(tt.tiling_schedule(te.create_prim_func([a, b, mask, out])).mod, target=tt.llvm_target())
    built["main"](*(tvm.runtime.tensor(array) for array in (left, right, some(9, 18))), found)
    np.testing.assert_array_equal(found.numpy(), (left @ right > 0) == some(9, 18))
