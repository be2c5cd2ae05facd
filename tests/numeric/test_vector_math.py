"""Vectorised functions as arithmetic: their accuracy, and functions of functions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx, topi

from tvm_tiling.lowering.named_values import TOGETHER, without_names
from tvm_tiling.lowering.vector_math import nested_functions, with_vector_math
from tvm_tiling.schedule import llvm_target, this_cpu, tiling_schedule
from tvm_tiling.schedules.fallback import schedule_fallback

SPECIAL = [np.inf, -np.inf, np.nan, 0.0, -0.0]


def run(function, x: np.ndarray) -> np.ndarray:
    """`function` of every element, scheduled."""
    source = te.placeholder(x.shape, name="x")
    result = te.compute(x.shape, lambda i: function(source[i]), name="y")
    func = schedule_fallback(te.create_prim_func([source, result]), "main", this_cpu())
    built = tvm.tirx.build(tvm.IRModule({"main": func}), target=llvm_target())
    out = tvm.runtime.empty(x.shape, "float32")
    built["main"](tvm.runtime.tensor(x), out)
    return out.numpy()


@pytest.mark.parametrize("name", ["cosh", "sinh"])
def test_within_4_units_in_the_last_place(name):
    plain = [np.linspace(-95, 95, 100001), np.linspace(-2, 2, 50001), np.logspace(-38, 2, 20001), SPECIAL]
    x = np.concatenate(plain).astype("float32")
    result = run(getattr(tirx, name), x)
    with np.errstate(all="ignore"):
        true = getattr(np, name)(x.astype("float64"))
        expected = true.astype("float32")
        finite = np.isfinite(expected)
        off = np.abs(result - true)[finite] / np.spacing(np.abs(expected[finite]))
    assert off.max() < 4.6
    np.testing.assert_array_equal(result[~finite], expected[~finite])


@pytest.mark.parametrize("size", [5, 16, 100, 127, 128, 129, 1000, 40000, 70001])
def test_vectors_whose_functions_alternate_and_the_remaining_ones(size):
    x = np.linspace(-20, 20, size, dtype="float32")
    expected = x / (1 + np.exp(-x.astype("float64")))
    np.testing.assert_allclose(run(lambda value: value * tirx.sigmoid(value), x), expected, rtol=1e-6)


def test_several_vectors_of_functions_are_in_one_iteration():
    source = te.placeholder((100000,), name="x")

    def statements(function):
        result = te.compute(source.shape, lambda i: function(source[i]), name="y")
        func = schedule_fallback(te.create_prim_func([source, result]), "main", this_cpu())
        return func.script().count("T.vectorized")

    assert statements(tirx.exp) >= statements(tirx.abs) + TOGETHER


def test_no_more_functions_alternate_than_the_registers_of_a_tile_hold():
    source, result = (tirx.decl_buffer((32,), "float32", name=name) for name in "xy")
    places = [tirx.const(place, "int32") for place in range(32)]
    stores = [
        tirx.BufferStore(result, with_vector_math(tirx.exp(tirx.BufferLoad(source, [at]))), [at]) for at in places
    ]
    written = without_names(tirx.PrimFunc([], tirx.SeqStmt(stores))).body
    final = [isinstance(step, tirx.BufferStore) and step.buffer.same_as(result) for step in written.seq]
    assert final.count(True) == 32
    runs = [len(list(group)) for last, group in itertools.groupby(final) if last]
    assert runs == [TOGETHER] * (32 // TOGETHER) and TOGETHER == 4


def test_functions_of_functions_are_quick_to_compile_and_right():
    def chain(x):
        return tirx.tanh(tirx.log(tirx.exp(tirx.tanh(tirx.exp(x))) + tirx.const(1.0, "float32")))

    x = np.concatenate([np.linspace(-20, 20, 1001), SPECIAL]).astype("float32")
    with np.errstate(all="ignore"):
        expected = np.tanh(np.log(np.exp(np.tanh(np.exp(x))) + 1))
    np.testing.assert_allclose(run(chain, x), expected, rtol=1e-5)


def test_nested_functions_come_inner_first_and_once():
    x = tirx.Var("x", "float32")
    inner = tirx.exp(x)
    middle = tirx.log(inner + inner)
    assert [call.op.name for call in nested_functions(tirx.tanh(middle) * inner)] == ["tirx.exp", "tirx.log"]
    assert not nested_functions(tirx.tanh(x) + inner)


def test_without_registers_a_function_of_a_function_stays_a_call():
    x = tirx.Var("x", "float32")
    assert "T.tanh" in str(with_vector_math(tirx.tanh(tirx.exp(x))))
    softplus = str(with_vector_math(tirx.log(tirx.exp(x) + tirx.const(1.0, "float32"))))
    assert "T.log" not in softplus and "T.exp" not in softplus


def test_named_values_of_what_is_not_always_evaluated_stay_there():
    a, b = (te.placeholder((8,), "int32", name) for name in "ab")
    name = tirx.Var("x", "int32")

    def quotient(i):
        return tirx.Let(name, tirx.truncdiv(a[i], b[i]), name * name)

    always = te.create_prim_func([a, b, te.compute((8,), quotient)])
    guarded = te.create_prim_func(
        [a, b, te.compute((8,), lambda i: tirx.if_then_else(b[i] != 0, quotient(i), tirx.const(0, "int32")))]
    )
    assert without_names(guarded).script() == guarded.script()
    assert without_names(always).script() != always.script()


def test_a_tile_of_gelus_has_no_names_left_for_the_code_generator():
    """Each of its values refers to others by names, for which the code generator takes seconds."""
    a, b = te.placeholder((3, 5), name="a"), te.placeholder((5, 16), name="b")
    product = topi.matmul(a, b)
    gelu = te.compute(product.shape, lambda i, j: product[i, j] * (1 + tirx.erf(product[i, j] * np.float32(0.5**0.5))))
    kernel = tiling_schedule(gelu).mod
    assert _names(kernel["main"])
    target = llvm_target()
    pipeline, host, _ = tvm.tirx.get_default_tir_pipeline(target)
    lowered = host()(pipeline(tirx.transform.BindTarget(target.with_host(target))(kernel)))
    assert not any(_names(func) for func in lowered.functions.values())


def _names(func):
    found = []
    tvm_ffi.structural_walk(func.body, (tirx.Let, found.append))
    return found
