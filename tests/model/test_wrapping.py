"""Overflowing integers keep the lowest bits, also where TVM or LLVM could assume that they do not overflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import relax, te, tirx
from tvm.relax import op

import tvm_tiling as tt
from tvm_tiling.lowering.wrapping import wrapping
from tvm_tiling.schedule import this_cpu
from tvm_tiling.schedules.fallback import schedule_fallback

WORDS = ("int32", "int64", "uint32", "uint64")
SIGNED = ("int32", "int64")


def _edges(dtype: str, shape: tuple[int, ...] = (3, 11)) -> np.ndarray:
    limits, count = np.iinfo(dtype), int(np.prod(shape))
    edges = [limits.max, limits.min, limits.max - 1, limits.min + 1, limits.max // 2 + 1, 1, 2]
    return np.resize(np.array(edges, dtype), count).reshape(shape)


def _run(build: Callable[..., relax.Expr], *arrays: np.ndarray) -> np.ndarray:
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(a.shape, str(a.dtype))) for i, a in enumerate(arrays)]
    with builder.function("main", inputs):
        with builder.dataflow():
            output = builder.emit_output(builder.normalize(build(builder.emit, *inputs)))
        builder.emit_func_output(output)
    with np.errstate(all="ignore"):
        return tt.compile(builder.get(), cache=False).run(*arrays)


def _number(value: int, dtype: str) -> relax.Expr:
    return relax.const(np.array(value, dtype), dtype)


@pytest.mark.parametrize("dtype", WORDS)
def test_smaller_of_a_number_and_the_next(dtype):
    x = _edges(dtype)
    found = _run(lambda emit, x: op.minimum(emit(op.add(x, _number(1, dtype))), x), x)
    np.testing.assert_array_equal(found, np.minimum(x + np.array(1, dtype), x))


@pytest.mark.parametrize("dtype", WORDS)
def test_smaller_of_a_number_and_its_double(dtype):
    x = _edges(dtype)
    found = _run(lambda emit, x: op.minimum(emit(op.add(x, x)), x), x)
    np.testing.assert_array_equal(found, np.minimum(x + x, x))


@pytest.mark.parametrize("dtype", WORDS)
def test_product_divided_by_a_factor(dtype):
    x = _edges(dtype)
    four, two = _number(4, dtype), _number(2, dtype)
    found = _run(lambda emit, x: op.floor_divide(emit(op.multiply(x, four)), two), x)
    np.testing.assert_array_equal(found, x * np.array(4, dtype) // np.array(2, dtype))


@pytest.mark.parametrize("dtype", ("int8", *WORDS))
def test_negative_of_the_lowest_number(dtype):
    x = _edges(dtype)
    found = _run(lambda emit, x: op.nn.relu(emit(op.negative(x))), x)
    np.testing.assert_array_equal(found, np.maximum(-x, np.array(0, dtype)))


@pytest.mark.parametrize("dtype", SIGNED)
def test_sign_of_a_sum_of_squares(dtype):
    x = _edges(dtype, (5, 70))
    found = _run(lambda emit, x: op.nn.relu(emit(op.sum(emit(op.multiply(x, x)), 1))), x)
    np.testing.assert_array_equal(found, np.maximum((x * x).sum(1, dtype), 0))


@pytest.mark.parametrize("dtype", SIGNED)
def test_sign_of_a_sum_of_positive_numbers(dtype):
    x = _edges(dtype, (5, 70))
    found = _run(lambda emit, x: op.nn.relu(emit(op.sum(emit(op.nn.relu(x)), 1))), x)
    np.testing.assert_array_equal(found, np.maximum(np.maximum(x, 0).sum(1, dtype), 0))


@pytest.mark.parametrize("dtype", SIGNED)
def test_sign_of_a_matrix_product(dtype):
    x = _edges(dtype, (19, 33))
    found = _run(lambda emit, x, y: op.nn.relu(emit(op.matmul(x, y))), x, x.T.copy())
    np.testing.assert_array_equal(found, np.maximum(x @ x.T, 0))


@pytest.mark.parametrize("wide", ("int64", "uint64", "uint32"))
def test_sign_of_the_lowest_bits(wide):
    x = np.maximum(_edges(wide), np.array(5, wide))
    found = _run(
        lambda emit, x: op.nn.relu(emit(op.astype(emit(op.maximum(x, _number(5, wide))), "int32"))),
        x,
    )
    np.testing.assert_array_equal(found, np.maximum(x.astype("int32"), 0))


@pytest.mark.values
@pytest.mark.parametrize("name", ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
@pytest.mark.parametrize("dtype", ("int8", "int32", "int64"))
def test_comparisons_with_the_lowest_number(name, dtype):
    x, lowest = _edges(dtype), np.iinfo(dtype).min
    found = _run(lambda emit, x: getattr(op, name)(x, _number(lowest, dtype)), x)
    np.testing.assert_array_equal(found, getattr(np, name)(x, np.array(lowest, dtype)))


@pytest.mark.parametrize("dtype", WORDS)
def test_stages_of_a_tensor_expression(dtype):
    a = te.placeholder((70,), dtype, name="a")
    following = te.compute((70,), lambda i: a[i] + tirx.const(1, dtype))
    func = te.create_prim_func([a, te.compute((70,), lambda i: tirx.min(following[i], a[i].asobject()))])
    x, builder = _edges(dtype, (70,)), relax.BlockBuilder()
    given = relax.Var("x", relax.TensorType((70,), dtype))
    with builder.function("main", [given]):
        with builder.dataflow():
            call = relax.call_tir(builder.add_func(func, "smaller"), [given], relax.TensorType((70,), dtype))
            output = builder.emit_output(call)
        builder.emit_func_output(output)
    found = tt.compile(builder.get(), cache=False).run(x)
    np.testing.assert_array_equal(found, np.minimum(x + np.array(1, dtype), x))


def _function(dtype: str, value: Callable[[Any], Any]) -> tirx.PrimFunc:
    a = te.placeholder((8,), dtype, name="a")
    return te.create_prim_func([a, te.compute((8,), lambda i: value(a[i].asobject()))])


@pytest.mark.parametrize("divide", [tirx.truncdiv, tirx.truncmod])
@pytest.mark.parametrize(("first", "step"), [(1, -2), (-5, 2), (-7, 4)])
def test_division_towards_zero_of_steps(first, step, divide):
    def stage(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda i, j: x[i, j] + tirx.Cast("int32", divide(first + j * step, 2)))

    x = np.arange(-20, 20, dtype="int32").reshape(5, 8)
    dividends = first + np.arange(8, dtype="int32") * step
    quotients = np.trunc(dividends / 2).astype("int32")
    wanted = quotients if divide is tirx.truncdiv else dividends - 2 * quotients
    builder = relax.BlockBuilder()
    given = relax.Var("x", relax.TensorType(x.shape, "int32"))
    with builder.function("main", [given]):
        builder.emit_func_output(builder.emit_te(stage, given))
    np.testing.assert_array_equal(tt.compile(builder.get(), cache=False).run(x), x + wanted)


def test_what_is_proved_to_fit_stays():
    for func in (
        _function("int8", lambda x: x.astype("int32") * x.astype("int32") + 1),
        _function("uint8", lambda x: x.astype("int16") - 255),
        _function("float32", lambda x: x * x + x),
    ):
        assert wrapping(func).same_as(func)


@pytest.mark.parametrize("columns", (1, 48))
def test_addresses_of_rows_at_positions_from_data_stay(columns):
    """LLVM loads whole vectors of a row only where it sees that their elements are neighbours."""
    table, rows = te.placeholder((50, columns), "float32", "table"), te.placeholder((9,), "int64", "rows")
    taken = te.compute((9, columns), lambda i, j: table[rows[i], j], "taken")
    scheduled = schedule_fallback(te.create_prim_func([table, rows, taken]), "main", this_cpu())
    assert "~~" not in str(wrapping(scheduled, scheduled=True))


def test_positions_wrap_around_before_they_are_clamped():
    """The highest number and 1 is the lowest one, which is clamped to the first row."""
    table = np.arange(50 * 16, dtype="float32").reshape(50, 16)
    rows = np.array([0, 48, 49, np.iinfo("int64").max], "int64")

    def taken(emit: Any, table: Any, rows: Any) -> Any:
        return op.take(table, emit(op.add(rows, _number(1, "int64"))), axis=0, mode="clip")

    np.testing.assert_array_equal(_run(taken, table, rows), table[[1, 49, 49, 0]])


@pytest.mark.parametrize("dtype", ("int8", "uint16", *WORDS))
def test_what_wraps_around_already_stays(dtype):
    once = wrapping(_function(dtype, lambda x: (x * x - x).astype("int16")))
    assert tvm_ffi.structural_equal(wrapping(once), once)
    assert "~~" in str(once)


@pytest.mark.parametrize("dtype", ("int8", "int32"))
def test_gemms_keep_the_pattern_that_schedules_match(dtype):
    a, b = (te.placeholder((4, 4), dtype, name=name) for name in "ab")
    k = te.reduce_axis((0, 4), "k")
    product = te.compute((4, 4), lambda i, j: te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), k))
    func = te.create_prim_func([a, b, product])
    assert tvm_ffi.structural_equal(wrapping(func), func)
