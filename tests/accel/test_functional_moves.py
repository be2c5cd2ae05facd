"""LOAD, STORE and FILL against NumPy: strides, borders, types."""

from __future__ import annotations

import numpy as np
import pytest
from accel_programs import MACHINE
from hypothesis import given, settings
from hypothesis import strategies as st
from one_instruction import execute, random_values, row_major

from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder

extents = st.tuples(*[st.integers(1, 5)] * 4)


@given(extents, st.permutations(range(4)), st.sampled_from(["int8", "int32", "bfloat16", "float16"]))
@settings(max_examples=40, deadline=None)
def test_a_copy_may_permute_dimensions(extent, order, dtype):
    values = random_values(np.random.default_rng(sum(extent)), dtype, extent)
    expected = values.transpose(order)
    stride = row_major(expected.shape)
    strides = {"c": tuple(stride[order.index(axis)] for axis in range(4))}
    got = execute(Opcode.LOAD, extent, values, expected.shape, dtype, a_dtype=dtype, strides=strides)
    np.testing.assert_array_equal(got, expected)


@given(extents, st.tuples(*[st.integers(0, 3)] * 4), st.sampled_from([Opcode.LOAD, Opcode.STORE]))
@settings(max_examples=40, deadline=None)
def test_a_border_holds_its_value_and_nothing_else_does(extent, pad, op):
    values = random_values(np.random.default_rng(7), "int8", extent)
    top, bottom, left, right = pad
    expected = np.pad(values, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=-3)
    got = execute(op, extent, values, expected.shape, "int8", pad=pad, immediate=(-3,))
    np.testing.assert_array_equal(got, expected)


def test_strided_copies_leave_alone_what_lies_between():
    values = np.arange(12, dtype=np.int16).reshape(3, 4)
    before = np.full((3, 8), -1, np.int16)
    got = execute(Opcode.LOAD, (3, 4), values, (3, 8), "int16", c=before, strides={"c": (8, 2)})
    expected = before.copy()
    expected[:, ::2] = values
    np.testing.assert_array_equal(got, expected)


def test_negative_strides_reverse():
    values = np.arange(6, dtype=np.int32)
    build = ProgramBuilder(MACHINE)
    x = build.tensor("x", "int32", (6,), role="input", operand="a")
    y = build.tensor("y", "int32", (6,), role="output", operand="out")
    last = At("external", x.address + 5 * 4, (-1,), "int32")
    build.append(Opcode.LOAD, "load_a", (6,), a=last, c=At("external", y.address, (1,), "int32"))
    assert run(build.build(), {"x": values})["y"].tolist() == [5, 4, 3, 2, 1, 0]


def test_a_copy_within_a_memory_reads_before_it_writes():
    """A window of a buffer moved up by one, with a zero border, like a sliding window."""
    build = ProgramBuilder(MACHINE)
    x = build.tensor("x", "int8", (1, 8), role="input", operand="a")
    y = build.tensor("y", "int8", (1, 8), role="output", operand="out")

    def near(start):
        return At("a", start, (8, 8, 1, 1), "int8")

    build.append(Opcode.LOAD, "load_a", (1, 1, 8), a=At("external", x.address, (8, 8, 1), "int8"), c=near(0))
    build.append(Opcode.LOAD, "load_a", (1, 1, 7), a=near(0), c=near(0), pad=(0, 0, 1, 0), immediate=(0,))
    build.append(Opcode.STORE, "store", (1, 1, 8), a=near(0), c=At("external", y.address, (8, 8, 1), "int8"))
    assert run(build.build(), {"x": np.arange(1, 9, dtype=np.int8)[None]})["y"].tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]


@pytest.mark.parametrize(
    "a_dtype, c_dtype, values, expected",
    [
        ("int32", "int8", [300, -300, 5], [127, -128, 5]),
        ("int8", "uint8", [-1, 0, 127], [0, 0, 127]),
        ("float32", "int8", [1.9, -1.9, 1e9, -np.inf, np.nan], [1, -1, 127, -128, 0]),
        ("float32", "int32", [2.0**31, -(2.0**31), 2.0**31 - 128], [2**31 - 1, -(2**31), 2**31 - 128]),
        ("int32", "float32", [2**24 + 1, -7], [2**24, -7]),
        ("float32", "float16", [65520.0, 1 + 2.0**-11, 1 + 3 * 2.0**-11], [np.inf, 1, 1 + 2.0**-9]),
    ],
)
def test_a_copy_converts_and_saturates(a_dtype, c_dtype, values, expected):
    got = execute(Opcode.LOAD, (len(values),), np.array(values, a_dtype), (len(values),), c_dtype)
    np.testing.assert_array_equal(got, np.array(expected, c_dtype))


def test_bfloat16_is_rounded_to_nearest_even():
    """Conversion by the definition: of the two bfloat16 around a float32, the nearer one, and the even one in a tie."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 20_000, dtype=np.uint64).astype(np.uint32)
    bits[:4000] = (bits[:4000] & 0xFFFF0000) | 0x8000  # ties
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    got = execute(Opcode.LOAD, values.shape, values, values.shape, "bfloat16", a_dtype="float32")
    below = values.view(np.uint32) & np.uint32(0xFFFF0000)
    low = below.view(np.float32).astype(np.float64)
    # The next one away from 0; beyond the largest is infinity, which counts as 2^128.
    high = (below + np.uint32(0x10000)).view(np.float32).astype(np.float64)
    high = np.where(np.isinf(high), np.copysign(2.0**128, low), high)
    to_low, to_high = np.abs(values - low), np.abs(high - values)
    even = (below >> 16) % 2 == 0
    expected = np.where((to_low < to_high) | ((to_low == to_high) & even), low, high)
    expected = np.where(np.abs(expected) == 2.0**128, np.copysign(np.inf, expected), expected)
    np.testing.assert_array_equal(got, expected)
    assert np.isnan(execute(Opcode.LOAD, (2,), np.array([np.nan, -np.nan], np.float32), (2,), "bfloat16")).all()


@pytest.mark.parametrize("dtype", ["int8", "int32", "float32", "bfloat16"])
def test_fill(dtype):
    build = ProgramBuilder(MACHINE)
    y = build.tensor("y", dtype, (3, 5), role="output", operand="out")
    build.append(Opcode.FILL, "store", (3, 5), c=At("external", y.address, (5, 1), dtype), immediate=(-6,))
    np.testing.assert_array_equal(run(build.build(), {})["y"], np.full((3, 5), -6))
