"""Floats are not real numbers: rounded sums, infinities and NaN in one kernel give NumPy's step-by-step results."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

import tvm_tiling as tt

op = relax.op
NUMBERS = np.array([0.0, -0.0, 1.5, -2.0, 3e7, np.inf, -np.inf, np.nan], "float32")


def number(value: float) -> relax.Expr:
    return relax.const(value, "float32")


def double(x):
    return op.multiply(x, number(2.0))


# Functions of x, by Relax and by NumPy.
CASES = {
    "a number added and taken away": (
        lambda x: op.subtract(op.add(x, number(1e8)), number(1e8)),
        lambda x: (x + np.float32(1e8)) - np.float32(1e8),
    ),
    "a tensor added and taken away": (
        lambda x: op.subtract(op.add(double(x), op.exp(x)), op.exp(x)),
        lambda x: (x * 2 + np.exp(x)) - np.exp(x),
    ),
    "the same from itself": (lambda x: op.subtract(double(x), double(x)), lambda x: x * 2 - x * 2),
    "times 0": (lambda x: op.multiply(double(x), number(0.0)), lambda x: x * 2 * np.float32(0)),
    "0 times": (lambda x: op.multiply(number(-0.0), double(x)), lambda x: x * 2 * np.float32(-0.0)),
    "times zeros": (lambda x: op.multiply(op.zeros(x.ty.shape, "float32"), x), lambda x: x * np.float32(0)),
    "by 0": (lambda x: op.divide(double(x), number(0.0)), lambda x: x * 2 / np.float32(0)),
    "by -0": (lambda x: op.divide(double(x), number(-0.0)), lambda x: x * 2 / np.float32(-0.0)),
    "0 by": (lambda x: op.divide(number(0.0), double(x)), lambda x: np.float32(0) / (x * 2)),
    "not less": (lambda x: op.logical_not(op.less(double(x), number(3.0))), lambda x: ~(x * 2 < 3)),
    "not at least": (lambda x: op.logical_not(op.greater_equal(double(x), number(3.0))), lambda x: ~(x * 2 >= 3)),
    "not equal": (lambda x: op.logical_not(op.equal(double(x), number(3.0))), lambda x: ~(x * 2 == 3)),
    "equal to itself": (lambda x: op.equal(double(x), double(x)), lambda x: x * 2 == x * 2),
    "less or at least": (
        lambda x: op.logical_or(op.less(double(x), number(1.0)), op.less_equal(number(1.0), double(x))),
        lambda x: (x * 2 < 1) | (x * 2 >= 1),
    ),
    "neither less nor at least": (
        lambda x: op.where(
            op.less(double(x), number(1.0)), x, op.where(op.less_equal(number(1.0), double(x)), double(x), number(7.0))
        ),
        lambda x: np.where(x * 2 < 1, x, np.where(x * 2 >= 1, x * 2, np.float32(7))),
    ),
}


@pytest.fixture(scope="module")
def found():
    """Return the results of all cases by name. Each case has its own input, and therefore its own kernel."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{place}", relax.TensorType(NUMBERS.shape, "float32")) for place in range(len(CASES))]
    with builder.function("main", inputs):
        with builder.dataflow():
            results = [builder.emit(make(x)) for x, (make, _) in zip(inputs, CASES.values(), strict=True)]
            out = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(out)
    executable = tt.compile(builder.finalize(), cache=False)
    return dict(zip(CASES, executable.run(*[NUMBERS] * len(CASES)), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_operations_of_floats_are_not_those_of_real_numbers(found, name):
    with np.errstate(all="ignore"):
        expected = CASES[name][1](NUMBERS)
    result = found[name]
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
    if result.dtype == "float32":
        np.testing.assert_array_equal(np.signbit(result)[~np.isnan(result)], np.signbit(expected)[~np.isnan(expected)])


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_powers_of_integers_are_refused(dtype):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.power(x, x))
        builder.emit_func_output(out)
    with pytest.raises(tt.ModelFormatError, match=f"power: operands have type {dtype}; expected floats") as refused:
        tt.compile(builder.finalize(), cache=False)
    assert "\n" not in str(refused.value)
