"""Every function of the vector engine against plain Python: all types, saturation, rounding, reductions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_instruction import alu, execute, random_values, row_major

from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.errors import SimulationError
from tvm_tiling.hardware.vector_functions import Function

INTEGERS = ["int8", "uint8", "int16", "int32"]
FLOATS = ["float32", "float16", "bfloat16"]
EXACT = {
    "ADD": lambda x, y: x + y,
    "SUB": lambda x, y: x - y,
    "MUL": lambda x, y: x * y,
    "MAX": max,
    "MIN": min,
    "SHIFT": lambda x, y: math.floor(Fraction(x) / Fraction(2) ** y + Fraction(1, 2)),
    "DIV": lambda x, y: int(Fraction(x, y)),  # int() truncates
}


def saturated(value, dtype):
    bounds = np.iinfo(dtype)
    return min(max(value, int(bounds.min)), int(bounds.max))


def pairs(dtype, function):
    """Return extreme and random values of a type, with second operands in the function's domain."""
    rng = np.random.default_rng(len(function))
    bounds = np.iinfo(dtype)
    edges = [int(bounds.min), int(bounds.max), 0, 1, int(bounds.min) + 1, int(bounds.max) // 2]
    a = np.array([*edges * len(edges), *random_values(rng, dtype, 50).tolist()], dtype)
    b = np.array([*np.repeat(edges, len(edges)).tolist(), *random_values(rng, dtype, 50).tolist()], dtype)
    if function == "DIV":
        b[b == 0] = 3
    if function == "SHIFT":
        b = (np.arange(len(a)) % 50 - (0 if dtype == "uint8" else 10)).astype(dtype)
    return a, b


@pytest.mark.parametrize("function", sorted(EXACT))
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("result", ["same", "int8", "int32"])
def test_whole_numbers_are_exact_and_saturate_once(function, dtype, result):
    result = dtype if result == "same" else result
    a, b = pairs(dtype, function)
    expected = [saturated(EXACT[function](x, y), result) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    np.testing.assert_array_equal(alu(function, a, result, b=b), np.array(expected, result))


@pytest.mark.parametrize("function", sorted(EXACT))
def test_the_second_operand_may_be_a_number(function):
    a, _ = pairs("int16", function)
    expected = [saturated(EXACT[function](x, 3), "int16") for x in a.tolist()]
    np.testing.assert_array_equal(alu(function, a, "int16", immediate=(3,)), np.array(expected, np.int16))


def test_halves_are_rounded_upwards_by_a_shift():
    a = np.array([-3, -2, -1, 0, 1, 2, 3], np.int32)
    assert alu("SHIFT", a, "int8", immediate=(1,)).tolist() == [-1, -1, 0, 0, 1, 1, 2]
    assert alu("SHIFT", np.array([1, -1, 3], np.int32), "int32", immediate=(-31,)).tolist() == [
        2**31 - 1,
        -(2**31),
        2**31 - 1,
    ]


@pytest.mark.parametrize("function", ["ADD", "SUB", "MUL", "MAX", "MIN", "DIV"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_computed_in_float32_and_rounded_once(function, dtype):
    rng = np.random.default_rng(5)
    a, b = random_values(rng, dtype, (200,)), random_values(rng, dtype, (200,))
    ufunc = {"MAX": np.maximum, "MIN": np.minimum, "DIV": np.divide, "SUB": np.subtract, "MUL": np.multiply}
    exact = ufunc.get(function, np.add)(a.astype(np.float32), b.astype(np.float32))
    got = alu(function, a, dtype, a_dtype=dtype, b=b)
    if dtype == "bfloat16":
        exact = alu("COPY", exact, "bfloat16")
    np.testing.assert_array_equal(got, exact.astype(got.dtype))


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_relu_and_clip(dtype):
    a = random_values(np.random.default_rng(2), dtype, (100,))
    np.testing.assert_array_equal(alu("RELU", a, dtype, a_dtype=dtype), np.maximum(a, 0))
    low, high = (3, 60) if dtype in INTEGERS else (-0.5, 0.75)
    got = alu("CLIP", a, dtype, a_dtype=dtype, immediate=(low, high))
    np.testing.assert_array_equal(got, np.clip(a, low, high))


def test_clip_narrows_int32_to_what_fits():
    a = np.array([-1000, -129, -128, 0, 127, 128, 1000], np.int32)
    assert alu("CLIP", a, "int8", immediate=(-128, 127)).tolist() == [-128, -128, -128, 0, 127, 127, 127]
    assert alu("COPY", a, "int8").tolist() == [-128, -128, -128, 0, 127, 127, 127]


@given(st.integers(-(2**31), 2**31 - 1), st.floats(1e-6, 4), st.integers(-128, 127))
@settings(max_examples=60, deadline=None)
def test_scale_is_requantisation(value, factor, zero):
    expected = saturated(round(float(value) * factor) + zero, "int8")  # Python's round() rounds halves to even
    assert alu("SCALE", np.array([value], np.int32), "int8", immediate=(factor, zero))[0] == expected


def test_scale_takes_halves_to_even_and_floats():
    a = np.array([1, 3, 5, -1, -3], np.int32)
    assert alu("SCALE", a, "int8", immediate=(0.5, 0)).tolist() == [0, 2, 2, 0, -2]
    floats = np.array([0.5, 1.5, 2.49, -1e30, np.inf], np.float32)
    assert alu("SCALE", floats, "uint8", immediate=(1.0, 10)).tolist() == [10, 12, 12, 0, 255]


def test_smooth_functions_of_floats():
    a = np.linspace(-20, 20, 401, dtype=np.float32)
    wide = a.astype(np.float64)
    np.testing.assert_array_equal(alu("SIGMOID", a, "float32"), (1 / (1 + np.exp(-wide))).astype(np.float32))
    np.testing.assert_array_equal(alu("TANH", a, "float32"), np.tanh(wide).astype(np.float32))
    np.testing.assert_array_equal(alu("EXP", a, "float32"), np.exp(wide).astype(np.float32))
    np.testing.assert_array_equal(alu("SQRT", np.abs(a), "float32"), np.sqrt(np.abs(a)))
    small = alu("TANH", a.astype(np.float16), "float16")
    np.testing.assert_array_equal(small, np.tanh(a.astype(np.float16).astype(np.float64)).astype(np.float16))


@pytest.mark.parametrize("fraction", [0, 8, 12, 15])
@pytest.mark.parametrize("function, real", [("SIGMOID", lambda x: 1 / (1 + math.exp(-x))), ("TANH", math.tanh)])
def test_smooth_functions_of_fixed_point_numbers(function, real, fraction):
    a = np.concatenate([np.arange(-40, 40), [-(2**15), 2**15 - 1, 5000, -5000]]).astype(np.int16)
    if fraction == 0 and function == "SIGMOID":
        a = a[np.abs(a.astype(int)) < 700]  # math.exp overflows there
    expected = [saturated(round(real(x / 2**fraction) * 2**fraction), "int16") for x in a.tolist()]
    np.testing.assert_array_equal(alu(function, a, "int16", immediate=(fraction,)), np.array(expected, np.int16))


@pytest.mark.parametrize("fraction", [-1, 0.5, 16, 1e300, math.nan])
def test_fixed_point_numbers_have_up_to_15_fraction_bits(fraction):
    with pytest.raises(SimulationError, match="fraction bits; expected a whole number from 0 to 15"):
        alu("TANH", np.ones(2, np.int16), "int16", immediate=(fraction,))


def reduced(function, a, axes, c, c_dtype, **options):
    """Reduce `a` along `axes`, starting from c, in which they have size 1."""
    stride = tuple(0 if axis in axes else step for axis, step in enumerate(row_major(c.shape)))
    options = {"function": Function[function], "strides": {"c": stride}, "c": c} | options
    return execute(Opcode.ALU, a.shape, a, c.shape, c_dtype, **options)


@pytest.mark.parametrize("axes", [(3,), (0,), (1, 2), (0, 1, 2, 3), (0, 3)])
@pytest.mark.parametrize("function, numpy", [("ADD", np.sum), ("MAX", np.max), ("MIN", np.min)])
def test_integers_reduced(function, numpy, axes):
    rng = np.random.default_rng(len(axes))
    a = random_values(rng, "int8", (3, 4, 5, 7))
    shape = tuple(1 if axis in axes else count for axis, count in enumerate(a.shape))
    c = random_values(rng, "int8", shape).astype(np.int32)
    with_c = {"ADD": np.add, "MAX": np.maximum, "MIN": np.minimum}[function]
    expected = with_c(c, numpy(a.astype(np.int64), axis=axes, keepdims=True))
    np.testing.assert_array_equal(reduced(function, a, axes, c, "int32"), expected)


def test_sums_saturate_at_their_end_and_no_earlier():
    a = np.array([[[[100, 100, -150], [100, 100, 100]]]], np.int16)
    got = reduced("ADD", a, (3,), np.zeros((1, 1, 2, 1), np.int8), "int8", a_dtype="int16")
    assert got.reshape(-1).tolist() == [50, 127]
    got = reduced("SUB", a, (3,), np.full((1, 1, 2, 1), 7, np.int16), "int16")
    assert got.reshape(-1).tolist() == [7 - 50, 7 - 300]
    got = reduced("MUL", a, (3,), np.ones((1, 1, 2, 1), np.int32), "int32", a_dtype="int16")
    assert got.reshape(-1).tolist() == [-1_500_000, 1_000_000]


@pytest.mark.parametrize("axes", [(2,), (0, 1), (0, 2)])
def test_floats_are_added_in_the_order_of_the_loops(axes):
    rng = np.random.default_rng(11)
    a = rng.standard_normal((4, 6, 50, 1)).astype(np.float32)
    shape = tuple(1 if axis in axes else count for axis, count in enumerate(a.shape))
    c = rng.standard_normal(shape).astype(np.float32)
    expected = c.copy()
    for point in np.ndindex(a.shape):
        expected[tuple(0 if axis in axes else i for axis, i in enumerate(point))] += a[point]
    np.testing.assert_array_equal(reduced("ADD", a, axes, c, "float32"), expected)


def test_whole_numbers_may_be_summed_in_a_float():
    a = np.arange(-3, 9, dtype=np.int8).reshape(1, 1, 3, 4)
    got = reduced("ADD", a, (3,), np.full((1, 1, 3, 1), 0.5, np.float32), "float32")
    assert got.reshape(-1).tolist() == [-5.5, 10.5, 26.5]


@pytest.mark.parametrize(
    "function, a, sentence",
    [
        ("SHIFT", np.ones(2, np.float32), "SHIFT of float32 is not supported; expected whole numbers"),
        ("EXP", np.ones(2, np.int8), "EXP of int8 is not supported; expected floats"),
        ("SIGMOID", np.ones(2, np.int8), "SIGMOID of int8 is not supported; expected floats"),
        ("DIV", np.ones(2, np.int8), "DIV of an integer by 0"),
    ],
)
def test_functions_that_a_type_does_not_have(function, a, sentence):
    with pytest.raises(SimulationError, match=rf"instruction 0 \(ALU {function}, queue 'vector'\): {sentence}"):
        alu(function, a, str(a.dtype), immediate=(0,))


def test_functions_that_do_not_reduce():
    c = np.zeros((1, 1, 1, 1), np.int8)
    with pytest.raises(SimulationError, match="RELU cannot reduce; expected ADD, SUB, MUL, MAX, MIN"):
        reduced("RELU", np.ones((1, 1, 1, 3), np.int8), (3,), c, "int8")


def test_an_operand_may_be_its_own_result():
    """In place, and a tile added to its own transpose: everything is read before anything is written."""
    a = np.arange(9, dtype=np.int32).reshape(3, 3)
    got = execute(
        Opcode.ALU, (3, 3), a, (3, 3), "int32", b=a, strides={"a": (3, 1), "b": (1, 3)}, function=Function.ADD
    )
    np.testing.assert_array_equal(got, a + a.T)
