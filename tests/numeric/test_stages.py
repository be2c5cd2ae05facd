"""Functions whose conversions, conditions or booleans TVM's simplifier or code generator fails on."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import tvm_tiling as tt
from tvm_tiling.schedule import this_cpu
from tvm_tiling.schedules.fallback import schedule_fallback


def result(tensors: list[te.Tensor], *arrays: np.ndarray) -> np.ndarray:
    """Return the last of `tensors`, scheduled here, for inputs that are the others."""
    func = schedule_fallback(te.create_prim_func(tensors), "main", this_cpu())
    out = tvm.runtime.empty([int(s) for s in tensors[-1].shape], str(tensors[-1].dtype))
    built = tvm.compile(tvm.IRModule({"main": func}), target=tt.llvm_target())
    built["main"](*(tvm.runtime.tensor(array) for array in arrays), out)
    return out.numpy()


@pytest.mark.parametrize("size", [11, 16, 37])
def test_a_sum_of_everything_leaves_out_what_its_condition_does(size):
    a = te.placeholder((size,), "float32", "a")
    k = te.reduce_axis((0, size), "k")
    inside = tirx.all(k.var >= 4, k.var < size - 1)
    out = te.compute((), lambda: te.sum(tirx.if_then_else(inside, a[k], tirx.const(0.0, "float32")), k), "out")
    array = np.arange(1, size + 1, dtype="float32")
    np.testing.assert_array_equal(result([a, out], array), array[4:-1].sum())


def test_a_sum_of_rows_leaves_out_what_its_condition_does_after_another_sum():
    """Both are vectorised along the axis that the first one sums."""
    a, b = (te.placeholder((5, 24), "float32", name) for name in "ab")
    k, j = te.reduce_axis((0, 24), "k"), te.reduce_axis((0, 24), "j")
    whole = te.compute((5,), lambda i: te.sum(a[i, k], k), "whole")
    part = tirx.if_then_else(j.var < 7, b[0, j], tirx.const(0.0, "float32"))
    out = te.compute((5,), lambda i: te.sum(part * whole[i], j), "out")
    left, right = (np.arange(120, dtype="float32").reshape(5, 24) % m for m in (7, 5))
    np.testing.assert_array_equal(result([a, b, out], left, right), left.sum(1) * right[0, :7].sum())


@pytest.mark.parametrize("low", [0, -3])
@pytest.mark.parametrize("kind", ["uint8", "uint32", "int8", "bool"])
def test_conversions_of_what_turns_out_to_be_a_constant(kind, low):
    """Vectors end after the last element but one, whose condition then is known to be false."""
    a = te.placeholder((17,), "int32", "a")

    def value(i: tirx.Expr) -> tirx.Expr:
        converted = tirx.Cast(kind, tirx.if_then_else(i < 16, a[i], tirx.const(low, "int32")))
        return converted if kind == "bool" else tirx.Max(converted, tirx.const(1, kind))

    out = te.compute((17,), value, "out")
    array = np.arange(-8, 9, dtype="int32")
    want = np.append(array[:16], low).astype(kind)
    np.testing.assert_array_equal(result([a, out], array), want if kind == "bool" else np.maximum(want, 1))


@pytest.mark.parametrize("low", [0, -3])
@pytest.mark.parametrize("kind", ["uint8", "uint32", "int8", "bool"])
def test_sums_of_conversions_of_what_turns_out_to_be_a_constant(kind, low):
    """The element after the last whole vector is added separately."""
    a, k = te.placeholder((17,), "int64", "a"), te.reduce_axis((0, 17), "k")
    converted = tirx.Cast(kind, tirx.if_then_else(k.var < 16, a[k], tirx.const(low, "int64")))
    term = tirx.Cast("float32", tirx.Max(tirx.Cast("int32", converted), tirx.const(1, "int32")))
    out = te.compute((), lambda: te.sum(term, k), "out")
    array = np.arange(-8, 9, dtype="int64")
    want = np.maximum(np.append(array[:16], low).astype(kind).astype("int32"), 1).astype("float32").sum()
    np.testing.assert_allclose(result([a, out], array), want, rtol=1e-6)


@pytest.mark.parametrize("kind", ["uint8", "uint16"])
def test_sums_of_unsigned_differences_that_turn_out_to_be_below_zero(kind):
    """The element after the last whole vector is 0, from which 3 is subtracted."""
    a, k = te.placeholder((17,), kind, "a"), te.reduce_axis((0, 17), "k")
    difference = tirx.if_then_else(k.var < 16, a[k], tirx.const(0, kind)) - tirx.const(3, kind)
    out = te.compute((), lambda: te.sum(difference * tirx.const(2, kind), k), "out")
    array = np.arange(17).astype(kind)
    np.testing.assert_array_equal(result([a, out], array), 2 * (array[:16].sum() - 3 * 17) % 2 ** (8 * array.itemsize))


@pytest.mark.parametrize("columns", [8, 16, 21])
def test_sums_compared_with_a_number(columns):
    """Registers of booleans."""
    a = te.placeholder((19, columns), "uint8", "a")
    k = te.reduce_axis((0, 19), "k")
    total = te.compute((columns,), lambda j: te.sum(a[k, j].astype("uint32"), k), "total")
    out = te.compute((columns,), lambda j: total[j] > tirx.const(2400, "uint32"), "out")
    array = np.random.default_rng(0).integers(0, 256, (19, columns), dtype="uint8")
    np.testing.assert_array_equal(result([a, out], array), array.sum(0, "uint32") > 2400)


@pytest.mark.parametrize("kind", ["uint8", "int64", "float64"])
def test_functions_of_comparisons(kind):
    a = te.placeholder((19, 24), kind, "a")
    k = te.reduce_axis((0, 19), "k")
    total = te.compute((24,), lambda j: te.sum(a[k, j], k), "total")
    zero = tirx.const(0, kind)

    def value(j: tirx.Expr) -> tirx.Expr:
        return tirx.tanh(tirx.Cast("float32", tirx.Cast("int32", tirx.EQ(total[j], zero))))

    array = np.zeros((19, 24), kind)
    array[3, ::3] = 1
    want = np.tanh((array.sum(0) == 0).astype("float32"))
    np.testing.assert_allclose(result([a, te.compute((24,), value, "out")], array), want, rtol=1e-6)
