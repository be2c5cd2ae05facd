"""sin and cos of float32 and float16 as vectorised arithmetic, for arguments of every magnitude."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import relax, te, tirx

import tvm_tiling as tt
from tvm_tiling.hardware.instruction_sets import instruction_set_of_this_cpu
from tvm_tiling.lowering.vector_math import with_vector_math

SPECIAL = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38]
NAMES = pytest.mark.parametrize("name", ["sin", "cos"])


def result(name: str, x: np.ndarray, hardware="llvm") -> np.ndarray:
    """sin or cos of every element, as a model of one operator."""
    builder, source = relax.BlockBuilder(), relax.Var("x", relax.TensorType(x.shape, str(x.dtype)))
    with builder.function("main", [source]):
        with builder.dataflow():
            out = builder.emit_output(getattr(relax.op, name)(source))
        builder.emit_func_output(out)
    return tt.compile(builder.finalize(), target=hardware, cache=False)(x)


def arguments() -> np.ndarray:
    """Numbers of every exponent, multiples of pi / 2 and their neighbours, and the float32 closest to one of them."""
    rng = np.random.default_rng(0)
    powers = np.float32(2.0) ** np.arange(-149, 128, dtype=np.float32)
    turns = (np.arange(1, 20001) * np.pi / 2).astype("float32")
    parts = [
        rng.integers(0, 1 << 32, 1 << 18, dtype=np.uint64).astype("uint32").view("float32"),
        np.linspace(-100, 100, 50001),
        *(np.nextafter(each, np.float32(0)) for each in (powers, turns)),
        powers,
        turns,
        np.logspace(-6, 1, 5001),
        16367173 * 2.0 ** np.array([72.0]),
        SPECIAL,
    ]
    x = np.concatenate([np.asarray(part, "float32") for part in parts])
    return np.concatenate([x, -x])


def check(name: str, x: np.ndarray, got: np.ndarray) -> None:
    """Compare with float64 by units in the last place; also NaN and the sign of zeros."""
    with np.errstate(invalid="ignore"):
        true = getattr(np, name)(x.astype("float64"))
    expected = true.astype("float32")
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isnan(got), ~finite)
    off = np.abs(got.astype("float64") - true)[finite] / np.spacing(np.abs(expected[finite]))
    assert off.max() < 1.6
    np.testing.assert_array_equal(np.signbit(got[finite]), np.signbit(expected[finite]))


@NAMES
def test_within_2_units_in_the_last_place(name):
    x = arguments()
    check(name, x, result(name, x))


@NAMES
@pytest.mark.values
@pytest.mark.skipif("avx2" not in getattr(instruction_set_of_this_cpu(), "extensions", ()), reason="needs AVX2")
def test_the_same_with_narrower_vectors(name):
    found = tt.Hardware.load("skylake-desktop-8c")
    x = arguments()
    check(name, x, result(name, x, replace(found, cpu=replace(found.cpu, cores=1, threads=1))))


@NAMES
@pytest.mark.parametrize("size", [1, 3, 15, 17, 33])
def test_sizes_that_are_not_whole_vectors(name, size):
    x = np.linspace(-1e9, 1e9, size, dtype="float32")
    check(name, x, result(name, x))


@NAMES
def test_half_precision_is_rounded_once(name):
    x = np.arange(1 << 16, dtype="uint16").view("float16")
    with np.errstate(invalid="ignore"):
        expected = getattr(np, name)(x.astype("float64"))
    np.testing.assert_allclose(result(name, x), expected, rtol=2.0**-11 * 1.01, atol=2.0**-25)


@NAMES
def test_no_call_is_left_for_each_lane(name):
    source = te.placeholder((8,), name="x")
    load = source[tirx.Var("i", "int32")]
    assert f"T.{name}(" not in str(with_vector_math(getattr(tirx, name)(load)))
