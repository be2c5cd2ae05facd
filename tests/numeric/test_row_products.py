"""A softmax and the following matrix multiplication in one function: its sums are not row operations of the softmax."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, topi

from tvm_tiling.schedule import llvm_target, this_cpu
from tvm_tiling.schedules.fallback import schedule_fallback


@pytest.mark.parametrize(("rows", "columns", "width"), [(16, 16, 16), (9, 33, 5), (128, 128, 64)])
def test_sums_for_each_column_follow_the_rows_in_a_group_of_their_own(rows, columns, width):
    x, v = te.placeholder((2, rows, columns), name="x"), te.placeholder((2, columns, width), name="v")
    k = te.reduce_axis((0, columns), name="k")
    weights = topi.nn.softmax(x, axis=-1)
    out = te.compute((2, rows, width), lambda b, i, e: te.sum(weights[b, i, k] * v[b, k, e], axis=k), name="out")
    func = schedule_fallback(te.create_prim_func([x, v, out]), "main", this_cpu())
    kernel = tvm.compile(tvm.IRModule({"main": func}), target=llvm_target())["main"]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in ((2, rows, columns), (2, columns, width))]
    result = tvm.runtime.empty((2, rows, width), "float32")
    kernel(*map(tvm.runtime.tensor, arrays), result)
    e = np.exp(arrays[0] - arrays[0].max(axis=-1, keepdims=True))
    np.testing.assert_allclose(result.numpy(), e / e.sum(axis=-1, keepdims=True) @ arrays[1], rtol=1e-5, atol=1e-6)
