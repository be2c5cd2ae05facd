"""GEMM and COLMV against NumPy: awkward sizes, extreme values, all orders of operands, every type."""

from __future__ import annotations

import numpy as np
import pytest
from one_instruction import execute, random_values, row_major

from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.errors import SimulationError

SIZES = [(1, 1, 1), (1, 16, 7), (7, 1, 9), (31, 33, 32), (5, 3, 127), (129, 8, 31)]


def gemm_strides(k, n):
    return {"a": (k, 0, 0, 0, 0, 1), "b": (0, 0, k, 0, 0, 1), "c": (n, 0, 1, 0, 0, 0)}


def gemm(a, b, c_dtype="int32", **options):
    """c[m, n] = a[m, k] b[n, k]^T."""
    (m, k), n = a.shape, b.shape[0]
    return execute(Opcode.GEMM, (m, 1, n, 1, 1, k), a, (m, n), c_dtype, b=b, strides=gemm_strides(k, n), **options)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("m, n, k", SIZES)
def test_integer_gemms_equal_numpy_bit_for_bit(dtype, m, n, k):
    rng = np.random.default_rng(m * n + k)
    a, b = random_values(rng, dtype, (m, k)), random_values(rng, dtype, (n, k))
    expected = (a.astype(np.int64) @ b.astype(np.int64).T).astype(np.int32)  # wraps
    np.testing.assert_array_equal(gemm(a, b), expected)


@pytest.mark.parametrize("dtype, k", [("int8", 5000), ("uint8", 5000), ("int16", 5000), ("int8", 1024), ("int8", 1025)])
@pytest.mark.parametrize("extreme", ["min", "max"])
def test_long_sums_of_extreme_values_are_exact(dtype, k, extreme):
    value = getattr(np.iinfo(dtype), extreme)
    a, b = np.full((3, k), value, dtype), np.full((2, k), value, dtype)
    b[1, ::2] = 1  # an odd sum, which a float with too few bits would round
    expected = (a.astype(np.int64) @ b.astype(np.int64).T).astype(np.int32)
    np.testing.assert_array_equal(gemm(a, b), expected)


def test_int32_sums_wrap_round():
    a = b = np.full((1, 1 << 18), -128, np.int8)  # 2^32
    assert gemm(a, b)[0, 0] == 0
    top = np.array([[np.iinfo(np.int32).max]], np.int32)
    one = np.ones((1, 1), np.int8)
    assert gemm(one, one, c=top, accumulate=True)[0, 0] == np.iinfo(np.int32).min


def test_sums_may_be_kept_in_int16_and_wrap_round_there():
    rng = np.random.default_rng(8)
    a, b = random_values(rng, "int8", (6, 40)), random_values(rng, "int8", (5, 40))
    before = random_values(rng, "int16", (6, 5))
    exact = a.astype(np.int64) @ b.astype(np.int64).T
    np.testing.assert_array_equal(gemm(a, b, "int16"), exact.astype(np.int16))
    np.testing.assert_array_equal(gemm(a, b, "int16", c=before, accumulate=True), (exact + before).astype(np.int16))


def test_a_gemm_adds_to_what_is_there_or_overwrites_it():
    rng = np.random.default_rng(1)
    a, b = random_values(rng, "int8", (5, 9)), random_values(rng, "int8", (4, 9))
    before = random_values(rng, "int16", (5, 4)).astype(np.int32)
    expected = a.astype(np.int32) @ b.astype(np.int32).T
    np.testing.assert_array_equal(gemm(a, b, c=before, accumulate=True), before + expected)
    np.testing.assert_array_equal(gemm(a, b, c=before), expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("m, n, k", SIZES)
def test_float_products_are_summed_in_float32(dtype, m, n, k):
    rng = np.random.default_rng(k)
    a, b = random_values(rng, dtype, (m, k)), random_values(rng, dtype, (n, k))
    before = random_values(rng, "float32", (m, n))
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    got = gemm(a, b, "float32", a_dtype=dtype)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)
    added = gemm(a, b, "float32", a_dtype=dtype, c=before, accumulate=True)
    np.testing.assert_array_equal(added, before + got)


