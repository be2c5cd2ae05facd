"""Numbers of quantisation: scales, multipliers between shifts, weights; integer operators compared with floats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from integer_reference import reference
from networks import Network
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.frontend import load_model
from tvm_tiling.model.quantise.quantise import quantised
from tvm_tiling.model.quantise.scale import Scale, quantised_weights, requantisation, scale_of

op = relax.op
VTA = tt.Hardware.load("vta")


@given(
    st.lists(st.floats(1e-7, 4.0), min_size=1, max_size=5),
    st.integers(8, 28),
    st.integers(0, 2**32),
)
def test_a_multiplier_between_shifts_is_the_factor(factors, bits, seed):
    bound = (1 << bits) - 1
    factors = np.array(factors)
    numbers = requantisation(factors, bound)
    x = np.random.default_rng(seed).integers(-bound, bound + 1, (40, len(factors)))
    x[0], x[1] = bound, -bound
    half = (1 << numbers.before) >> 1
    first = (x + half) >> numbers.before
    assert np.abs(first * numbers.multipliers.astype(np.int64)).max() + ((1 << numbers.after) >> 1) < 2**31
    got, want = numbers.apply(x), x * factors
    # Within a sixteenth and a half of a step, and the error of the multiplier of the largest factor.
    near = np.abs(want) < 300
    step = 2.0 ** -(numbers.before + numbers.after)
    slack = np.abs(x) * step * 0.5000001 + factors * half * 1.001 + 0.5000001
    assert (np.abs(got - want) <= slack)[near].all()
    if factors.max() > 2.0**-20 and bits <= 24:
        assert (numbers.multipliers.max() >= 32) or step in (factors / numbers.multipliers)


def test_a_power_of_two_is_a_shift():
    numbers = requantisation(2.0**-9, 1 << 20)
    assert (numbers.before, numbers.multipliers.tolist(), numbers.after) == (0, [1], 9)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 3.0), (0.0, 6.0), (2.0, 5.0), (-7.0, -1.0), (0.0, 0.0)])
def test_a_range_fits_its_scale_and_0_is_exact(low, high):
    for symmetric in (False, True):
        scale = scale_of(low, high, symmetric)
        ends = scale.reals[[0, -1]]
        assert ends[0] <= min(low, 0) + scale.scale / 2 and ends[1] >= max(high, 0) - scale.scale / 2
        assert scale.quantised(0.0) == scale.zero and (not symmetric or scale.zero == 0)


def test_quantised_numbers_round_to_even_and_saturate():
    scale = Scale(0.5, 3)
    assert scale.quantised(np.array([0.25, 0.75, -0.25, 100.0, -100.0])).tolist() == [3, 5, 3, 127, -128]


def test_weights_have_a_scale_for_each_channel():
    values = np.random.default_rng(0).standard_normal((5, 7, 3)).astype(np.float32)
    values[2] = 0
    q, scales = quantised_weights(values, 0)
    assert q.dtype == np.int8 and q.min() >= -127 and scales.shape == (5,)
    assert np.abs(q * scales[:, None, None] - values).max() <= scales.max() / 2 * 1.0001


def network(body, *shapes):
    made = Network(*shapes)
    return made.module(body), [made.arrays() for _ in range(3)]


OPERATORS = {
    "product, bias, bounds": (
        lambda n, x: op.clip(n.emit(op.add(n.emit(op.matmul(x, n.c(20, 12))), n.c(12))), -0.5, 0.75),
        (6, 20),
    ),
    "padded convolution of what is never negative": (
        lambda n, x: op.nn.conv2d(n.emit(op.nn.relu(x)), n.c(8, 4, 3, 3), padding=1, strides=2),
        (1, 4, 9, 9),
    ),
    "convolution in groups": (lambda n, x: op.nn.conv2d(x, n.c(8, 2, 3, 3), groups=2, dilation=2), (1, 4, 9, 9)),
    "sum and difference": (
        lambda n, x: op.subtract(
            n.emit(op.add(x, n.emit(op.matmul(x, n.c(12, 12))))), n.emit(op.matmul(x, n.c(12, 12)))
        ),
        (5, 12),
    ),
    "products of tensors": (lambda n, x: op.multiply(n.emit(op.matmul(x, n.c(12, 12))), x), (5, 12)),
    "average pool": (lambda n, x: op.nn.avg_pool2d(x, (3, 3), (2, 2)), (1, 4, 9, 9)),
    "mean": (lambda n, x: op.mean(x, [2, 3]), (1, 4, 9, 9)),
    "softmax of a product, with a factor": (
        lambda n, x: op.matmul(n.emit(op.nn.softmax(n.emit(op.multiply(x, relax.const(2.0, "float32"))))), n.c(12, 5)),
        (5, 12),
    ),
    "layer norm": (lambda n, x: op.nn.layer_norm(x, n.c(12), n.c(12), axes=-1), (5, 12)),
    "functions of one tensor": (
        lambda n, x: op.matmul(n.emit(op.multiply(x, n.emit(op.sigmoid(n.emit(op.nn.gelu(x)))))), n.c(12, 5)),
        (5, 12),
    ),
    "parts put together, transposed": (
        lambda n, x: op.matmul(n.emit(op.permute_dims(n.emit(op.concat([x, n.emit(op.nn.relu(x))], 0)))), n.c(10, 6)),
        (5, 12),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_in_integers_are_close_to_floats(name):
    body, shape = OPERATORS[name]
    module, data = network(body, shape)
    floats = tt.compile(module, cache=False)
    integers = quantised(load_model(module), VTA, [tuple(arrays) for arrays in data])
    called = {
        b.value.op.name for block in integers["main"].body.blocks for b in block.bindings if hasattr(b.value, "op")
    }
    heavy = {"relax.nn.conv2d", "relax.matmul", "relax.nn.softmax", "relax.nn.layer_norm", "relax.mean"}
    for block in integers["main"].body.blocks:
        for binding in block.bindings:
            if getattr(getattr(binding.value, "op", None), "name", "") in heavy:
                assert "int" in str(binding.var.ty.dtype)
    assert "relax.quantize" in called
    for arrays in data:
        want, got = floats.run(*arrays), reference(integers, *arrays)
        assert np.abs(got - want).max() <= 0.04 * np.abs(want).max()
