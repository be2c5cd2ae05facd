"""A few random functions compared with TVM's plain build, and former faults."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from check_function import NotJudged, check
from choices import Choices, smaller
from tvm import te, tirx

import tvm_tiling as tt
from tvm_tiling.schedule import this_cpu
from tvm_tiling.schedules.fallback import schedule_fallback


@pytest.mark.parametrize("number", range(4))
def test_random_functions(number):
    for attempt in range(10):
        try:
            results, _ = check([], f"20 {number} {attempt}")
        except NotJudged:  # nothing to compare with
            continue
        assert results["right"] >= 1
        return
    pytest.fail("TVM builds none of ten functions")


def test_failures_are_made_smaller():
    taken = [Choices([]).below(3), 7, 0, 9, 5, 1]
    assert smaller(taken, lambda given: 9 in given, 100) == [9]


def results_of(tensors: list[te.Tensor], array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the last of `tensors` as scheduled here, and as TVM's plain build computes it."""
    func = te.create_prim_func(tensors).with_attr("global_symbol", "main")
    found = []
    for each, target in ((schedule_fallback(func, "main", this_cpu()), tt.llvm_target()), (func, "llvm")):
        out = tvm.runtime.empty([int(s) for s in tensors[-1].shape], str(tensors[-1].dtype))
        tvm.compile(tvm.IRModule({"main": each}), target=target)["main"](tvm.runtime.tensor(array), out)
        found.append(out.numpy())
    return found[0], found[1]


def test_a_conversion_that_wraps_before_a_maximum():
    """TVM's simplifier drops the maximum of 0 and a former uint16 if both occur in one expression."""
    x = te.placeholder((40,), "uint16", "x")
    narrow = te.compute((40,), lambda i: x[i].astype("int16") - tirx.const(1, "int16"), "narrow")
    out = te.compute((40,), lambda i: tirx.Max(narrow[i].astype("int32"), tirx.const(0, "int32")), "out")
    got, want = results_of([x, out], np.linspace(0, 65535, 40).astype("uint16"))
    np.testing.assert_array_equal(got, want)


def test_a_function_of_a_bfloat16():
    x = te.placeholder((20,), "float16", "x")
    low = te.compute((20,), lambda i: x[i].astype("bfloat16") - tirx.const(1, "bfloat16"), "low")
    out = te.compute((20,), lambda i: tirx.tanh(low[i].astype("float32")), "out")
    got, want = results_of([x, out], np.linspace(-2, 2, 20).astype("float16"))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-2)


def test_zeros_around_a_bfloat16():
    x = te.placeholder((29,), "float16", "x")
    inside = te.compute(
        (33,),
        lambda i: tirx.if_then_else(tirx.all(i >= 2, i < 31), x[i - 2], tirx.const(0, "float16")).astype("bfloat16"),
        "inside",
    )
    out = te.compute((33,), lambda i: inside[i].astype("float32"), "out")
    got, want = results_of([x, out], np.linspace(-2, 2, 29).astype("float16"))
    np.testing.assert_array_equal(got, want)


def test_an_unsigned_constant_below_zero():
    x = te.placeholder((5,), "uint8", "x")
    border = te.compute((9,), lambda i: tirx.if_then_else(i < 5, x[tirx.min(i, 4)], tirx.const(1, "uint8")), "border")
    out = te.compute((9,), lambda i: tirx.Sub(tirx.const(0, "uint8"), border[i]), "out")
    got, want = results_of([x, out], np.array([0, 1, 2, 128, 255], "uint8"))
    np.testing.assert_array_equal(got, want)