def test_a_narrow_result_is_rounded_once():
    a, b = np.full((1, 3), 1, np.float32), np.array([[256, 0.75, 0.75]], np.float32)
    # 257.5: bfloat16 has steps of 2 here, so that rounding after each addition would stay at 256.
    assert gemm(a, b, "bfloat16", a_dtype="bfloat16")[0, 0] == 258
    assert gemm(a.astype(np.float16), (b * 8).astype(np.float16), "float16")[0, 0] == 2060


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_operands_lie_in_any_order(dtype):
    rng = np.random.default_rng(3)
    m, n, k = 6, 7, 11
    a, b = random_values(rng, dtype, (k, m)), random_values(rng, dtype, (k, n))
    strides = {"a": (1, 0, 0, 0, 0, m), "b": (0, 0, 1, 0, 0, n), "c": (1, 0, m, 0, 0, 0)}
    c_dtype = "int32" if dtype == "int8" else dtype
    got = execute(Opcode.GEMM, (m, 1, n, 1, 1, k), a, (n, m), c_dtype, b=b, strides=strides)
    expected = (a.astype(np.float64).T @ b.astype(np.float64)).T
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_stride_of_0_repeats_an_operand_and_negative_strides_walk_back():
    row = np.arange(1, 6, dtype=np.int8)
    strides = {"a": (0, 0, 0, 0, 0, 1), "b": (0, 0, 0, 0, 0, 1), "c": (1, 0, 2, 0, 0, 0)}
    got = execute(Opcode.GEMM, (2, 1, 3, 1, 1, 5), row, (3, 2), "int32", b=row, strides=strides)
    np.testing.assert_array_equal(got, np.full((3, 2), 55))


def test_colmv_is_a_product_with_a_vector_of_fixed_point_numbers():
    rng = np.random.default_rng(9)
    rows, columns = 20, 13
    weights, vector = random_values(rng, "int16", (columns, rows)), random_values(rng, "int16", (columns,))
    strides = {"a": (1, 0, 0, 0, 0, rows), "b": (0, 0, 0, 0, 0, 1), "c": (1, 0, 0, 0, 0, 0)}
    extent = (rows, 1, 1, 1, 1, columns)
    got = execute(Opcode.COLMV, extent, weights, (rows,), "int32", b=vector, strides=strides, immediate=(4, 8))
    np.testing.assert_array_equal(got, (vector.astype(np.int64) @ weights.astype(np.int64)).astype(np.int32))


def test_products_of_whole_numbers_are_summed_in_int32_and_of_floats_in_floats():
    ones = np.ones((2, 2), np.int8)
    with pytest.raises(
        SimulationError, match=r"instruction 0 \(GEMM.* accumulation of int8 in int8 is not supported; expected int32"
    ):
        gemm(ones, ones, "int8")
    with pytest.raises(SimulationError, match="float32 in int32 is not supported; expected a float type"):
        gemm(ones.astype(np.float32), ones.astype(np.float32), "int32")


def test_an_operand_walks_no_loop_that_it_does_not_have():
    ones = np.ones((2, 2), np.int8)
    strides = gemm_strides(2, 2) | {"a": (2, 0, 1, 0, 0, 0)}
    with pytest.raises(SimulationError, match="expected 0 for all loops except 0, 3, 4, 5"):
        execute(Opcode.GEMM, (2, 1, 2, 1, 1, 2), ones, (2, 2), "int32", b=ones, strides=strides)


def test_a_result_has_a_place_for_every_element():
    ones = np.ones((2, 2), np.int8)
    for c in ((0, 0, 1, 0, 0, 0), (1, 0, 1, 0, 0, 0)):
        with pytest.raises(SimulationError, match="write an element of c twice"):
            execute(
                Opcode.GEMM, (2, 1, 2, 1, 1, 2), ones, (2, 2), "int32", b=ones, strides=gemm_strides(2, 2) | {"c": c}
            )
    # Strides 2 and 3 interleave without overlap.
    result = execute(
        Opcode.GEMM,
        (2, 1, 2, 1, 1, 2),
        ones,
        (6,),
        "int32",
        b=ones,
        c=np.zeros(6, np.int32),
        strides=gemm_strides(2, 2) | {"c": (2, 0, 3, 0, 0, 0)},
    )
    assert result.tolist() == [2, 0, 2, 2, 0, 2]


def test_row_major_strides():
    assert row_major((2, 3, 4)) == (12, 4, 1)
